"""Compares the text that a language model and its variants generate, in torch and in the runtimes
that read their file: prefill and decode timed in turn, perplexity and agreement on a text.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..arguments import check_count, check_seconds
from ..converter.decoders import DECODERS
from ..engines.decoding import ReplayDecoder
from ..engines.exported import Exported
from ..errors import (
    MeasureError,
    PaifuserError,
    ShouldStop,
    keep_when_stopped,
    stop_if_asked,
)
from ..machine import machine_label
from ..measure import MachineWatch, Samples, ratio_of_rounds, synchronize, wait_until_quiet
from ..model.weights import weights_bytes
from ..progress import progress
from ..records import GenerationComparison, GenerationRow, Phase
from ..workload import Workload, running_in_turns, workload_of
from ..workload.generation import (
    Decoder,
    Generation,
    TorchDecoder,
    greedy,
    judged_windows,
    surprise,
)
from . import Variant, apply
from .recipe import Recipe
from .trial import check_kind

ROUNDS, SECONDS = 10, 30.0
WINDOWS = 32  # of the text at most
TORCH, REPLAY = "torch", "replay"
Result = TypeVar("Result")


@dataclass
class Contender:
    """A model in a runtime, and how long it took in each round."""

    name: str
    engine: str
    decoder: Decoder
    size_bytes: int
    prefill: Samples = field(default_factory=Samples)
    decode: Samples = field(default_factory=Samples)
    judged: tuple[float, Tensor] | None = None  # its loss on the text, and its likeliest tokens
    written: list[int] = field(default_factory=list)  # what it writes by itself after the prompt

    def take_turn(self, prompt: Sequence[int], following: Sequence[int]) -> tuple[float, float]:
        """Read the prompt and append the tokens: the ms of the prompt, and of a token."""
        self.decoder.reset()
        began = time.perf_counter()
        synchronize(self.decoder.feed(prompt).device)
        read = time.perf_counter()
        for token in following:
            synchronize(self.decoder.feed([token]).device)  # as choosing the next one does
        ended = time.perf_counter()
        return 1e3 * (read - began), 1e3 * (ended - read) / len(following)


def compare_generation(
    work: Workload,
    *variants: Variant | Recipe,
    prompt_tokens: int = 128,
    new_tokens: int = 32,
    engines: str | Sequence[str] = (TORCH,),
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    should_stop: ShouldStop | None = None,
) -> GenerationComparison:
    """Time prefill and decode of a language model and its variants in each of the engines, in turn:
    "torch", "replay" (torch's operators without the Python code between them), and, from a file,
    "llama.cpp", "openvino", "onnxruntime". Where the workload was loaded with a text, also how well
    each predicts the part to judge by, in the very file that the engine runs. All of them continue
    with the baseline's tokens. A recipe is applied first; one that fails becomes rows with the
    reason.
    """
    check_count("rounds", rounds)
    check_seconds(seconds)
    work = workload_of(work)
    made = work.generation(prompt_tokens, new_tokens)
    named = (engines,) if isinstance(engines, str) else engines
    with contending(work, variants, named, prompt_tokens + new_tokens) as contenders:
        return contenders.compare(made, rounds, seconds, should_stop)


@contextmanager
def contending(
    work: Workload, variants: Sequence[Variant | Recipe], engines: Sequence[str], context: int
) -> Iterator[Contenders]:
    """A language model and its variants in each of the engines, for texts of so many tokens."""
    known = (TORCH, REPLAY, *DECODERS)
    if unknown := set(engines) - {*known}:
        raise MeasureError(f"There is no engine {min(unknown)!r}; there are {', '.join(known)}.")
    for one in variants:
        check_kind(one)
    windows = (judged_windows(work) or [])[:WINDOWS]
    subjects, refused = [(work.name, work.model, work.model)], list[GenerationRow]()
    for one in variants:
        recipe = one if isinstance(one, Recipe) else one.recipe
        try:
            variant = apply(work, one) if isinstance(one, Recipe) else one
        except PaifuserError as error:
            refused += [_refused(recipe.label, engine, error) for engine in dict.fromkeys(engines)]
            continue
        subjects.append((recipe.label, variant.model, variant.module))
    with ExitStack() as stack:
        for _, model, _ in subjects:
            stack.enter_context(running_in_turns(model))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paifuser-lab-")))
        context = max([context, *map(len, windows)])
        ready, failed = _contenders(work, subjects, engines, folder, context)
        yield Contenders(windows, ready, [*failed, *refused])


@dataclass
class Contenders:
    """Models in runtimes, the baseline first, those that were refused, and the text to judge by."""

    windows: Sequence[Sequence[int]]
    ready: list[Contender]
    failed: list[GenerationRow]

    def compare(
        self,
        made: Generation,
        rounds: int = ROUNDS,
        seconds: float = SECONDS,
        should_stop: ShouldStop | None = None,
    ) -> GenerationComparison:
        """Time a prompt and what follows it in each, in turn; see `compare_generation`."""
        if not self.ready:
            raise MeasureError(self.failed[0].failure)
        first = self.ready[0]
        following = greedy(first.decoder, made.prompt, made.new_tokens)
        watch = MachineWatch()
        for one in self.ready:
            one.prefill, one.decode, one.written = Samples(), Samples(), []
        with keep_when_stopped(lambda: bool(first.decode.rounds_ms)) as ending:
            turns = [partial(one.take_turn, made.prompt, following) for one in self.ready]
            for measured in texts_in_turn(watch, turns, rounds, seconds):
                for one, (prompt_ms, token_ms) in zip(self.ready, measured, strict=True):
                    one.prefill.rounds_ms.append(prompt_ms)
                    one.decode.rounds_ms.append(token_ms)
                stop_if_asked(should_stop)
        windows = [] if ending.is_stopped else self.windows
        with keep_when_stopped() as judging:
            for one in self.ready:
                one.written = greedy(one.decoder, made.prompt, made.new_tokens)
            for one in self.ready if windows else ():
                if one.judged is None:  # once, however many prompts are compared
                    one.judged = surprise(one.decoder, _polled(windows, should_stop))
        windows = [] if judging.is_stopped else windows
        return GenerationComparison(
            workload=made.work.name,
            machine=machine_label(),
            prompt_tokens=made.prompt_tokens,
            new_tokens=made.new_tokens,
            evaluated_tokens=sum(len(window) - 1 for window in windows),
            bytes_per_token=made.bytes_per_token,
            rounds=len(first.decode.rounds_ms),
            is_interrupted=ending.is_stopped or judging.is_stopped,
            quality=watch.quality(
                waited_share=None,
                spread=None,
                sleeps=None,
                intervals=[ratio_of_rounds(first.decode, one.decode)[1] for one in self.ready[1:]],
                with_processes=True,
            ),
            prompt=made.readable(made.prompt),
            rows=(*_rows(made, self.ready, following, windows), *self.failed),
        )


def torch_decoder(name: str, model: Any, context: int, engine: str = REPLAY) -> TorchDecoder:
    """A model in torch; raises for a backend that runs an exported file, since that has no cache to
    go on from.
    """
    if isinstance(model, Exported):
        raise MeasureError(
            f"{name} runs in {model.title} as a file without a cache, which generates no text; "
            "leave the backend out of its recipe."
        )
    return (ReplayDecoder if engine == REPLAY else TorchDecoder)(model, context)


def _contenders(
    work: Workload,
    subjects: Sequence[tuple[str, Any, Any]],
    engines: Sequence[str],
    folder: Path,
    context: int,
) -> tuple[list[Contender], list[GenerationRow]]:
    """Each model in each engine, the baseline in torch first; a row for each that is refused."""
    made, failed, threads = [], list[GenerationRow](), torch.get_num_threads()
    for place, (name, model, module) in enumerate(subjects):
        for engine in dict.fromkeys([*([TORCH] if place == 0 else []), *engines]):
            try:
                if engine in (TORCH, REPLAY):
                    decoder: Decoder = torch_decoder(name, model, context, engine)
                    made.append(Contender(name, engine, decoder, weights_bytes(model)))
                    continue
                kind = DECODERS[engine]
                file = folder / f"{place}-{engine}" / kind.file
                file.parent.mkdir()
                kind.write(work, module, file)
                # with the weights that lie beside it
                size = sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))
                made.append(Contender(name, engine, kind(file, context, threads), size))
            except PaifuserError as error:
                failed.append(_refused(name, engine, error))
    return made, failed


def _refused(name: str, engine: str, error: PaifuserError) -> GenerationRow:
    threads = torch.get_num_threads()
    return GenerationRow(name=name, engine=engine, threads=threads, failure=str(error))


def texts_in_turn(
    watch: MachineWatch, turns: Sequence[Callable[[], Result]], rounds: int, seconds: float
) -> Iterator[list[Result]]:
    """What each turn measured, after each round of them in shuffled order; the first round warms up
    and is dropped.
    """
    order, shuffle = list(range(len(turns))), random.Random(0).shuffle
    until = time.perf_counter() + seconds
    with progress("generating", rounds) as shown:
        for done in range(rounds + 1):
            if done > 2 and time.perf_counter() > until:
                return
            shuffle(order)
            measured = dict[int, Result]()
            with watch.turn():
                for place in order:
                    wait_until_quiet()  # engines' threads spin after a call
                    measured[place] = turns[place]()
            if done:
                shown.advance()
                yield [measured[place] for place in range(len(turns))]


def _polled(
    windows: Sequence[Sequence[int]], should_stop: ShouldStop | None
) -> Iterator[Sequence[int]]:
    """The windows, until a stop is asked for."""
    for window in windows:
        stop_if_asked(should_stop)
        yield window


def _rows(
    made: Generation,
    contenders: Sequence[Contender],
    following: Sequence[int],
    windows: Sequence[Sequence[int]],
) -> list[GenerationRow]:
    """A row of each contender, with what is known of it: its loss on the text, what it wrote."""
    rows, first, likely = list[GenerationRow](), contenders[0], Tensor()
    for one in contenders:
        loss, own = one.judged if windows and one.judged else (None, None)
        likely = own if one is first and own is not None else likely
        rows.append(
            GenerationRow(
                name=one.name,
                engine=one.engine,
                threads=torch.get_num_threads(),
                prefill=phase_of(first.prefill, one.prefill, len(made.prompt)),
                decode=phase_of(first.decode, one.decode, 1),
                size_bytes=one.size_bytes,
                loss=loss,
                agreement=None if own is None else float((own == likely).float().mean()),
                **(text_of(made, one.written, following) if one.written else {}),
            )
        )
    return rows


def text_of(made: Generation, tokens: list[int], first: Sequence[int]) -> dict[str, Any]:
    """A text as fields of its row, with where it parts from the baseline's."""
    both = min(len(tokens), len(first))  # one that was interrupted may have fewer
    same = next((place for place in range(both) if tokens[place] != first[place]), both)
    return {
        "text": made.readable(tokens),
        "same_tokens": same,
        "parts_at": None if same == both else len(made.readable(tokens[:same])),
    }


def phase_of(baseline: Samples, own: Samples, tokens: int) -> Phase:
    """The time of a phase, beside the baseline's in the same rounds."""
    speedup, interval = ratio_of_rounds(baseline, own)
    return Phase(
        ms=own.median_ms,
        tokens_per_s=1e3 * tokens / own.median_ms,
        speedup=speedup,
        interval=interval,
    )

"""A language model and its variants write their own texts at the same time, a few tokens of each in
turn, so that the texts grow together and both are timed on the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import torch

from ..engines.decoding import ReplayDecoder
from ..errors import ShouldStop, keep_when_stopped, stop_if_asked
from ..machine import machine_label
from ..measure import MachineWatch, Samples, ratio_of_rounds
from ..records import GenerationComparison, GenerationRow
from ..workload import Workload, running_in_turns
from ..workload.generation import Generation, TorchDecoder, bytes_per_token
from .generation import REPLAY, TORCH, phase_of, text_of, texts_in_turn, torch_decoder
from .variant import Variant

PROMPT_TOKENS, NEW_TOKENS = 64, 64
READS, READ_S = 3, 2.0  # of the prompt, and for how long
A_TURN = 4  # tokens: the first of them wakes threads and caches
FEWEST = 1 + 2 * A_TURN  # a first turn warms up
EVERY_S = 0.2  # five times a second at most


@dataclass
class Writer:
    """A model, what it wrote, and how long it took in each round."""

    name: str
    decoder: TorchDecoder
    tokens: list[int] = field(default_factory=list)
    prefill: Samples = field(default_factory=Samples)
    decode: Samples = field(default_factory=Samples)
    pace: list[tuple[int, float]] = field(default_factory=list)

    @property
    def engine(self) -> str:
        """What its tokens ran in: not every model can be replayed."""
        own = self.decoder
        return REPLAY if isinstance(own, ReplayDecoder) and any(own.replays.values()) else TORCH

    def read(self, prompt: Sequence[int]) -> float:
        """Read the prompt, and write the first token; the ms of that."""
        self.decoder.reset()
        began = time.perf_counter()
        self.tokens = [int(self.decoder.feed(prompt).argmax())]
        return 1e3 * (time.perf_counter() - began)

    def write(self, most: int) -> float:
        """Write a turn's tokens, until there are `most`; the median ms of one."""
        taken = list[float]()
        for _ in range(min(A_TURN, most - len(self.tokens))):
            began = time.perf_counter()
            self.tokens.append(int(self.decoder.feed(self.tokens[-1:]).argmax()))
            taken.append(1e3 * (time.perf_counter() - began))
        return median(taken)


def generate_in_turns(
    work: Workload,
    *variants: Variant,
    prompt: str = "",
    seconds: float = 15.0,
    should_stop: ShouldStop | None = None,
) -> Iterator[GenerationComparison]:
    """What a language model and its variants have written, always with the likeliest token, again
    and again as it grows: after a prompt, else after the workload's own. Decoding is replayed where
    it can be. A stop keeps what there is.
    """
    made, tokens, new_tokens = _begun(work, prompt)
    subjects = [(work.name, work.model), *((one.recipe.label, one.model) for one in variants)]
    with ExitStack() as stack:
        for _, model in subjects:
            stack.enter_context(running_in_turns(model))
        context = len(tokens) + new_tokens
        writers = [Writer(name, torch_decoder(name, model, context)) for name, model in subjects]
        watch = MachineWatch()
        reads = [partial(one.read, tokens) for one in writers]
        for read in texts_in_turn(watch, reads, READS, READ_S):
            for one, ms in zip(writers, read, strict=True):
                one.prefill.rounds_ms.append(ms)
            stop_if_asked(should_stop)
        writes = [partial(one.write, new_tokens) for one in writers]
        rounds, shown_at = -(-(new_tokens - 1) // A_TURN) - 1, 0.0
        with keep_when_stopped(lambda: bool(writers[0].pace)) as ending:
            for written in texts_in_turn(watch, writes, rounds, seconds):
                for one, ms in zip(writers, written, strict=True):
                    one.decode.rounds_ms.append(ms)
                    one.pace.append((len(tokens) + len(one.tokens), ms))
                stop_if_asked(should_stop)
                if time.monotonic() - shown_at > EVERY_S:
                    yield _record(made, tokens, writers, watch)
                    shown_at = time.monotonic()
        yield _record(made, tokens, writers, watch, is_done=True, is_interrupted=ending.is_stopped)


def _begun(work: Workload, text: str) -> tuple[Generation, list[int], int]:
    """The generation, the tokens of its prompt, and how many follow, within the model's context."""
    longest = work.generation(1, 1).longest_context
    given = work.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
    most = longest or max(len(given), PROMPT_TOKENS) + NEW_TOKENS
    read = len(given) or min(PROMPT_TOKENS, most // 2)
    written = max(FEWEST, min(NEW_TOKENS, most - read))
    made = work.generation(read, written)  # raises where they do not fit
    return made, given or made.prompt, written


def _record(
    made: Generation,
    prompt: Sequence[int],
    writers: Sequence[Writer],
    watch: MachineWatch,
    *,
    is_done: bool = False,
    is_interrupted: bool = False,
) -> GenerationComparison:
    first = writers[0]
    return GenerationComparison(
        workload=made.work.name,
        machine=machine_label(),
        prompt_tokens=len(prompt),
        new_tokens=len(first.tokens),
        bytes_per_token=bytes_per_token(first.decoder.pairs),
        rounds=len(first.pace),
        is_interrupted=is_interrupted,
        quality=watch.quality(
            intervals=[ratio_of_rounds(first.decode, one.decode)[1] for one in writers[1:]],
            with_processes=is_done,
        ),
        prompt=made.readable(list(prompt)),
        rows=tuple(_row(made, prompt, one, first) for one in writers),
    )


def _row(made: Generation, prompt: Sequence[int], one: Writer, first: Writer) -> GenerationRow:
    return GenerationRow(
        name=one.name,
        engine=one.engine,
        threads=torch.get_num_threads(),
        prefill=phase_of(first.prefill, one.prefill, len(prompt)),
        decode=phase_of(first.decode, one.decode, 1),
        pace=tuple(one.pace),
        **text_of(made, one.tokens, first.tokens),
    )

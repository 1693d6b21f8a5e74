"""Speculative decoding: a draft guesses a language model's next tokens, which one call of the model
then reads; timed in turn with greedy decoding, whose text it has to give.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..arguments import check_count, check_seconds
from ..errors import MeasureError, ShouldStop, WorkloadError, keep_when_stopped, stop_if_asked
from ..machine import machine_label
from ..measure import MachineWatch, Samples, ratio_of_rounds, synchronize
from ..records import Speculation, SpeculationRow
from ..workload import Workload, running_in_turns, workload_of
from ..workload.generation import Generation, Speculated, TorchDecoder, greedy, speculative
from .generation import ROUNDS, SECONDS, texts_in_turn, torch_decoder
from .variant import Variant

LENGTHS = (2, 4, 8)


def speculate(
    work: Workload | Variant,
    draft: Workload | Variant,
    lengths: int | Sequence[int] = LENGTHS,
    *,
    prompt_tokens: int = 128,
    new_tokens: int = 64,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    should_stop: ShouldStop | None = None,
) -> Speculation:
    """Time speculative decoding of a language model with a smaller one, such as a variant of it, as
    draft of 2, 4 and 8 tokens, in turn with greedy decoding. The time begins when the model has
    read the prompt, so that a draft pays for its own reading of it. A text that differs from that
    of greedy decoding raises.
    """
    check_count("rounds", rounds)
    check_seconds(seconds)
    lengths = (lengths,) if isinstance(lengths, int) else tuple(lengths)
    for length in lengths:
        check_count("a length of draft", length)
    work, draft = workload_of(work), workload_of(draft)
    made = work.generation(prompt_tokens, new_tokens)
    draft.generation(prompt_tokens, new_tokens)  # raises where the text does not fit
    _check_same_tokens(work, draft)
    tried = (0, *dict.fromkeys(lengths))
    with running_in_turns(work.model), running_in_turns(draft.model):
        context = prompt_tokens + new_tokens
        model = torch_decoder(work.name, work.model, context)
        guesser = torch_decoder(draft.name, draft.model, context)
        expected = greedy(model, made.prompt, new_tokens)
        turns = [partial(_take_turn, made, model, guesser, expected, length) for length in tried]
        samples, written = [Samples() for _ in tried], list[Speculated]()
        watch = MachineWatch()
        with keep_when_stopped(lambda: bool(written)) as ending:
            for measured in texts_in_turn(watch, turns, rounds, seconds):
                written = [text for _, text in measured]
                for sample, (token_ms, _) in zip(samples, measured, strict=True):
                    sample.rounds_ms.append(token_ms)
                stop_if_asked(should_stop)
    rows = [
        _row(length, text, samples[0], own)
        for length, text, own in zip(tried, written, samples, strict=True)
    ]
    return Speculation(
        workload=work.name,
        draft=draft.name,
        machine=machine_label(),
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        rounds=len(samples[0].rounds_ms),
        is_interrupted=ending.is_stopped,
        quality=watch.quality(intervals=[row.interval for row in rows if row.interval]),
        rows=tuple(rows),
    )


def _check_same_tokens(work: Workload, draft: Workload) -> None:
    """Raise unless a number means the same token to both, as far as their tokenizers are known."""
    configs: list[Any] = [each.model.config for each in (work, draft)]
    one, other = (int(config.vocab_size) for config in configs)
    makers = {work.make_tokenizer, draft.make_tokenizer}
    is_same = one == other and (
        None in makers
        or len(makers) == 1
        or work.tokenizer.get_vocab() == draft.tokenizer.get_vocab()
    )
    if not is_same:
        raise WorkloadError(
            f"the {other:,} tokens of {draft.name} are not the {one:,} of {work.name}; a draft "
            "needs those of its model: give a variant of it, or a smaller model of its family."
        )


def _take_turn(
    made: Generation, model: TorchDecoder, draft: TorchDecoder, expected: list[int], length: int
) -> tuple[float, Speculated]:
    """The ms of a token, and what was written."""
    model.reset()
    draft.reset()
    synchronize(model.feed(made.prompt).device)
    began = time.perf_counter()
    text = speculative(model, draft, made.prompt, len(expected), length)
    ended = time.perf_counter()
    if text.tokens != expected:
        place = next(at for at, token in enumerate(text.tokens) if token != expected[at])
        own, other = (made.readable([tokens[place]]) for tokens in (text.tokens, expected))
        raise MeasureError(
            f"{made.work.name} writes {own!r} as token {place + 1} with a draft of {length} tokens "
            f"and {other!r} without: the two are so near that reading several tokens in a call "
            'rounds them the other way; apply {"precision": "fp32"} to it first.'
        )
    return 1e3 * (ended - began) / len(expected), text


def _row(length: int, text: Speculated, greedy_ms: Samples, own_ms: Samples) -> SpeculationRow:
    speedup, interval = ratio_of_rounds(greedy_ms, own_ms) if length else (None, None)
    return SpeculationRow(
        draft_tokens=length,
        drafted=text.drafted,
        accepted=text.accepted,
        calls=text.calls,
        token_ms=own_ms.median_ms,
        speedup=speedup,
        interval=interval,
    )

"""The costs of attention to some of the keys: errors, latency and metric by share."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import torch

from ..errors import MeasureError, keep_when_stopped, stop_if_asked
from ..machine import thread_choices
from ..machine.host import device_name
from ..measure import Candidate, Samples, output_error, rounds_in_turn
from ..model.copying import copied
from ..progress import Progress, progress
from ..records import AttentionCost, AttentionKind, AttentionLayer, counted
from ..workload import Derived, Inputs, Workload, outside_inference, running, workload_of
from .block_lists import Sparsity
from .discover import Attending, find_attention, lists_from_data
from .evaluate import attention_output, compare_ms, worst_error
from .redirect import as_dense, make_sparse, sparse_layer

KEEPS = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1)
ROUNDS = 30
SHARE_S = 0.2  # for timing one attention to all keys
SMALL = 0.2  # the share of a model's time below which sparse attention gains little


@outside_inference
def attention_cost(
    subject: Workload | Derived,
    *,
    kind: AttentionKind = "topk",
    keeps: Sequence[float] = KEEPS,
    seconds: float = 20.0,
    should_stop: Callable[[], bool] | None = None,
) -> AttentionCost:
    """Measure the errors, latency and metric of a model that attends to a share of the keys in
    every layer that can.

    Every share is evaluated once; then the model is timed at all of them in turn for the remaining
    seconds, and the metric computed if the workload has one. After an interrupt, or if
    `should_stop` returns True, the results so far are returned.
    """
    if kind not in (kinds := get_args(AttentionKind)):
        raise MeasureError(f"{kind!r} is no kind of attention; there are {', '.join(kinds)}.")
    work = copy.copy(workload_of(subject))
    work.model = as_dense(work.model)  # which attends to all keys, as the reference of each share
    shares = _checked(keeps)
    seen = find_attention(work.model, work.inputs, kind)
    if not seen.able:
        reason = next(
            (f": '{layer}': {reason}" for layer, reason in seen.reasons.items()),
            "; none calls torch's attention",
        )
        raise MeasureError(
            f"{work.name} has no layer that can attend to a part of its keys{reason}."
        )
    measurement = _Measurement(
        work, seen, kind, shares, time.perf_counter() + seconds, should_stop or (lambda: False)
    )
    with (
        progress("attending to less", 2 * len(shares) + 1) as shown,
        keep_when_stopped(lambda: bool(measurement.errors)) as ending,
    ):
        measurement.evaluate(shown)
        measurement.time(shown)
        measurement.score(shown)
    if ending.is_stopped:
        measurement.notes.append("it was stopped and has the results until then")
        if 0 < len(measurement.values) < len(measurement.errors):
            measurement.notes.append("the metric was not finished and is left out")
    return measurement.record()


def _checked(keeps: Sequence[float]) -> tuple[float, ...]:
    shares = tuple(sorted({float(keep) for keep in keeps}, reverse=True))
    if not shares or not all(0 < share <= 1 for share in shares):
        raise MeasureError(f"Shares of the keys lie above 0 and up to 1; {list(keeps)} are none.")
    return shares


def _least_ms(samples: Mapping[str, Samples], name: str) -> float:
    """The latency with the fastest number of threads."""
    return min(
        timing.median_ms for label, timing in samples.items() if label.startswith(f"{name} · ")
    )


@dataclass
class _Measurement:
    """The results so far."""

    work: Workload
    seen: Attending
    kind: AttentionKind
    keeps: tuple[float, ...]
    until: float
    should_stop: Callable[[], bool]
    errors: list[float] = field(default_factory=list)
    layer_errors: dict[str, list[float]] = field(default_factory=dict)
    samples: dict[str, Samples] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)
    dense_value: float | None = None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = copied(self.work.model).eval()
        self.lists = {
            keep: lists_from_data(self.model, self.work, self.seen.able, Sparsity(self.kind, keep))
            for keep in self.keeps
        }
        self.layer_errors = {layer: [] for layer in self.seen.able}
        for layer in self.seen.able:
            make_sparse(self.model, layer, None)
        self.sparse = {layer: sparse_layer(self.model, layer) for layer in self.seen.able}

    def evaluate(self, shown: Progress) -> None:
        """Compute the errors against attention to all keys, of each layer and of the model."""
        whole = self.work.output()
        for keep in self.keeps:
            stop_if_asked(self.should_stop)
            results = {
                layer: worst_error(calls, Sparsity(self.kind, keep), self.lists[keep][layer])
                for layer, calls in self.seen.able.items()
            }
            with running(self.model):
                error = output_error(whole, self._output(keep, self.work.inputs.clone()))[0]
            self.errors.append(error)  # a share's errors are added together
            for layer, layer_error in results.items():
                self.layer_errors[layer].append(layer_error)
            shown.advance(doing=f"{keep:.0%}")

    def time(self, shown: Progress) -> None:
        """Time each share in turn with attention to all keys, with each number of threads."""
        device, inputs = self.work.device, self.work.inputs.clone()
        calls: dict[str, Callable[[], Any]] = {"": lambda: inputs(self.work.model)}
        calls |= {str(keep): partial(self._output, keep, inputs) for keep in self.keeps}
        counts = thread_choices() if device.type == "cpu" else (torch.get_num_threads(),)
        candidates = [
            Candidate(f"{name} · {count}", call, count, device)
            for name, call in calls.items()
            for count in counts
        ]
        left = max(0.0, self.until - time.perf_counter())
        with running(self.work.model), running(self.model):
            for self.samples in rounds_in_turn(candidates, rounds=ROUNDS, seconds=left):
                stop_if_asked(self.should_stop)
        shown.advance(doing="timed")

    def score(self, shown: Progress) -> None:
        """Compute the metric at each share."""
        if self.work.metric is None or self.work.test is None:
            return
        self.dense_value = self.work.evaluate()
        for keep in self.keeps:
            stop_if_asked(self.should_stop)
            self._attend_to(keep)
            value = self.work.evaluate(self.model)
            self.values += [] if value is None else [value]
            shown.advance(doing=f"{self.work.metric_name} at {keep:.0%}")

    def record(self) -> AttentionCost:
        """The record of all shares that were evaluated."""
        done = self.keeps[: len(self.errors)]
        samples = self.samples if len(done) == len(self.keeps) else {}
        has_values = len(self.values) == len(done)
        dense_ms = _least_ms(samples, "") if samples else None
        shares = self._shares() if dense_ms and not self.should_stop() else {}
        return AttentionCost(
            workload=self.work.name,
            machine=device_name(self.work.device),
            kind=self.kind,
            keeps=done,
            layers=tuple(self._layer(layer, shares.get(layer)) for layer in self.seen.calls),
            errors=tuple(self.errors),
            latency_ms=tuple(_least_ms(samples, str(keep)) for keep in done) if samples else (),
            dense_ms=dense_ms,
            metric=(self.work.metric_name or "") if has_values else "",
            values=tuple(self.values) if has_values else (),
            dense_value=self.dense_value if has_values else None,
            note="; ".join([*self._notes(shares), *self.notes]),
        )

    def _layer(self, layer: str, share: float | None) -> AttentionLayer:
        calls, reason = self.seen.calls[layer], self.seen.reasons.get(layer, "")
        shape = calls[0].query.shape if calls else ()
        return AttentionLayer(
            layer=layer,
            heads=shape[1] if len(shape) == 4 else 1,
            queries=shape[-2] if shape else 0,
            keys=calls[0].key.shape[-2] if calls else 0,
            is_causal=bool(calls) and calls[0].is_causal,
            errors=tuple(self.layer_errors.get(layer, ())),
            share=share,
            reason=reason,
        )

    def _shares(self) -> dict[str, float]:
        """The share of the model's time that each layer's dense attention takes, measured by one
        clock; calls of equal signature are timed once.
        """
        taken: dict[Any, float] = {}
        inputs = self.work.inputs.clone()
        with running(self.work.model):
            whole = self._ms(lambda: inputs(self.work.model))
        for call in (call for calls in self.seen.able.values() for call in calls):
            if call.signature not in taken:
                taken[call.signature] = self._ms(partial(attention_output, call, None))
        return {
            layer: min(1.0, sum(taken[call.signature] for call in calls) / whole)
            for layer, calls in self.seen.able.items()
        }

    def _ms(self, run: Callable[[], Any]) -> float:
        return min(compare_ms(run, run, self.work.device, SHARE_S))

    def _notes(self, shares: dict[str, float]) -> list[str]:
        whole = sum(shares.values())
        small = (
            f"attention is {whole:.0%} of this model's time, and attending to less saves no more "
            "than that"
        )
        able, all_of_them = len(self.seen.able), len(self.seen.calls)
        rest = f"{counted(all_of_them - able, 'layer')} of {all_of_them} cannot attend to a part"
        return [
            *([small] if shares and whole < SMALL else []),
            *([rest] if able < all_of_them else []),
        ]

    def _attend_to(self, keep: float) -> None:
        for layer, fixed in self.lists[keep].items():
            self.sparse[layer].attend_to(Sparsity(self.kind, keep), fixed)

    def _output(self, keep: float, inputs: Inputs) -> Any:
        self._attend_to(keep)
        return inputs(self.model)

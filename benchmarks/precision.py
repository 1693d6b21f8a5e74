"""Our low-precision recipes against fp32 in every engine and against other quantizers: latency and
output error, measured in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch

from paifuser_lab.bench.by_hand import candidates as engines_by_hand
from paifuser_lab.bench.each import measure_each
from paifuser_lab.errors import PaifuserError
from paifuser_lab.loading.load import load
from paifuser_lab.machine import machine_label, thread_choices
from paifuser_lab.measure import Candidate, output_error, ratio_of_rounds, rounds_in_turn
from paifuser_lab.recipe import Recipe
from paifuser_lab.records import Record
from paifuser_lab.variant import Variant, apply
from paifuser_lab.workload import Workload, running

from .quantized_peers import candidates as quantizers

MODELS = ("resnet18", "resnet50", "mobilenetv2", "vit-s", "swin-t", "bert-base")
PEERS = ("inductor", "onnxruntime", "openvino", "nncf")
EQUAL = 1.1  # errors within this factor count as equal, since they are of one example
INT8: dict[str, Any] = {"precision": {"default": "int8"}}
INT8_SUMS: dict[str, Any] = {"precision": {"default": "int8", "sums": "int8"}}
BF16: dict[str, Any] = {"precision": {"default": "bf16"}}


class PrecisionRow(Record):
    """One way of running a model: its latency, and its output's error against fp32."""

    name: str
    is_ours: bool
    ms: float
    error: float


class PrecisionModel(Record):
    """All ways of running one model, and our best timed in turn with the fastest peer."""

    workload: str
    rows: tuple[PrecisionRow, ...]
    ours: str | None = None
    peer: str | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    failures: dict[str, str] = {}


class PrecisionBench(Record):
    """The result of `python -m benchmarks precision`."""

    machine: str
    models: tuple[PrecisionModel, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return (
            f"latency in ms (relative L2 error against fp32) on {self.machine}; ratio above 1: "
            "ours is faster"
        )

    def table(self) -> list[dict[str, str]]:
        """A row for each way of running, the fastest first, by model; the ratio to the fastest peer
        is in the row of our best.
        """
        rows = []
        for model in self.models:
            for row in sorted(model.rows, key=lambda row: row.ms):
                duel = ""
                if row.name == model.ours and model.ratio and model.interval:
                    duel = (
                        f"{model.ratio:.2f} × ({model.interval[0]:.2f}–{model.interval[1]:.2f}) "
                        f"{model.peer}"
                    )
                rows.append(
                    {
                        "model": model.workload,
                        "way": ("ours: " if row.is_ours else "") + row.name,
                        "ms": f"{row.ms:.3g}",
                        "error": f"{row.error:.1e}",
                        "against the fastest peer": duel,
                    }
                )
            rows += [
                {
                    "model": model.workload,
                    "way": name,
                    "ms": "–",
                    "error": why[:60],
                    "against the fastest peer": "",
                }
                for name, why in model.failures.items()
            ]
        return rows or [{"model": "nothing was measured"}]


def bench(
    names: tuple[str, ...], *, seconds: float, peers: tuple[str, ...] = PEERS
) -> PrecisionBench:
    """Measure models one after another; a failure is recorded and the next one is measured."""
    measured: list[PrecisionModel] = []
    failures = measure_each(
        names or MODELS, lambda name: measured.append(_measured(load(name), seconds, peers))
    )
    return PrecisionBench(machine=machine_label(), models=tuple(measured), failures=failures)


def _measured(work: Workload, seconds: float, peers: tuple[str, ...]) -> PrecisionModel:
    reference = work.output()
    ours, failures = _variants(work)
    with torch.no_grad(), ExitStack() as stack:
        for variant in ours.values():
            stack.enter_context(running(variant.model))
        mine = [
            candidate
            for name, variant in ours.items()
            for candidate in _candidates(work, name, variant)
        ]
        hands = [
            candidate
            for candidate in engines_by_hand(work)
            if _engine(candidate) in ("eager", *peers)
        ]
        others = [*hands, *quantizers(work, peers, failures)]
        errors = {
            candidate.name: output_error(_flat(reference), _flat(candidate.call()))[0]
            for candidate in (*mine, *others)
        }
        *_, samples = rounds_in_turn([*mine, *others], rounds=30, seconds=seconds)
        ms = {name: timing.median_ms for name, timing in samples.items()}
        peer = min(others, key=lambda candidate: ms[candidate.name])
        limit = EQUAL * errors[peer.name]
        eligible = [candidate for candidate in mine if errors[candidate.name] <= limit]
        best = min(eligible, key=lambda candidate: ms[candidate.name], default=None)
        duel: dict[str, Any] = {"peer": peer.name}
        if best is not None:
            *_, pair = rounds_in_turn([best, peer], rounds=60, seconds=seconds)
            ratio, interval = ratio_of_rounds(pair[peer.name], pair[best.name])
            duel |= {"ours": best.name, "ratio": ratio, "interval": interval}
    names = {candidate.name for candidate in mine}
    rows = tuple(
        PrecisionRow(name=name, is_ours=name in names, ms=ms[name], error=errors[name])
        for name in ms
    )
    return PrecisionModel(workload=work.name, rows=rows, failures=failures, **duel)


def _variants(work: Workload) -> tuple[dict[str, Variant], dict[str, str]]:
    """The recipes that can be applied here; a failure is recorded."""
    variants: dict[str, Variant] = {}
    failures: dict[str, str] = {}
    for steps in _recipes():
        recipe = Recipe(steps)
        try:
            variants[recipe.label] = apply(work, recipe)
        except PaifuserError as error:
            failures[recipe.label] = str(error)
    return variants, failures


def _recipes() -> Iterator[list[dict[str, Any]]]:
    yield [INT8]
    yield [INT8_SUMS]
    yield ["fold", BF16]  # type: ignore[list-item]
    for count in thread_choices():
        yield [INT8, {"backend": {"name": "openvino", "threads": count}}]
        yield [{"backend": {"name": "openvino", "threads": count, "bf16": True}}]
        yield [INT8, {"backend": {"name": "openvino", "threads": count, "bf16": True}}]
        yield [INT8_SUMS, {"backend": {"name": "openvino", "threads": count, "bf16": True}}]
        yield [INT8_SUMS, {"backend": {"name": "onnxruntime", "threads": count}}]


def _candidates(work: Workload, name: str, variant: Variant) -> Iterator[Candidate]:
    inputs = work.inputs.clone()
    counts = (variant.threads,) if variant.has_own_threads else thread_choices()
    for count in counts:
        label = name if variant.has_own_threads else f"{name} · {count}"
        yield Candidate(label, lambda: inputs(variant.model), count)


def _engine(candidate: Candidate) -> str:
    return candidate.name.removeprefix("by hand: ").split(" ")[0]


def _flat(output: Any) -> list[torch.Tensor]:
    from torch.utils import _pytree as pytree

    return [leaf.float() for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]

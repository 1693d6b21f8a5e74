"""Our low-precision recipes against fp32 in every engine and against other quantizers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import torch
import typer

from paifuser_lab.bench.by_hand import candidates as engines_by_hand
from paifuser_lab.bench.runner import BenchRecord, Names, Seconds, measured_rows
from paifuser_lab.bench.text import number, power, ratio
from paifuser_lab.errors import PaifuserError
from paifuser_lab.machine import thread_choices
from paifuser_lab.measure import Candidate, output_error, ratio_of_rounds, rounds_in_turn
from paifuser_lab.model.tensors import tensors_in
from paifuser_lab.records import Record
from paifuser_lab.variant import Variant, apply
from paifuser_lab.variant.load import load
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import Workload, running

from .quantized_peers import candidates as quantizers

MODELS = ("resnet18", "resnet50", "mobilenetv2", "vit-s", "swin-t", "bert-base")
# the names of rows
LIVE, INT8_OPENVINO, OURS = "int8", "int8 → openvino", "int8 → openvino in bf16"
FP32 = ("by hand: eager", "by hand: onnxruntime", "by hand: openvino")
ORT, NNCF = "ORT static int8", "OpenVINO NNCF int8"
COLUMNS = {
    "eager": FP32[0],
    "ONNX Runtime": FP32[1],
    "OpenVINO": FP32[2],
    "OpenVINO bf16": "OpenVINO bf16",
    "ORT static int8": ORT,
    "NNCF int8": NNCF,
    "live int8": LIVE,
    "int8 → OpenVINO in bf16": OURS,
}
EQUAL = 1.1  # errors within this factor count as equal, since they are of one example
INT8: dict[str, Any] = {"precision": {"default": "int8"}}
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

    def fastest(self, name: str) -> PrecisionRow | None:
        """The row of this name with the better number of threads."""
        own = (row for row in self.rows if bare(row.name) == name)
        return min(own, key=lambda row: row.ms, default=None)

    @property
    def is_against_nncf(self) -> bool:
        """Whether the fastest peer is NNCF."""
        return (self.peer or "").startswith(NNCF)

    @property
    def against_nncf(self) -> str:
        """NNCF's latency over ours; that of ORT static int8 where NNCF fails."""
        if self.is_against_nncf and self.ratio:
            return ratio(self.ratio, self.interval)
        ours, peer = self.fastest(OURS), self.fastest(NNCF) or self.fastest(ORT)
        return ratio(peer.ms / ours.ms) if ours and peer else "–"


class PrecisionBench(BenchRecord):
    """The result of `python -m benchmarks precision`."""

    caption = (
        "latency in ms (relative L2 error against fp32) on {0.machine}; ratio above 1: ours "
        "is faster"
    )
    models: tuple[PrecisionModel, ...]

    def table(self) -> list[dict[str, str]]:
        """A row for each model, with the better number of threads in each column."""
        return [
            {
                "model": model.workload,
                **{header: _cell(model.fastest(name)) for header, name in COLUMNS.items()},
                "against NNCF": model.against_nncf,
            }
            for model in self.models
        ] or super().table()

    @property
    def slower(self) -> list[str]:
        """The models on which NNCF is faster."""
        duels = [model for model in self.models if model.is_against_nncf and model.ratio]
        return [model.workload for model in duels if (model.ratio or 0) < 1]

    @property
    def failed(self) -> list[str]:
        """The failures, a line each."""
        return super().failed + [
            f"{model.workload}, {name}: {why}"
            for model in self.models
            for name, why in model.failures.items()
        ]


def bare(name: str | None) -> str:
    """A row's name without its number of threads."""
    return (name or "–").rpartition(" · ")[0]


def _cell(row: PrecisionRow | None) -> str:
    if row is None:
        return "–"
    return number(row.ms) + ("" if bare(row.name) in FP32 else f" ({power(row.error)})")


def bench(
    names: Names = None,
    *,
    seconds: Seconds = 30.0,
    peers: Annotated[
        str, typer.Option(help="Which peers, separated by commas.")
    ] = "inductor,onnxruntime,openvino,nncf",
) -> PrecisionBench:
    """Time our recipes in lower precision against fp32 in every engine and against other
    quantizers, with their errors.
    """
    chosen = tuple(peers.split(","))
    measured = measured_rows(names or MODELS, lambda name: [_measured(load(name), seconds, chosen)])
    return PrecisionBench(models=measured["rows"], failures=measured["failures"])


def _measured(work: Workload, seconds: float, peers: tuple[str, ...]) -> PrecisionModel:
    reference = work.output()
    ours, failures = _variants(work)
    with running(*(variant.model for variant in ours.values())):
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
    yield ["fold", BF16]  # type: ignore[list-item]
    for count in thread_choices():
        yield [INT8, {"backend": {"name": "openvino", "threads": count}}]
        yield [{"backend": {"name": "openvino", "threads": count, "bf16": True}}]
        yield [INT8, {"backend": {"name": "openvino", "threads": count, "bf16": True}}]
        yield [INT8, {"backend": {"name": "onnxruntime", "threads": count}}]


def _candidates(work: Workload, name: str, variant: Variant) -> Iterator[Candidate]:
    inputs = work.inputs.clone()
    counts = (variant.threads,) if variant.has_own_threads else thread_choices()
    for count in counts:
        label = name if variant.has_own_threads else f"{name} · {count}"
        yield Candidate(label, lambda: inputs(variant.model), count)


def _engine(candidate: Candidate) -> str:
    return candidate.name.removeprefix("by hand: ").split(" ")[0]


def _flat(output: Any) -> list[torch.Tensor]:
    return [tensor.float() for tensor in tensors_in(output)]

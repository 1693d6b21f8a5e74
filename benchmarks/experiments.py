"""Small experiments behind single sentences of the pages, each with a name and a record.

`python -m benchmarks experiment NAME --json docs/measured/NAME.json` repeats one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from paifuser_lab.attention import attention_cost
from paifuser_lab.bench.each import measure_each
from paifuser_lab.comparison import compare
from paifuser_lab.errors import MeasureError
from paifuser_lab.machine import machine_label
from paifuser_lab.planner import plan_precision, recipe_of
from paifuser_lab.profiler import explain, profile, side_by_side
from paifuser_lab.recipe import Recipe
from paifuser_lab.records import AttentionCost, Comparison, Record, SideBySide
from paifuser_lab.variant import apply
from paifuser_lab.variant.open import load
from paifuser_lab.workload import Workload

ANY_DROP = {"metric_drop": 1.0, "output_error": 100.0}  # losses are reported, not refused
KEEPS = (1.0, 0.25, 0.1)


class Experiment(Record):
    """The result of `python -m benchmarks experiment`: variants, savings, or shares of keys."""

    name: str
    machine: str
    comparisons: tuple[Comparison, ...] = ()
    promises: tuple[SideBySide, ...] = ()
    attention: tuple[AttentionCost, ...] = ()
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"{self.name} on {self.machine}"

    def table(self) -> list[dict[str, str]]:
        """A row for each variant, predicted saving or share."""
        rows = [
            {"model": comparison.workload, **row}
            for comparison in self.comparisons
            for row in comparison.table()
        ]
        rows += [
            {"model": pair.before, "name": pair.after, "note": pair.promise}
            for pair in self.promises
        ]
        rows += [{"model": cost.workload, **row} for cost in self.attention for row in cost.table()]
        keys = list(dict.fromkeys(key for row in rows for key in row))
        return [{key: row.get(key, "–") for key in keys} for row in rows] or [
            {"model": "nothing was measured"}
        ]

    @property
    def summary(self) -> str:
        """The failures, a line each."""
        return "\n".join(f"{name}: {why}" for name, why in self.failures.items())


Result = Comparison | SideBySide | AttentionCost


def bench(name: str, names: tuple[str, ...] = (), *, seconds: float = 20.0) -> Experiment:
    """Run one experiment on its own models, or on others; a failure is recorded."""
    if name not in EXPERIMENTS:
        raise MeasureError(f"'{name}' is not an experiment; there are {', '.join(EXPERIMENTS)}.")
    models, measure = EXPERIMENTS[name]
    results: list[Result] = []
    failures = measure_each(
        names or models, lambda model: results.extend(measure(load(model), seconds))
    )
    return Experiment(
        name=name,
        machine=machine_label(),
        comparisons=tuple(result for result in results if isinstance(result, Comparison)),
        promises=tuple(result for result in results if isinstance(result, SideBySide)),
        attention=tuple(result for result in results if isinstance(result, AttentionCost)),
        failures=failures,
    )


def _cut(work: Workload, seconds: float) -> Iterable[Result]:
    """Right after pruning, before any training: with the least-squares refit, and without."""
    rows: dict[str, Any] = {}
    for left in (0.25, 0.1):
        prune = {"to": {"parameters": left}}
        rows[f"{left:.0%}, repaired"] = Recipe([{"prune": prune}], limit=ANY_DROP)
        rows[f"{left:.0%}, as cut"] = Recipe([{"prune": {**prune, "repair": []}}], limit=ANY_DROP)
    yield compare(work, threads="each", seconds=seconds, **rows)


def _int4(work: Workload, seconds: float) -> Iterable[Result]:
    """Weights in int4: rounded afterwards, trained with learned step sizes, and with fixed ones."""
    rounded = Recipe([{"precision": {"default": "int4-weights"}}], limit=ANY_DROP)
    qat: dict[str, Any] = {"default": "int4-weights"}
    trained = Recipe([{"qat": qat}], limit=ANY_DROP)
    fixed = Recipe([{"qat": {**qat, "learn_steps": False}}], limit=ANY_DROP)
    rows: dict[str, Any] = {"rounded": rounded, "trained": trained, "trained, steps fixed": fixed}
    yield compare(work, threads="each", seconds=seconds, **rows)


def _allocation(work: Workload, seconds: float) -> Iterable[Result]:
    """A format for each layer within the size of int8 plus a tenth, beside the uniform formats."""
    int8 = Recipe([{"precision": {"default": "int8"}}], limit=ANY_DROP)
    int4 = {"default": "int4-weights"}
    rows: dict[str, Any] = {
        "int8": int8,
        "int4": Recipe([{"precision": int4}], limit=ANY_DROP),
        "int4, made up for": Recipe(
            [{"precision": {**int4, "compensate": ["rounding", "bias"]}}], limit=ANY_DROP
        ),
    }
    size = compare(work, int8, seconds=1.0, metric=False).rows[-1].size_bytes or 0
    planned = recipe_of(plan_precision(work, size_bytes=1.1 * size, seconds=3 * seconds))
    rows["plan_precision"] = Recipe(planned.steps, limit=ANY_DROP)
    yield compare(work, threads="each", seconds=seconds, **rows)


def _sums(work: Workload, seconds: float) -> Iterable[Result]:
    """int8 in ONNX Runtime with residual sums in fp32 and in int8, one thread each."""
    engine = {"backend": {"name": "onnxruntime", "threads": 1}}
    rows: dict[str, Any] = {
        "sums in fp32": Recipe([{"precision": {"default": "int8"}}, engine], limit=ANY_DROP),
        "sums in int8": Recipe(
            [{"precision": {"default": "int8", "sums": "int8"}}, engine], limit=ANY_DROP
        ),
    }
    yield compare(work, threads="each", seconds=seconds, metric=False, **rows)


def _promises(work: Workload, seconds: float) -> Iterable[Result]:
    """The predicted and the measured saving of each step that `explain` advises."""
    for reason in explain(profile(work, seconds=seconds)).advice:
        recipe = Recipe([reason.step or {}], limit=ANY_DROP)
        yield side_by_side(work, apply(work, recipe), predicted=reason, seconds=seconds)


def _attention(work: Workload, seconds: float) -> Iterable[Result]:
    """The error and the speed-up of attention to a part of the keys."""
    yield attention_cost(work, kind="topk", keeps=KEEPS, seconds=seconds)


Measure = Callable[[Workload, float], Iterable[Result]]
EXPERIMENTS: dict[str, tuple[tuple[str, ...], Measure]] = {
    "cut": (("resnet18-digits",), _cut),
    "int4": (("resnet18-digits-tiny",), _int4),
    "allocation": (("resnet18-digits",), _allocation),
    "sums": (("resnet18", "resnet50"), _sums),
    "promises": (("resnet18",), _promises),
    "attention": (("segvit-maps", "segvit-maps-256"), _attention),
}

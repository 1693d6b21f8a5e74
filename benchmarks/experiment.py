"""Small experiments behind single sentences of the pages, each with a name and a record.

`python -m benchmarks experiment NAME --json docs/measured/NAME.json` repeats one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from paifuser_lab.attention import attention_cost
from paifuser_lab.bench.runner import BenchRecord, Names, Seconds, measured_rows
from paifuser_lab.bench.text import times
from paifuser_lab.errors import MeasureError
from paifuser_lab.planner import plan_precision, recipe_of
from paifuser_lab.profiler import explain, profile, side_by_side
from paifuser_lab.records import AttentionCost, Comparison, SideBySide
from paifuser_lab.variant import apply
from paifuser_lab.variant.comparison import compare
from paifuser_lab.variant.open import load
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import Workload

ANY_DROP = {"metric_drop": 1.0, "output_error": 100.0}  # losses are reported, not refused
KEEPS = (1.0, 0.25, 0.1)


class Experiment(BenchRecord):
    """The result of `python -m benchmarks experiment`: variants, savings, or shares of keys."""

    caption = "{0.name} on {0.machine}"
    name: str
    comparisons: tuple[Comparison, ...] = ()
    promises: tuple[SideBySide, ...] = ()
    attention: tuple[AttentionCost, ...] = ()

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
        return [{key: row.get(key, "–") for key in keys} for row in rows] or super().table()

    @property
    def fewest_keys(self) -> list[str]:
        """What attention to the smallest share of the keys gained, and cost."""
        return [
            f"{cost.keeps[-1]:.0%} of the keys made a segmentation of "
            f"{max((layer.queries for layer in cost.sparse_layers), default=0):,} tokens "
            f"{times(speedup)} as fast ({cost.metric} {cost.dense_value:.3f} → "
            f"{cost.values[-1]:.3f})"
            for cost in self.attention
            if (speedup := cost.speedup(len(cost.keeps) - 1)) and cost.dense_value is not None
        ]


Result = Comparison | SideBySide | AttentionCost


def bench(
    name: Annotated[
        str, typer.Argument(help="cut, int4, allocation, sums, promises or attention.")
    ],
    names: Names = None,
    *,
    seconds: Seconds = 20.0,
) -> Experiment:
    """Repeat the measurement behind one sentence of the pages in docs/."""
    if name not in EXPERIMENTS:
        raise MeasureError(f"'{name}' is not an experiment; there are {', '.join(EXPERIMENTS)}.")
    models, measure = EXPERIMENTS[name]
    measured = measured_rows(names or models, lambda model: measure(load(model), seconds))
    results: tuple[Result, ...] = measured["rows"]
    return Experiment(
        name=name,
        comparisons=tuple(result for result in results if isinstance(result, Comparison)),
        promises=tuple(result for result in results if isinstance(result, SideBySide)),
        attention=tuple(result for result in results if isinstance(result, AttentionCost)),
        failures=measured["failures"],
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
        name: Recipe([{"precision": {"default": "int8", "sums": sums}}, engine], limit=ANY_DROP)
        for name, sums in (("sums in fp32", "numbers"), ("sums in int8", "exported"))
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
    "sums": (("resnet18", "mobilenetv2", "unet"), _sums),
    "promises": (("resnet18",), _promises),
    "attention": (("segvit-maps", "segvit-maps-256"), _attention),
}

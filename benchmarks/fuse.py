"""The speed-up of fused layers and of fused window attention, beside compiled torch."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from paifuser_lab.bench.runner import BenchRecord, Names, Seconds, measured_rows
from paifuser_lab.bench.text import number, ratio, times
from paifuser_lab.engines import available_engines
from paifuser_lab.records import Comparison, Measurement
from paifuser_lab.variant.comparison import compare
from paifuser_lab.variant.open import load
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import Workload

from .builds import BuildBench
from .builds import bench as bench_builds

MODELS = ("resnet18", "resnet50", "mobilenetv2", "convnext-t", "vit-s", "swin-t", "bert-base")
FROZEN, REPLAYED = "inductor frozen", "replay"
STEPS = {"fold batch-norm": "fold", "channels last": "layout", "attention in windows": "attention"}
IN_ONE_PASS = {"attention": {"kind": "window", "even_if_slower": True}}


class FuseBench(BenchRecord):
    """The result of `python -m benchmarks fuse`."""

    caption = "latency in ms on {0.machine} (× = speed-up over the faster eager baseline)"
    comparisons: tuple[Comparison, ...] = ()

    def table(self) -> list[dict[str, str]]:
        """A row for each model: its fastest recipe with `fuse`, its fastest that is also replayed,
        and compiled.
        """
        return [_row(comparison) for comparison in self.comparisons] or super().table()

    @property
    def failed(self) -> list[str]:
        """The failures, a line each."""
        return super().failed + [
            f"{comparison.workload}, {row.name}: {row.failure}"
            for comparison in self.comparisons
            for row in comparison.rows
            if row.failure
        ]

    @property
    def errors(self) -> tuple[float, float]:
        """The largest error of a recipe with `fuse`, and of Inductor."""
        rows = [row for comparison in self.comparisons for row in comparison.rows]
        fused = [row.relative_error or 0 for row in rows if "fuse" in row.steps]
        frozen = [row.relative_error or 0 for row in rows if row.name == FROZEN]
        return max(fused, default=0), max(frozen, default=0)


def bench(
    names: Names = None,
    *,
    seconds: Seconds = 30.0,
    batch: Annotated[int | None, typer.Option(help="Examples at once.", min=1)] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    builds: Annotated[
        bool,
        typer.Option(
            "--builds", help="Instead, how long building takes, with caches empty and filled."
        ),
    ] = False,
) -> FuseBench | BuildBench:
    """Time each model with fused layers and fused attention against eager and compiled torch."""
    if builds:
        return bench_builds(names)

    def compared(name: str) -> list[Comparison]:
        work = load(name, batch=batch, device=device)
        return [compare(work, *_recipes(work), threads="each", seconds=seconds, metric=False)]

    measured = measured_rows(names or MODELS, compared)
    return FuseBench(comparisons=measured["rows"], failures=measured["failures"])


def _recipes(work: Workload) -> list[Recipe]:
    """With the steps, with their prerequisites alone, replayed, and compiled."""
    replay = {"backend": "replay"}
    has_images = any(tensor.ndim == 4 for tensor in work.inputs.tensors)
    compiled = {"backend": {"name": "inductor", "freeze": work.device.type == "cpu"}}
    alone: list[list[Any]] = [[], *([["fold", "layout"]] if has_images else [])]
    alone += [[IN_ONE_PASS]] if "swin" in work.name else []
    fused = [[*steps, "fuse"] for steps in alone]
    recipes: list[list[Any]] = [
        *(steps for steps in alone if steps),
        *fused,
        *([*steps, replay] for steps in fused),
    ]
    recipes += [[compiled]] if "inductor" in available_engines() else []
    return [Recipe(steps) for steps in recipes]


def _row(comparison: Comparison) -> dict[str, str]:
    fused, replayed = fastest(comparison), fastest(comparison, is_replayed=True)
    steps = fused.steps if fused else ()
    timed = [row for row in comparison.rows if row.latency_ms]
    compiled = next((row for row in timed if row.name == FROZEN), None)
    names = ", ".join(f"`{STEPS.get(step, step)}`" for step in steps)
    return {
        "model": comparison.workload,
        "eager": number(comparison[comparison.baseline].latency_ms or 0),
        "with `fuse`": f"{names}: {_cell(fused)}" if fused else "–",
        "and replayed": _cell(replayed),
        "Inductor, frozen": _cell(compiled),
        "against Inductor": ratio((replayed.speedup or 0) / (compiled.speedup or 1))
        if compiled and replayed
        else "–",
    }


def fastest(comparison: Comparison, *, is_replayed: bool = False) -> Measurement | None:
    """The fastest row with `fuse`, whose operators are replayed or not."""
    rows = [
        row
        for row in comparison.rows
        if row.latency_ms and "fuse" in row.steps and (REPLAYED in row.steps) is is_replayed
    ]
    return min(rows, key=lambda row: row.latency_ms or 0.0, default=None)


def _cell(row: Measurement | None) -> str:
    if row is None:
        return "–"
    return f"{number(row.latency_ms or 0)}, {times(row.speedup or 0, row.speedup_interval)}"

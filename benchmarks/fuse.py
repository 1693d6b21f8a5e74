"""The speed-up of fused layers and of fused window attention: each model unchanged, with these
steps, and compiled.
"""

from __future__ import annotations

from paifuser_lab.bench.each import measure_each
from paifuser_lab.comparison import compare
from paifuser_lab.engines import available_engines
from paifuser_lab.machine import machine_label
from paifuser_lab.recipe import Recipe
from paifuser_lab.records import Comparison, Record
from paifuser_lab.variant.open import load
from paifuser_lab.workload import Workload

MODELS = ("resnet18", "resnet50", "mobilenetv2", "convnext-t", "vit-s", "swin-t", "bert-base")
IN_ONE_PASS = {"attention": {"kind": "window", "even_if_slower": True}}


class FuseBench(Record):
    """The result of `python -m benchmarks fuse`."""

    machine: str
    comparisons: tuple[Comparison, ...] = ()
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return (
            f"latency in ms on {self.machine} (× = speed-up over the faster eager baseline, its 95 "
            "% interval, and the output error)"
        )

    def table(self) -> list[dict[str, str]]:
        """A row for each model and recipe."""
        rows = [row for comparison in self.comparisons for row in _rows(comparison)]
        return rows or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """The failures, a line each."""
        failed = dict(self.failures) | {
            f"{comparison.workload}, {row}": why
            for comparison in self.comparisons
            for row, why in _failed(comparison)
        }
        return "\n".join(f"{name}: {why}" for name, why in failed.items())


def bench(
    names: tuple[str, ...], *, batch: int | None, device: str | None, seconds: float
) -> FuseBench:
    """Measure models one after another; a failure is recorded and the next one is measured."""
    comparisons: list[Comparison] = []

    def measure(name: str) -> None:
        work = load(name, batch=batch, device=device)
        comparisons.append(
            compare(work, *_recipes(work), threads="each", seconds=seconds, metric=False)
        )

    failures = measure_each(names or MODELS, measure)
    return FuseBench(machine=machine_label(), comparisons=tuple(comparisons), failures=failures)


def _recipes(work: Workload) -> list[Recipe]:
    """With the steps, with their prerequisites alone, and compiled."""
    has_images = any(tensor.ndim == 4 for tensor in work.inputs.tensors)
    compiled = {"backend": {"name": "inductor", "freeze": work.device.type == "cpu"}}
    recipes = [Recipe(["fuse"])]
    recipes += (
        [Recipe(["fold", "layout"]), Recipe(["fold", "layout", "fuse"])] if has_images else []
    )
    recipes += [Recipe([IN_ONE_PASS]), Recipe([IN_ONE_PASS, "fuse"])] if "swin" in work.name else []
    return [*recipes, *([Recipe([compiled])] if "inductor" in available_engines() else [])]


def _rows(comparison: Comparison) -> list[dict[str, str]]:
    base = comparison[comparison.baseline]
    rows = [
        {
            "model": comparison.workload,
            "recipe": base.name,
            "ms": f"{base.latency_ms:.3g} ({base.threads}t)",
        }
    ]
    for candidate in comparison.rows:
        is_baseline = candidate.name == comparison.baseline
        if is_baseline or candidate.latency_ms is None or candidate.speedup is None:
            continue
        row = {
            "model": comparison.workload,
            "recipe": candidate.name,
            "ms": f"{candidate.latency_ms:.3g} ({candidate.threads}t)",
        }
        interval = (
            " ({:.2f}–{:.2f})".format(*candidate.speedup_interval)
            if candidate.speedup_interval
            else ""
        )
        rows.append(
            row
            | {
                "times as fast": f"{candidate.speedup:.2f} ×{interval}",
                "error": f"{candidate.relative_error or 0:.1e}",
            }
        )
    return rows


def _failed(comparison: Comparison) -> list[tuple[str, str]]:
    return [(row.name, row.failure) for row in comparison.rows if row.failure]

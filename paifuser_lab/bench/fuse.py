"""What it brings to run layers as one, and attention in one pass: each model as it is, with these
steps, and compiled.
"""

from __future__ import annotations

from ..comparison import compare
from ..engines import available_engines
from ..errors import PaifuserError
from ..machine import hardware
from ..progress import progress
from ..recipe import Recipe
from ..records import Comparison, Record
from ..variant.open import load
from ..workload import Workload

MODELS = ("resnet18", "resnet50", "mobilenetv2", "convnext-t", "vit-s", "swin-t", "bert-base")
IN_ONE_PASS = {"attention": {"kind": "window", "even_if_slower": True}}


class FuseBench(Record):
    """What `paifuser-lab bench fuse` measured."""

    machine: str
    comparisons: tuple[Comparison, ...] = ()
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """What the table shows."""
        return (
            f"latency in ms on {self.machine} (× = speed-up over the faster eager baseline, its 95 "
            "% interval, and the output error)"
        )

    def table(self) -> list[dict[str, str]]:
        """A row a model and recipe."""
        rows = [row for one in self.comparisons for row in _rows(one)]
        return rows or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """What failed, a line each."""
        failed = dict(self.failures) | {
            f"{one.workload}, {row}": why for one in self.comparisons for row, why in _failed(one)
        }
        return "\n".join(f"{name}: {why}" for name, why in failed.items())


def bench(
    names: tuple[str, ...], *, batch: int | None, device: str | None, seconds: float
) -> FuseBench:
    """Measure models one after another; one that fails is noted and the others go on."""
    comparisons: list[Comparison] = []
    failures: dict[str, str] = {}
    chosen = names or MODELS
    with progress("models", len(chosen)) as shown:
        for name in chosen:
            try:
                work = load(name, batch=batch, device=device)
                comparisons.append(compare(work, *_recipes(work), seconds=seconds, metric=False))
            except PaifuserError as error:
                failures[name] = str(error)
            except KeyboardInterrupt:
                break
            shown.advance(doing=name)
    return FuseBench(machine=hardware().name, comparisons=tuple(comparisons), failures=failures)


def _recipes(work: Workload) -> list[Recipe]:
    """With the steps, without them what they stand on, and what a compiler makes of the model."""
    has_images = any(tensor.ndim == 4 for tensor in work.inputs.tensors)
    compiled = {"backend": {"name": "inductor", "freeze": work.device.type == "cpu"}}
    recipes = [Recipe(["fuse"])]
    recipes += (
        [Recipe(["fold", "layout"]), Recipe(["fold", "layout", "fuse"])] if has_images else []
    )
    recipes += [Recipe([IN_ONE_PASS]), Recipe([IN_ONE_PASS, "fuse"])] if "swin" in work.name else []
    return [*recipes, *([Recipe([compiled])] if "inductor" in available_engines() else [])]


def _rows(found: Comparison) -> list[dict[str, str]]:
    base = found[found.baseline]
    rows = [
        {
            "model": found.workload,
            "recipe": base.name,
            "ms": f"{base.latency_ms:.3g} ({base.threads}t)",
        }
    ]
    for one in found.rows:
        if one.name == found.baseline or one.latency_ms is None or one.speedup is None:
            continue
        row = {
            "model": found.workload,
            "recipe": one.name,
            "ms": f"{one.latency_ms:.3g} ({one.threads}t)",
        }
        interval = " ({:.2f}–{:.2f})".format(*one.speedup_interval) if one.speedup_interval else ""
        rows.append(
            row
            | {
                "times as fast": f"{one.speedup:.2f} ×{interval}",
                "error": f"{one.relative_error or 0:.1e}",
            }
        )
    return rows


def _failed(found: Comparison) -> list[tuple[str, str]]:
    return [(one.name, one.failure) for one in found.rows if one.failure]

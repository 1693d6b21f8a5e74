"""Build times of our steps and of Inductor, with an empty cache and with a filled one.

Every build runs in its own process, so that nothing is left over from the one before: the first
with an empty cache folder (TORCHINDUCTOR_CACHE_DIR for Inductor, PAIFUSER_CACHE for ours), the
second with what the first left there. The two sides take turns. Starting Python, importing torch
and creating the model are not counted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import ClassVar, Literal

from paifuser_lab.bench.runner import BenchRecord, Columns, measured_rows
from paifuser_lab.records import Record
from paifuser_lab.variant import apply
from paifuser_lab.variant.open import load
from paifuser_lab.variant.recipe import Recipe

from .child import printed

MODELS = ("resnet18", "resnet50", "mobilenetv2", "vit-s", "bert-base")
ROUNDS = 3
TIMEOUT_S = 900.0
Side = Literal["fuse", "inductor"]
SIDES: tuple[Side, ...] = ("fuse", "inductor")
CACHE = {"fuse": "PAIFUSER_CACHE", "inductor": "TORCHINDUCTOR_CACHE_DIR"}
PREFIX = "build_s="  # of the line that the child process prints


class BuildTime(Record):
    """One side's builds of one model, in s, a number per round."""

    model: str
    side: Side
    steps: tuple[str, ...]
    cold_s: tuple[float, ...]
    warm_s: tuple[float, ...]

    @property
    def medians(self) -> str:
        """With an empty cache and with a filled one."""
        return f"{median(self.cold_s):.1f} and {median(self.warm_s):.1f} s"


class BuildBench(BenchRecord):
    """The result of `python -m benchmarks fuse --builds`."""

    caption = "seconds until a model is built on {0.machine}, median of {0.rounds} rounds"
    rounds: int
    rows: tuple[BuildTime, ...]
    columns: ClassVar[Columns] = {
        "model": "model",
        "recipe": lambda row: " → ".join(row.steps),
        "empty cache": lambda row: f"{median(row.cold_s):.1f}",
        "filled cache": lambda row: f"{median(row.warm_s):.1f}",
    }

    @property
    def pairs(self) -> dict[str, tuple[BuildTime, BuildTime]]:
        """Ours and Inductor's builds of each model that has both."""
        rows = {(row.model, row.side): row for row in self.rows}
        return {
            model: (rows[model, "fuse"], rows[model, "inductor"])
            for model in dict.fromkeys(row.model for row in self.rows)
            if (model, "fuse") in rows and (model, "inductor") in rows
        }


def bench(names: Sequence[str] | None = None, *, rounds: int = ROUNDS) -> BuildBench:
    """Build models one after another."""
    return BuildBench(
        rounds=rounds, **measured_rows(names or MODELS, lambda name: _built(name, rounds))
    )


def _built(name: str, rounds: int) -> Iterator[BuildTime]:
    """Both sides in turn: with empty caches first, then with those that were just filled."""
    recipes = {side: recipe_of(side, name) for side in SIDES}
    cold: dict[Side, list[float]] = {side: [] for side in SIDES}
    warm: dict[Side, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for seconds in (cold, warm):
                for side in SIDES:
                    seconds[side].append(build_in_child(name, side, Path(folder) / side))
    for side in SIDES:
        steps = tuple(step.label for step in recipes[side])
        yield BuildTime(
            model=name, side=side, steps=steps, cold_s=tuple(cold[side]), warm_s=tuple(warm[side])
        )


def recipe_of(side: Side, name: str) -> Recipe:
    """The recipe of a side for a model, as in the benchmark of latency."""
    work = load(name)
    if side == "inductor":
        return Recipe([{"backend": {"name": "inductor", "freeze": True}}])
    has_images = any(tensor.ndim == 4 for tensor in work.inputs.tensors)
    return Recipe([*(["fold", "layout"] if has_images else []), "fuse", {"backend": "replay"}])


def build_in_child(name: str, side: Side, cache: Path) -> float:
    """Seconds of one build in a fresh process with this cache folder."""
    code = f"from benchmarks.builds import print_build_time; print_build_time({name!r}, {side!r})"
    lines = printed(
        f"Building {name} by {side}", ["-c", code], limit_s=TIMEOUT_S, **{CACHE[side]: str(cache)}
    )
    return float(next(line for line in lines if line.startswith(PREFIX)).removeprefix(PREFIX))


def print_build_time(name: str, side: Side) -> None:
    """In the child process: build once and print the seconds."""
    work, recipe = load(name), recipe_of(side, name)
    work.output()  # the cost of torch's first call in a process is not part of the build
    start = time.perf_counter()
    variant = apply(work, recipe)
    variant.model(*work.inputs.args, **work.inputs.kwargs)
    sys.stdout.write(f"{PREFIX}{time.perf_counter() - start}\n")

"""Build times of our steps and of Inductor, with an empty cache and with a filled one.

Every build runs in its own process, so that nothing is left over from the one before: the first
with an empty cache folder (TORCHINDUCTOR_CACHE_DIR for Inductor, PAIFUSER_CACHE for ours), the
second with what the first left there. The two sides take turns. Starting Python, importing torch
and creating the model are not counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Literal

from paifuser_lab.bench.each import measure_each
from paifuser_lab.errors import MeasureError
from paifuser_lab.machine import machine_label
from paifuser_lab.recipe import Recipe
from paifuser_lab.records import Record
from paifuser_lab.variant import apply
from paifuser_lab.variant.open import load

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


class BuildBench(Record):
    """The result of `python -m benchmarks fuse --builds`."""

    machine: str
    rounds: int
    rows: tuple[BuildTime, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return (
            f"seconds until a model is built, on {self.machine}, the median of {self.rounds} rounds"
        )

    def table(self) -> list[dict[str, str]]:
        """A row for each model and side."""
        rows = [
            {
                "model": row.model,
                "recipe": " → ".join(row.steps),
                "empty cache": f"{median(row.cold_s):.1f}",
                "filled cache": f"{median(row.warm_s):.1f}",
            }
            for row in self.rows
        ]
        return rows or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """The failures, a line each."""
        return "\n".join(f"{name}: {why}" for name, why in self.failures.items())


def bench(names: tuple[str, ...] = (), *, rounds: int = ROUNDS) -> BuildBench:
    """Build models one after another; a failure is recorded and the next one is built."""
    rows: list[BuildTime] = []
    failures = measure_each(names or MODELS, lambda name: rows.extend(_built(name, rounds)))
    return BuildBench(machine=machine_label(), rounds=rounds, rows=tuple(rows), failures=failures)


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
    return Recipe(["fold", "layout", "fuse"] if has_images else ["fuse"])


def build_in_child(name: str, side: Side, cache: Path) -> float:
    """Seconds of one build in a fresh process with this cache folder."""
    code = f"from benchmarks.builds import print_build_time; print_build_time({name!r}, {side!r})"
    environment = os.environ | {CACHE[side]: str(cache)}
    command = [sys.executable, "-c", code]
    try:
        process = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasureError(
            f"Building {name} by {side} took more than {TIMEOUT_S:.0f} s; nothing is recorded for "
            "it."
        ) from error
    times = [
        line.removeprefix(PREFIX) for line in process.stdout.splitlines() if line.startswith(PREFIX)
    ]
    if process.returncode or not times:
        last: Any = (process.stderr.strip().splitlines() or ["no output"])[-1]
        raise MeasureError(f"Building {name} by {side} failed in its process: {last}")
    return float(times[-1])


def print_build_time(name: str, side: Side) -> None:
    """In the child process: build once and print the seconds."""
    work, recipe = load(name), recipe_of(side, name)
    work.output()  # the cost of torch's first call in a process is not part of the build
    start = time.perf_counter()
    variant = apply(work, recipe)
    variant.model(*work.inputs.args, **work.inputs.kwargs)
    sys.stdout.write(f"{PREFIX}{time.perf_counter() - start}\n")

"""How long building takes, by our steps and by Inductor, with an empty cache and with a filled one.

Every build is a process of its own, so that nothing is left over from the one before: the first
with an empty cache folder (TORCHINDUCTOR_CACHE_DIR for Inductor, PAIFUSER_CACHE for ours), the
second with what the first left there. The two sides take turns. Starting Python, importing torch
and making the model are not counted.
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

from ..errors import MeasureError, PaifuserError
from ..machine import hardware
from ..progress import progress
from ..recipe import Recipe
from ..records import Record
from ..variant import apply
from ..variant.open import load

MODELS = ("resnet18", "resnet50", "mobilenetv2", "vit-s", "bert-base")
ROUNDS = 3
PATIENCE_S = 900.0
Side = Literal["fuse", "inductor"]
SIDES: tuple[Side, ...] = ("fuse", "inductor")
CACHE = {"fuse": "PAIFUSER_CACHE", "inductor": "TORCHINDUCTOR_CACHE_DIR"}
ANSWER = "build_s="


class BuildTime(Record):
    """One side's builds of one model, in s, a number a round."""

    model: str
    side: Side
    steps: tuple[str, ...]
    cold_s: tuple[float, ...]
    warm_s: tuple[float, ...]


class BuildBench(Record):
    """What `paifuser-lab bench fuse --builds` measured."""

    machine: str
    rounds: int
    rows: tuple[BuildTime, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """What the table shows."""
        return (
            f"seconds until a model is built, on {self.machine}, the median of {self.rounds} rounds"
        )

    def table(self) -> list[dict[str, str]]:
        """A row a model and side."""
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
        """What failed, a line each."""
        return "\n".join(f"{name}: {why}" for name, why in self.failures.items())


def bench(names: tuple[str, ...] = (), *, rounds: int = ROUNDS) -> BuildBench:
    """Build models one after another; one that fails is noted and the others go on."""
    rows: list[BuildTime] = []
    failures: dict[str, str] = {}
    chosen = names or MODELS
    with progress("models", len(chosen)) as shown:
        for name in chosen:
            try:
                rows += _built(name, rounds)
            except PaifuserError as error:
                failures[name] = str(error)
            except KeyboardInterrupt:
                break
            shown.advance(doing=name)
    return BuildBench(machine=hardware().label, rounds=rounds, rows=tuple(rows), failures=failures)


def _built(name: str, rounds: int) -> Iterator[BuildTime]:
    """Both sides in turn: empty caches first, then those that were just filled."""
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
    """What a side does to a model: the same recipes as in the bench of their speed."""
    work = load(name)
    if side == "inductor":
        return Recipe([{"backend": {"name": "inductor", "freeze": True}}])
    has_images = any(tensor.ndim == 4 for tensor in work.inputs.tensors)
    return Recipe(["fold", "layout", "fuse"] if has_images else ["fuse"])


def build_in_child(name: str, side: Side, cache: Path) -> float:
    """Seconds of one build in a fresh process whose cache is this folder."""
    code = f"from paifuser_lab.bench.builds import tell; tell({name!r}, {side!r})"
    environment = os.environ | {CACHE[side]: str(cache)}
    command = [sys.executable, "-c", code]
    try:
        ended = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasureError(
            f"Building {name} by {side} took more than {PATIENCE_S:.0f} s; nothing is recorded of "
            "it."
        ) from error
    answers = [
        line.removeprefix(ANSWER) for line in ended.stdout.splitlines() if line.startswith(ANSWER)
    ]
    if ended.returncode or not answers:
        last: Any = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise MeasureError(f"Building {name} by {side} failed in its process: {last}")
    return float(answers[-1])


def tell(name: str, side: Side) -> None:
    """In the child: build once and print the seconds."""
    work, recipe = load(name), recipe_of(side, name)
    work.output()  # what torch does at a process's first call is not of the build
    began = time.perf_counter()
    variant = apply(work, recipe)
    variant.model(*work.inputs.args, **work.inputs.kwargs)
    sys.stdout.write(f"{ANSWER}{time.perf_counter() - began}\n")

"""The whole compression of trained models: pruned in rounds with distillation between them, then
trained in int8; over several seeds.

Every figure is paired: a seed's compressed model against the same seed's original, on the same test
data and timed in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median, stdev
from typing import Any

from paifuser_lab.bench.each import measure_each
from paifuser_lab.comparison import compare
from paifuser_lab.errors import PaifuserError
from paifuser_lab.loading.load import load
from paifuser_lab.machine import machine_label
from paifuser_lab.recipe import Recipe
from paifuser_lab.recipe.recipe import gradually
from paifuser_lab.records import Comparison, Measurement, Record

MODEL = "resnet18-hard-digits"
GOALS = (0.18, 0.1, 0.05)
SEEDS = 5
BATCH = 64
STAGES = ("cut at once, nothing trained", "cut in rounds, distilled", "trained in int8")


class CompressedSeed(Record):
    """One seed of a model compressed to one share of its parameters: the original and each stage,
    measured in turn.
    """

    seed: int
    goal: float
    measured: Comparison


class CompressBench(Record):
    """The result of `python -m benchmarks compress`."""

    machine: str
    model: str
    batch: int
    recipe: str  # of the last seed, as YAML
    runs: tuple[CompressedSeed, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        seeds = len({run.seed for run in self.runs})
        return (
            f"{self.model} compressed, over {seeds} seeds, latency at batch {self.batch} on "
            f"{self.machine}"
        )

    def table(self) -> list[dict[str, str]]:
        """A row for each share and stage: means over the seeds, with the standard deviation of the
        paired difference.
        """
        rows = []
        for goal in sorted({run.goal for run in self.runs}, reverse=True):
            runs = [run.measured for run in self.runs if run.goal == goal]
            rows += [
                _row(goal, stage, runs)
                for stage in STAGES
                if all(_has(comparison, stage) for comparison in runs)
            ]
        return rows or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """The failures, a line each."""
        return "\n".join(f"{name}: {why}" for name, why in self.failures.items())


def bench(
    model: str = MODEL,
    *,
    goals: Sequence[float] = GOALS,
    seeds: int = SEEDS,
    epochs: int = 3,
    seconds: float = 5.0,
) -> CompressBench:
    """Compress seed after seed; a failure is recorded, an interrupt keeps the results so far."""
    runs: list[CompressedSeed] = []
    chosen = {f"seed {seed}, {goal:.0%}": (seed, goal) for seed in range(seeds) for goal in goals}

    def measure(name: str) -> None:
        seed, goal = chosen[name]
        runs.append(_compressed(model, seed, goal, _recipe(goal, epochs), seconds))

    failures = measure_each(tuple(chosen), measure)
    recipe = _recipe(goals[-1], epochs) if chosen else Recipe()
    return CompressBench(
        machine=machine_label(),
        model=model,
        batch=BATCH,
        recipe=recipe.to_text(),
        runs=tuple(runs),
        failures=failures,
    )


def _recipe(goal: float, epochs: int) -> Recipe:
    """Prune in rounds with distillation between them, distil longer at the end, then train in
    int8.
    """
    rounds = gradually(
        prune={"to": {"parameters": goal}}, between={"distill": {"epochs": epochs}}, rounds=3
    )
    distilled: Recipe = rounds + {
        "distill": {"epochs": 4 * epochs, "learning_rate": 3e-3, "blend": True}
    }
    return distilled + {"qat": {"epochs": epochs}}


def _compressed(
    model: str, seed: int, goal: float, recipe: Recipe, seconds: float
) -> CompressedSeed:
    work = load(model, seed=seed, batch=BATCH)
    variants: dict[str, Any] = dict(
        zip(
            STAGES,
            (Recipe([{"prune": {"to": {"parameters": goal}}}]), recipe[:-1], recipe),
            strict=True,
        )
    )
    measured = compare(work, threads="each", seconds=seconds, **variants)
    if failed := [row for row in measured.rows if row.failure]:
        raise PaifuserError(f"{failed[0].name}: {failed[0].failure}")
    return CompressedSeed(seed=seed, goal=goal, measured=measured)


def _has(comparison: Comparison, stage: str) -> bool:
    return any(row.name == stage for row in comparison.rows)


def _row(goal: float, stage: str, runs: Sequence[Comparison]) -> dict[str, str]:
    pairs = list(_pairs(stage, runs))
    lost = [100 * ((before.metric or 0.0) - (after.metric or 0.0)) for before, after in pairs]
    parameters = fmean(
        (after.parameters or 0) / (before.parameters or 1) for before, after in pairs
    )
    size = fmean((after.size_bytes or 0) / (before.size_bytes or 1) for before, after in pairs)
    spread = f" ± {stdev(lost):.1f}" if len(lost) > 1 else ""
    return {
        "parameters": f"{goal:.0%}",
        "stage": stage,
        "accuracy": f"{100 * fmean(after.metric or 0.0 for _, after in pairs):.2f} %",
        "points lost": f"{fmean(lost):+.2f}{spread}",
        "left of the parameters": f"{parameters:.1%}",
        "of the size": f"{size:.1%}",
        "times as fast": f"{median(after.speedup or 0.0 for _, after in pairs):.2f} ×",
    }


def _pairs(stage: str, runs: Sequence[Comparison]) -> Iterator[tuple[Measurement, Measurement]]:
    """The fastest baseline and the stage, of each run."""
    for comparison in runs:
        yield comparison[comparison.baseline], comparison[stage]

"""The whole compression of trained models: pruned in rounds with distillation between them, then
trained in int8; over several seeds.

Every figure is paired: a seed's compressed model against the same seed's original, on the same test
data and timed in turn.
"""

from __future__ import annotations

from statistics import fmean, median, stdev
from typing import Annotated, Any

import typer

from paifuser_lab.bench.runner import BenchRecord, measured_rows
from paifuser_lab.bench.text import minus, percent, times
from paifuser_lab.errors import PaifuserError
from paifuser_lab.records import Comparison, Measurement, Record
from paifuser_lab.variant.comparison import compare
from paifuser_lab.variant.load import load
from paifuser_lab.variant.recipe import Recipe, gradually

MODEL = "resnet18-hard-digits"
BATCH = 64
SECONDS = 5.0  # of each comparison
# the rows of a comparison, and how the table names them
STAGES = {
    "cut at once, nothing trained": "pruned once, not trained",
    "cut in rounds, distilled": "pruned in rounds, distilled",
    "trained in int8": "the same, then trained in int8 (QAT)",
}
ONCE, DISTILLED, INT8 = STAGES


class CompressedSeed(Record):
    """One seed of a model compressed to one share of its parameters: the original and each stage,
    measured in turn.
    """

    seed: int
    goal: float
    measured: Comparison


Pairs = list[tuple[Measurement, Measurement]]


class CompressBench(BenchRecord):
    """The result of `python -m benchmarks compress`."""

    model: str
    batch: int
    recipe: str  # of the last seed, as YAML
    runs: tuple[CompressedSeed, ...]

    @property
    def seeds(self) -> list[int]:
        """The seeds."""
        return sorted({run.seed for run in self.runs})

    @property
    def goals(self) -> list[float]:
        """The shares of the parameters, the largest first."""
        return sorted({run.goal for run in self.runs}, reverse=True)

    @property
    def bases(self) -> list[Measurement]:
        """The original of each run."""
        return [run.measured[run.measured.baseline] for run in self.runs]

    @property
    def accuracy(self) -> float:
        """The originals' on average."""
        return fmean(row.metric or 0 for row in self.bases)

    def pairs(self, goal: float, stage: str) -> Pairs:
        """The original and the stage, of each run."""
        measured = [run.measured for run in self.runs if run.goal == goal]
        return [(each[each.baseline], each[stage]) for each in measured]

    def gained_without(self, seed: int, stage: str) -> str:
        """The points gained at each share on average, if a seed is left out."""
        runs = tuple(run for run in self.runs if run.seed != seed)
        rest = self.model_copy(update={"runs": runs})
        return " and ".join(
            f"{-fmean(points_lost(rest.pairs(goal, stage)) or [0.0]):.1f}" for goal in self.goals
        )

    @property
    def at_largest(self) -> dict[str, float]:
        """The last stage at the largest share: means over the seeds, the median of the speed-up."""
        pairs = self.pairs(self.goals[0], INT8)
        return {
            "goal": self.goals[0],
            "count": len(pairs),
            "size": fmean((b.size_bytes or 0) / (a.size_bytes or 1) for a, b in pairs),
            "speedup": median(after.speedup or 0 for _, after in pairs),
            "before": fmean(before.metric or 0 for before, _ in pairs),
            "after": fmean(after.metric or 0 for _, after in pairs),
        }

    @property
    def title(self) -> str:
        return (
            f"{self.model} compressed, over {len(self.seeds)} seeds, latency at batch {self.batch} "
            f"on {self.machine}"
        )

    def table(self) -> list[dict[str, str]]:
        """A row for each share and stage: means over the seeds, with the standard deviation of the
        paired difference.
        """
        return [
            _row(self.pairs(goal, stage), label)
            for goal in self.goals
            for stage, label in STAGES.items()
        ] or super().table()


def bench(
    model: Annotated[str, typer.Argument(help="A trained model.")] = MODEL,
    *,
    goals: Annotated[
        str, typer.Option(help="Shares of the parameters that are to be left, separated by commas.")
    ] = "0.18,0.1,0.05",
    seeds: Annotated[int, typer.Option(help="How many seeds of the model.", min=1)] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of distillation in each round.", min=1)] = 3,
) -> CompressBench:
    """Prune, distil and train in int8, over several seeds: losses and gains, each against its own
    original.
    """
    shares = [float(goal) for goal in goals.split(",")]
    chosen = {f"seed {seed}, {goal:.0%}": (seed, goal) for seed in range(seeds) for goal in shares}

    def compressed(name: str) -> list[CompressedSeed]:
        seed, goal = chosen[name]
        return [_compressed(model, seed, goal, _recipe(goal, epochs))]

    measured = measured_rows(tuple(chosen), compressed)
    return CompressBench(
        model=model,
        batch=BATCH,
        recipe=_recipe(shares[-1], epochs).to_text(),
        runs=measured["rows"],
        failures=measured["failures"],
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


def _compressed(model: str, seed: int, goal: float, recipe: Recipe) -> CompressedSeed:
    work = load(model, seed=seed, batch=BATCH)
    variants: dict[str, Any] = dict(
        zip(
            STAGES,
            (Recipe([{"prune": {"to": {"parameters": goal}}}]), recipe[:-1], recipe),
            strict=True,
        )
    )
    measured = compare(work, threads="each", seconds=SECONDS, **variants)
    if failed := [row for row in measured.rows if row.failure]:
        raise PaifuserError(f"{failed[0].name}: {failed[0].failure}")
    return CompressedSeed(seed=seed, goal=goal, measured=measured)


def points_lost(pairs: Pairs) -> list[float]:
    """Points of the metric."""
    return [100 * ((before.metric or 0) - (after.metric or 0)) for before, after in pairs]


def _row(pairs: Pairs, label: str) -> dict[str, str]:
    lost = points_lost(pairs)
    deviation = f" ± {stdev(lost):.1f}" if len(lost) > 1 else ""
    faster = [after.speedup or 0 for _, after in pairs]
    parameters = ((after.parameters or 0) / (before.parameters or 1) for before, after in pairs)
    sizes = ((after.size_bytes or 0) / (before.size_bytes or 1) for before, after in pairs)
    return {
        "left of the parameters": percent(fmean(parameters)),
        "stage": label,
        "accuracy": percent(fmean(after.metric or 0 for _, after in pairs)),
        "points lost": minus(f"{fmean(lost):.1f}{deviation}"),
        "size": percent(fmean(sizes)),
        "speed-up": times(median(faster), (min(faster), max(faster))),
    }

"""`lab.search` against simpler ways to choose a recipe, in equal seconds: the best single step, a
format first and then an engine, points at random, and Optuna's TPE with nothing to begin from; and
in more time, every format in every engine, and combinations that show how well they are predicted.

Every way measures points of the search's own space, and ranks and judges them as the search does;
which points it measures differs. Each runs in a process of its own with empty caches of engines and
compilers. What the ways return is then timed together, in turn, and evaluated on all test data.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from math import isclose, prod
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import optuna
import typer
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState
from scipy.stats import spearmanr

from paifuser_lab._files import cache_folder
from paifuser_lab.bench.runner import BenchRecord, Names, check_known, measured_rows
from paifuser_lab.bench.text import listed, number, percent, spread, times
from paifuser_lab.errors import MeasureError
from paifuser_lab.machine import hardware
from paifuser_lab.planner import SearchOptions, SearchResult, searches
from paifuser_lab.planner.predict import in_order, parts_of
from paifuser_lab.planner.ranking import WIDE_OPEN, with_status
from paifuser_lab.planner.searching import Order
from paifuser_lab.planner.space import Point, Space
from paifuser_lab.records import Candidate, Record
from paifuser_lab.records.text import without_empty
from paifuser_lab.variant.comparison import compare
from paifuser_lab.variant.open import load
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.zoo import trained_names

from .child import printed

MODELS = ("resnet18-hard-digits", "segnet-streets", "segvit-maps")
DROPS = (1e-3, 0.1)  # the range that limits are drawn from
ROUNDS = 60  # in which the returned recipes are timed again
FEWEST_PAIRS = 5  # of a rank correlation
SUGGESTIONS = 1000  # of TPE, most of which were measured before
SHARES = (1 / 3, 2 / 3, 1.0)  # of the seconds, after which the volume is taken
MORE_S = 600.0  # past its seconds, for a process to begin and for its last candidate


def _single_steps(space: Space, rows: Mapping[Point, Candidate]) -> Iterable[Point]:
    """Each choice of one axis alone; what takes long to build comes last."""
    changes = in_order(space.singles(), "latency", lambda point: 0.0)
    return [change.point for change in changes if len(_changed(change.point)) <= 1]


def _format_then_engine(drop: float) -> Order:
    """Each format alone, then each engine with the fastest of them within the limit, if any."""
    options = SearchOptions(metric_drop=drop)

    def order(space: Space, rows: Mapping[Point, Candidate]) -> Iterator[Point]:
        yield from _possible(space, (Point(format=name) for name in space.axes["format"]))
        faster = {
            point: row.speedup or 0.0
            for point, row in rows.items()
            if row.word == "faster" and with_status(row, options, None).status == "measured"
        }
        best = max(faster, key=lambda point: faster[point], default=Point())
        engines = (Point(engine=name, format=best.format) for name in space.axes["engine"])
        yield from _possible(space, engines)

    return order


def _grid(space: Space, rows: Mapping[Point, Candidate]) -> Iterator[Point]:
    """Every format in every engine: the best of them is what the search's regret is taken from."""
    pairs = product(space.axes["engine"], space.axes["format"])
    return _possible(space, (Point(engine=engine, format=name) for engine, name in pairs))


def _combined(seed: int) -> Order:
    """What is soon built alone, then combinations of what could be measured, at random."""

    def order(space: Space, rows: Mapping[Point, Candidate]) -> Iterator[Point]:
        yield from (change.point for change in space.singles() if not change.is_slow)
        known = {point for point, row in rows.items() if row.status == "measured"}
        points = [each for each in space.points() if each not in known]
        points = [each for each in points if known.issuperset(parts_of(each))]
        yield from random.Random(seed).sample(points, len(points))

    return order


def _at_random(seed: int) -> Order:
    """Points drawn uniformly, none of them twice."""

    def order(space: Space, rows: Mapping[Point, Candidate]) -> Iterable[Point]:
        points = list(space.points())
        return random.Random(seed).sample(points, len(points))

    return order


def _by_tpe(seed: int) -> Order:
    """What Optuna's TPE suggests, knowing only what it has measured."""

    def order(space: Space, rows: Mapping[Point, Candidate]) -> Iterator[Point]:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        choices: dict[str, BaseDistribution] = {
            axis: CategoricalDistribution(values) for axis, values in space.axes.items()
        }
        for _ in range(SUGGESTIONS):
            trial = study.ask(choices)
            point = Point(**trial.params)
            if point not in rows:
                yield from _possible(space, [point])
            row = rows.get(point)
            if row is None or not row.speedup:
                study.tell(trial, state=TrialState.FAIL)
            else:
                study.tell(trial, [1 / row.speedup, row.loss or 0.0])

    return order


def _changed(point: Point) -> set[str]:
    return {axis for axis, value in point.values.items() if value != getattr(Point(), axis)}


def _possible(space: Space, points: Iterable[Point]) -> Iterator[Point]:
    """Those that are a recipe; of the unchanged model, one that folds."""
    folds = bool(space.folding)
    return (point for point in points if space.is_possible(point) and (folds or _changed(point)))


# by the seed and the limit; None leaves the choice to the search
OURS = "lab.search"
GRID = "every format in every engine"
COMBINED = "parts, then combinations at random"
TIMES = {GRID: 10, COMBINED: 4}  # their seconds over those of the others; run once a model
WAYS: dict[str, Callable[[int, float], Order | None]] = {
    OURS: lambda seed, drop: None,
    "best single step": lambda seed, drop: _single_steps,
    "format then engine": lambda seed, drop: _format_then_engine(drop),
    "random search": lambda seed, drop: _at_random(seed),
    "TPE": lambda seed, drop: _by_tpe(seed),
    GRID: lambda seed, drop: _grid,
    COMBINED: lambda seed, drop: _combined(seed),
}


class SearchedRow(Record):
    """What one way returned: its speed-up over eager and its loss, measured again beside the
    others, and what it took.
    """

    model: str
    seed: int
    way: str
    metric_drop: float  # that was allowed
    steps: tuple[str, ...]
    speedup: float
    interval: tuple[float, float]
    loss: float  # of the metric, on all test data
    trials: int
    seconds: float
    # of each candidate that was measured: when, its speed-up and its loss, in the search's words
    measured: tuple[tuple[float, float, float], ...] = ()
    # of the combinations at random: the speed-up that was predicted, and the measured one
    predicted: tuple[tuple[float, float], ...] = ()

    def volume(self, share: float) -> float:
        """The share of all that is faster within the limit, by time and loss, which some candidate
        dominates after a share of the seconds.
        """
        until = share * self.seconds
        points = sorted(
            (1 / speedup, max(loss, 0.0))
            for at, speedup, loss in self.measured
            if at <= until and speedup > 1
        )
        volume, least = 0.0, self.metric_drop
        for ratio, loss in points:
            volume += (1 - ratio) * max(least - loss, 0.0)
            least = min(least, loss)
        return volume / self.metric_drop

    @property
    def is_past(self) -> bool:
        """Whether it loses more than was allowed."""
        return not self.loss <= self.metric_drop


class SearchBench(BenchRecord):
    """The result of `python -m benchmarks search`."""

    caption = "recipes found in {0.seconds:g} s on {0.machine}, timed again in turn"
    seconds: float
    seeds: int
    rows: tuple[SearchedRow, ...] = ()

    def table(self) -> list[dict[str, str]]:
        """A row for each model and way: means over seeds, with their ranges."""
        rows_of = [
            {
                "model": model,
                "way": way,
                "× over eager": spread([row.speedup for row in rows]),
                "points lost": spread([100 * row.loss for row in rows]),
                "past its limit": f"{sum(row.is_past for row in rows)} of {len(rows)}",
                "volume": " → ".join(
                    number(fmean(row.volume(share) for row in rows)) for share in SHARES
                )
                if rows[0].measured
                else "",
                "trials": spread([row.trials for row in rows]),
                "seconds": spread([row.seconds for row in rows]),
            }
            for model in dict.fromkeys(row.model for row in self.rows)
            for way in WAYS
            if (rows := [row for row in self.rows if (row.model, row.way) == (model, way)])
        ]
        return without_empty(rows_of) or super().table()

    def beside(self, way: str) -> str:
        """The speed of the search's recipes over those of another way, and where it is certain."""
        others = {(row.model, row.seed): row for row in self.rows if row.way == way}
        pairs = [
            (row, others[row.model, row.seed])
            for row in self.rows
            if row.way == OURS and (row.model, row.seed) in others
        ]
        ratios = [ours.speedup / other.speedup for ours, other in pairs]
        faster = sum(ours.interval[0] > other.interval[1] for ours, other in pairs)
        slower = sum(ours.interval[1] < other.interval[0] for ours, other in pairs)
        mean = prod(ratios) ** (1 / len(ratios))
        return (
            f"{times(mean, (min(ratios), max(ratios)))} as fast as that of {way}, certainly faster "
            f"in {faster} and slower in {slower} of {len(pairs)}"
        )

    @property
    def sentences(self) -> list[str]:
        """The search beside each other way, and how often each was past a limit."""
        if not self.rows:
            return []
        known = {row.way for row in self.rows}  # a record may be older than a way
        beside = "; ".join(self.beside(way) for way in WAYS if way in known - {OURS})
        rows = {way: [row for row in self.rows if row.way == way] for way in WAYS if way in known}
        past = [
            f"{way} {sum(row.is_past for row in rows[way])} of {len(rows[way])}" for way in rows
        ]
        drops = [row.metric_drop for row in self.rows]
        return [
            f"The recipe of {OURS} is {beside}.",
            f"Past their limits of {percent(min(drops))} to {percent(max(drops))}: {listed(past)}.",
            *self._predictions(),
        ]

    def _predictions(self) -> list[str]:
        # of a part nothing is predicted before it is measured
        every = [pair for row in self.rows for pair in row.predicted]
        pairs = [pair for pair in every if not isclose(pair[0], 1.0)]
        if len(pairs) < FEWEST_PAIRS:
            return []
        correlation = float(spearmanr(*zip(*pairs, strict=True)).statistic)
        return [
            f"Speed-ups of {len(pairs)} combinations, predicted and measured: rank correlation "
            f"{correlation:.2f}."
        ]

    @property
    def summary(self) -> str:
        """The search beside each other way, searches past a limit, and the failures."""
        return "\n".join([*self.sentences, *self.failed])


def bench(
    names: Names = None,
    *,
    seconds: Annotated[float, typer.Option(help="Of each search.", min=0.1)] = 60.0,
    seeds: Annotated[int, typer.Option(help="Searches of each model in each way.", min=1)] = 3,
) -> SearchBench:
    """Search in the same seconds as lab.search, one step at a time, format before engine, and at
    random: speed-up measured again in turn, loss, trials.
    """
    check_known(names or (), trained_names())
    hardware()  # is measured once, and counts for none of the searches
    due = {
        f"{model}, seed {seed}": (model, seed) for model in names or MODELS for seed in range(seeds)
    }
    measured = measured_rows(list(due), lambda name: _searched(*due[name], seconds), "seeds")
    return SearchBench(seconds=seconds, seeds=seeds, **measured)


def _searched(model: str, seed: int, seconds: float) -> list[SearchedRow]:
    """Search in every way within one limit, in random order; time what they return in turn."""
    draw = random.Random(seed)
    ways = [way for way in WAYS if way not in TIMES or not seed]
    drop = float(f"{DROPS[0] * (DROPS[1] / DROPS[0]) ** draw.random():.2g}")
    found = {
        way: found_in_child(model, way, seed, drop, seconds * TIMES.get(way, 1))
        for way in draw.sample(ways, len(ways))
    }
    work = load(model)
    recipes: dict[str, Any] = {
        way: Recipe(found[way].best.steps, limit=WIDE_OPEN) for way in ways
    }  # a loss is reported, not refused
    compared = compare(work, rounds=ROUNDS, seconds=seconds, **recipes)
    before = compared[compared.baseline].metric
    rows = []
    for way, result in found.items():
        again = compared[way]
        if again.speedup is None or again.metric is None or before is None:
            raise MeasureError(f"the recipe of {way} cannot be timed again: {again.failure}")
        rows.append(
            SearchedRow(
                model=model,
                seed=seed,
                way=way,
                metric_drop=drop,
                steps=tuple(step.label for step in recipes[way].steps),
                speedup=again.speedup,
                interval=again.speedup_interval or (again.speedup, again.speedup),
                loss=work.metric_lost(before, again.metric),
                trials=sum(row.latency_ms is not None for row in result.rows),
                seconds=result.took_s,
                measured=tuple(
                    (row.at_s, row.speedup, row.loss or 0.0)
                    for row in result.rows
                    if row.at_s is not None and row.speedup
                ),
                predicted=tuple(
                    (row.predicted, row.speedup)
                    for row in result.rows
                    if way == COMBINED and row.predicted is not None and row.speedup
                ),
            )
        )
    return rows


def found_in_child(model: str, way: str, seed: int, drop: float, seconds: float) -> SearchResult:
    """A search in a process of its own, with nothing in its caches but the machine's figures."""
    with tempfile.TemporaryDirectory(prefix="paifuser-") as folder:
        for file in cache_folder().glob("hardware-*.json"):
            shutil.copy(file, folder)
        kept = Path(folder) / "search.json"
        words = f"{model!r}, {way!r}, {seed}, {drop}, {seconds}, {str(kept)!r}"
        printed(
            f"{way} of {model}",
            ["-c", f"from benchmarks.search import keep_found; keep_found({words})"],
            limit_s=seconds + MORE_S,
            PAIFUSER_CACHE=folder,
            TORCHINDUCTOR_CACHE_DIR=folder,
        )
        return SearchResult.load(kept)


def keep_found(model: str, way: str, seed: int, drop: float, seconds: float, path: str) -> None:
    """In the child process: search in one way, and save what it found."""
    work = load(model)
    work.output()  # the cost of torch's first call in a process is no part of a search
    *_, found = searches(
        work, metric_drop=drop, seconds=seconds, order=WAYS[way](seed, drop), seed=seed
    )
    found.save(path)

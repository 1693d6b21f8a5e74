"""Each model with each back end, and the plan's choice against the fastest engine by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from ..engines import available_engines
from ..machine import thread_choices
from ..measure import Candidate, ratio_of_rounds, rounds_in_turn
from ..planner import plan
from ..records import Comparison, Measurement, Record
from ..variant import apply
from ..variant.comparison import compare
from ..variant.load import load
from ..variant.recipe import Recipe
from ..workload import Workload, running
from .by_hand import candidates as by_hand_candidates
from .runner import BenchRecord, Names, Seconds, measure_each
from .text import number, ratio, times

MODELS = ("resnet18", "mobilenetv2", "vit-s", "bert-base")
ENGINES = {"inductor": "Inductor", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


class HandRatio(Record):
    """The plan's choice over the fastest engine called directly, in turn; above 1 it is faster."""

    plan: str
    best_by_hand: str
    plan_ms: float
    by_hand_ms: float
    ratio: float
    interval: tuple[float, float]
    all_ms: dict[str, float]


class ModelsBench(BenchRecord):
    """The result of `paifuser-lab bench models`."""

    caption = "latency in ms on {0.machine} (× = speed-up over the faster eager baseline)"
    comparisons: tuple[Comparison, ...]
    by_hand: dict[str, HandRatio] = {}

    def table(self) -> list[dict[str, str]]:
        """A row for each model, a column for each back end."""
        return [self._row(comparison) for comparison in self.comparisons] or super().table()

    def _row(self, comparison: Comparison) -> dict[str, str]:
        base, name = comparison[comparison.baseline], comparison.workload
        row = {
            "model": name,
            "eager": f"{number(base.latency_ms or 0)} ({base.threads}t)",
        }
        for engine, header in ENGINES.items():
            tried = [row for row in comparison.rows if row.name.startswith(engine)]
            best = min((row for row in tried if row.latency_ms), key=_latency, default=None)
            row[header] = (
                f"{number(_latency(best))} ({best.threads}t) {times(best.speedup or 0)}"
                if best
                else "–"
            )
        hand = self.by_hand.get(name)
        row["`lab.plan` chose"] = hand.plan if hand else "–"
        row["against the best by hand"] = ratio(hand.ratio, hand.interval) if hand else "–"
        return row


def _latency(row: Measurement) -> float:
    return row.latency_ms or 0.0


def bench(
    names: Names = None,
    *,
    seconds: Seconds = 30.0,
    by_hand: Annotated[
        bool,
        typer.Option("--by-hand", help="Also time each engine called directly, against the plan."),
    ] = False,
) -> ModelsBench:
    """Time each model with each back end: ratio to eager, and to the best."""
    comparisons: list[Comparison] = []
    hands: dict[str, HandRatio] = {}

    def measure(name: str) -> None:
        work = load(name)
        recipes = [Recipe([{"backend": options}]) for options in _options()]
        compared = compare(work, *recipes, threads="each", seconds=seconds, metric=False)
        comparisons.append(compared)
        if by_hand:
            hands[name] = _against_hand(work, seconds)

    failures = measure_each(names or MODELS, measure)
    return ModelsBench(comparisons=tuple(comparisons), by_hand=hands, failures=failures)


def _options() -> list[dict[str, object]]:
    """Every engine with each sensible number of threads; since compiling takes long, Inductor is
    frozen only at the largest number.
    """
    options: list[dict[str, object]] = []
    for count in thread_choices():
        options += [
            {"name": name, "threads": count} for name in available_engines() if name != "eager"
        ]
    return [*options, {"name": "inductor", "threads": thread_choices()[-1], "freeze": True}]


def _against_hand(work: Workload, seconds: float) -> HandRatio:
    """The plan's variant against the fastest engine by hand.

    That one is chosen in a first set of rounds and timed in a second, since the best of many is
    partly luck.
    """
    recipe = plan(work, seconds=seconds)
    variant = apply(work, recipe)
    inputs = work.inputs.clone()
    with running(variant.model):
        ours = Candidate("plan", lambda: inputs(variant.model), variant.threads)
        hands = list(by_hand_candidates(work))
        *_, samples = rounds_in_turn([ours, *hands], rounds=40, seconds=seconds)
        fastest = min(hands, key=lambda hand: samples[hand.name].median_ms)
        *_, pair = rounds_in_turn([ours, fastest], rounds=60, seconds=seconds)
    best = fastest.name
    ratio, interval = ratio_of_rounds(pair[best], pair["plan"])
    return HandRatio(
        plan=recipe.label,
        best_by_hand=best,
        plan_ms=pair["plan"].median_ms,
        by_hand_ms=pair[best].median_ms,
        ratio=ratio,
        interval=interval,
        all_ms={name: timing.median_ms for name, timing in samples.items()},
    )

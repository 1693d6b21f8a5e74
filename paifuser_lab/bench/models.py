"""Each model with each back end, and the plan's choice against the fastest engine by hand."""

from __future__ import annotations

from contextlib import ExitStack

from ..comparison import compare
from ..engines import available_engines
from ..loading.load import load
from ..machine import machine_label, thread_choices
from ..measure import Candidate, ratio_of_rounds, rounds_in_turn
from ..planner import plan
from ..recipe import Recipe
from ..records import Comparison, Record
from ..variant import apply
from ..workload import Workload, running
from .by_hand import candidates as by_hand_candidates
from .each import measure_each

MODELS = ("resnet18", "mobilenetv2", "vit-s", "bert-base")


class HandRatio(Record):
    """The plan's choice against the fastest engine called directly, timed in turn; above 1 the
    plan is faster.
    """

    plan: str
    best_by_hand: str
    plan_ms: float
    by_hand_ms: float
    ratio: float
    interval: tuple[float, float]
    all_ms: dict[str, float]


class ModelsBench(Record):
    """The result of `paifuser-lab bench models`."""

    machine: str
    comparisons: tuple[Comparison, ...]
    by_hand: dict[str, HandRatio] = {}
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"latency in ms on {self.machine} (× = speed-up over the faster eager baseline)"

    def table(self) -> list[dict[str, str]]:
        """A row for each model, a column for each back end."""
        rows = [self._row(comparison) for comparison in self.comparisons]
        keys = list(dict.fromkeys(key for row in rows for key in row))
        return [{key: row.get(key, "–") for key in keys} for row in rows] or [
            {"model": "nothing was measured"}
        ]

    def _row(self, comparison: Comparison) -> dict[str, str]:
        base = comparison[comparison.baseline]
        row = {"model": comparison.workload, "eager": f"{base.latency_ms:.3g} ({base.threads}t)"}
        for engine in ("inductor", "onnxruntime", "openvino"):
            tried = [
                candidate
                for candidate in comparison.rows
                if candidate.latency_ms is not None and candidate.name.startswith(engine)
            ]
            if tried:
                best = min(tried, key=lambda candidate: candidate.latency_ms or 0.0)
                row[engine] = f"{best.latency_ms:.3g} ({best.threads}t) {best.speedup:.2f} ×"
        row["best"] = comparison.best.name
        if hand := self.by_hand.get(comparison.workload):
            row["plan / best by hand"] = (
                f"{hand.ratio:.2f} × ({hand.interval[0]:.2f}–{hand.interval[1]:.2f}) "
                f"{hand.best_by_hand}"
            )
        return row


def bench(names: tuple[str, ...], *, seconds: float, by_hand: bool) -> ModelsBench:
    """Measure models one after another; a failure is recorded and the next one is measured."""
    comparisons: list[Comparison] = []
    hands: dict[str, HandRatio] = {}

    def measure(name: str) -> None:
        work = load(name)
        comparisons.append(_backends(work, seconds))
        if by_hand:
            hands[name] = _against_hand(work, seconds)

    failures = measure_each(names or MODELS, measure)
    return ModelsBench(
        machine=machine_label(), comparisons=tuple(comparisons), by_hand=hands, failures=failures
    )


def _backends(work: Workload, seconds: float) -> Comparison:
    recipes = [Recipe([{"backend": options}]) for options in _options()]
    return compare(work, *recipes, threads="each", seconds=seconds, metric=False)


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
    with ExitStack() as stack:
        stack.enter_context(running(variant.model))
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

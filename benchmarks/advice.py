"""The predicted effect of each advised step against the measured one, on models of the zoo.

`python -m benchmarks advice --json docs/measured/advice.json` profiles each model and times every
step in turn with the unchanged model, on one thread. Each model's predictions come from
coefficients fitted without its family, so that none is compared with what it was fitted to. With
`--fit` the coefficients fitted to all models become those of advice; with `--record FILE` they are
fitted again without measuring.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import numpy
import typer
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from paifuser_lab.bench.runner import BenchRecord, Keep, Names, Seconds, measured_rows
from paifuser_lab.bench.text import percent
from paifuser_lab.errors import MeasureError
from paifuser_lab.profiler import profile
from paifuser_lab.profiler.expected import (
    FILE,
    KINDS,
    Calibration,
    Coefficients,
    calibration,
    terms_of,
)
from paifuser_lab.records import Comparison, Profile, Record
from paifuser_lab.variant.comparison import compare
from paifuser_lab.variant.load import load
from paifuser_lab.variant.recipe import Recipe

MODELS = (
    *("resnet18-tiny", "mobilenetv2-tiny", "vit-s-tiny", "bert-base-tiny", "yolo-tiny"),
    *("segnet-tiny", "convnext-t-tiny", "unet-tiny", "swin-t-tiny", "segvit-tiny"),
    *("resnet18", "mobilenetv2", "vit-s", "resnet18-digits", "segnet-streets", "unet-streets"),
)
# Inductor compiles for a minute or more: it is measured on these.
COMPILED = ("resnet18-tiny", "mobilenetv2-tiny", "vit-s-tiny", "bert-base-tiny", "segnet-tiny")
ANY_DROP = {"metric_drop": 1.0, "output_error": 1e9}  # losses are not the subject here
ROUNDS = 15
# What the coefficients are drawn towards, by as much as a model with this error would.
TYPICAL = {"entry": 10.0, "conversions": 10.0, "folded": 0.1, "fused": 0.1}
PULL = 0.1


class AdviceRow(Record):
    """A step on a model: its terms as shares of the model's time, and the share of it left."""

    model: str
    kind: str
    terms: dict[str, float]
    left: float
    left_interval: tuple[float, float] | None = None
    machine_was: str | None = None

    @property
    def family(self) -> str:
        """The name of the architecture without its size and its data."""
        return re.split(r"[\d-]", self.model)[0]


class Predicted(Record):
    """A row with what was predicted without its family, and the median of the other families."""

    row: AdviceRow
    left: float
    median: float

    @property
    def error(self) -> float:
        """The logarithm of predicted over measured."""
        return float(numpy.log(self.left / self.row.left))


class AdviceBench(BenchRecord):
    """The result of `python -m benchmarks advice`."""

    caption = "advice on {0.machine}: share of the time that is left"
    rows: tuple[AdviceRow, ...]

    @cached_property
    def predicted(self) -> tuple[Predicted, ...]:
        """Each row with its prediction by coefficients fitted to the other families."""
        found = []
        for row in self.rows:
            others = [
                other
                for other in self.rows
                if other.kind == row.kind and other.family != row.family
            ]
            if others:
                left = _left(row, fitted(row.kind, others))
                middle = median(other.left for other in others)
                found.append(Predicted(row=row, left=left, median=middle))
        return tuple(found)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.model for row in self.rows))

    @property
    def correlations(self) -> tuple[float, float]:
        """Spearman's rank correlation of predicted with measured shares: over all rows, and the
        mean over models of that over the steps of one model.
        """
        return self._correlations(lambda each: each.left)

    @property
    def correlations_of_medians(self) -> tuple[float, float]:
        """The same for the median of each step, which knows nothing of the model."""
        return self._correlations(lambda each: each.median)

    def _correlations(self, by: Callable[[Predicted], float]) -> tuple[float, float]:
        own = [[each for each in self.predicted if each.row.model == name] for name in self.models]
        within = [_correlation(rows, by) for rows in own if len(rows) > 2]
        return _correlation(self.predicted, by), fmean(within) if within else float("nan")

    def error(self, kind: str) -> float:
        """The root mean square of a kind's logarithmic errors."""
        errors = [each.error for each in self.of(kind)]
        return float(numpy.sqrt(numpy.mean(numpy.square(errors))))

    @property
    def calibration(self) -> Calibration:
        """The coefficients fitted to all rows, with the errors of those that were left out."""
        kinds = [kind for kind in KINDS if any(each.row.kind == kind for each in self.predicted)]
        return Calibration(
            fitted_to=f"docs/measured/advice.json, {self.machine}",
            models=len(self.models),
            steps={
                kind: Coefficients(
                    left={
                        term: round(value, 4)
                        for term, value in fitted(
                            kind, [row for row in self.rows if row.kind == kind]
                        ).items()
                    },
                    error=round(self.error(kind), 3),
                )
                for kind in kinds
            },
        )

    def fit(self) -> None:
        """Let advice predict with the coefficients fitted to these rows."""
        absent = [kind for kind in KINDS if kind not in self.calibration.steps]
        if absent:
            raise MeasureError(
                f"The coefficients of {', '.join(absent)} cannot be fitted: a step has to be "
                "measured on models of two architectures; name more of them, or none for all."
            )
        self.calibration.save(FILE)
        calibration.cache_clear()

    def table(self) -> list[dict[str, str]]:
        """A row for each kind of step: what was predicted of it, and what it achieved."""
        return [self._row(kind, own) for kind in KINDS if (own := self.of(kind))] or super().table()

    def of(self, kind: str) -> list[Predicted]:
        """The rows of a kind of step."""
        return [each for each in self.predicted if each.row.kind == kind]

    def _row(self, kind: str, own: Sequence[Predicted]) -> dict[str, str]:
        return {
            "step": kind,
            "models": str(len(own)),
            "time left, predicted": _range([each.left for each in own]),
            "achieved (median, range)": _range([each.row.left for each in own]),
            "usual error": f"± {percent(self.error(kind), 0)}",
        }

    @property
    def busy(self) -> int:
        """How many rows were measured on a machine that was not quiet."""
        return sum(row.machine_was not in ("quiet", None) for row in self.rows)

    @property
    def summary(self) -> str:
        """The correlations, each prediction, and the failures, a line each."""
        lines = [
            f"{each.row.model}, {each.row.kind}: {each.left:.2f} → {each.row.left:.2f}"
            for each in self.predicted
        ]
        if lines:
            own, medians = self.correlations, self.correlations_of_medians
            lines.insert(
                0,
                f"rank correlation {own[0]:.2f} over all, {own[1]:.2f} within a model (each "
                f"step's median over the other families: {medians[0]:.2f} and {medians[1]:.2f})",
            )
        return "\n".join([*lines, *self.failed])


def _range(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def _correlation(rows: Iterable[Predicted], by: Callable[[Predicted], float]) -> float:
    pairs = [(by(each), each.row.left) for each in rows]
    return float(spearmanr(*zip(*pairs, strict=True)).statistic)


def _left(row: AdviceRow, coefficients: dict[str, float]) -> float:
    return sum(coefficients[term] * share for term, share in row.terms.items())


def fitted(kind: str, rows: Sequence[AdviceRow]) -> dict[str, float]:
    """The non-negative coefficients with the least squares of logarithmic errors; where the models
    do not tell the terms apart, near what is typical.
    """
    terms = KINDS[kind].terms
    typical = numpy.array([TYPICAL.get(term, 1.0) for term in terms])
    shares = numpy.array([[row.terms[term] for term in terms] for row in rows])
    measured = numpy.log([row.left for row in rows])

    def errors(coefficients: Any) -> Any:
        predicted = numpy.log(numpy.maximum(shares @ coefficients, 1e-6))
        return numpy.concatenate([predicted - measured, PULL * (coefficients / typical - 1)])

    found = least_squares(errors, typical, bounds=(0, numpy.inf), loss="soft_l1")
    return dict(zip(terms, (float(value) for value in found.x), strict=True))


def bench(
    names: Names = None,
    *,
    seconds: Seconds = 8.0,
    fit: Annotated[
        bool, typer.Option(help="Write the fitted coefficients where advice reads them.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option(help="Take the figures of this file, and measure nothing.")
    ] = None,
    keep: Keep = lambda record: None,
) -> AdviceBench:
    """Measure the steps that advice offers against what it predicts of them."""
    measured = AdviceBench.load(record) if record else _measured(names or MODELS, seconds)
    keep(measured)
    if fit:
        measured.fit()
    return measured


def _measured(names: Sequence[str], seconds: float) -> AdviceBench:
    """Profile each model, and time every kind of step in turn with it."""
    lost: dict[str, str] = {}

    def rows(name: str) -> list[AdviceRow]:
        work = load(name)
        before = profile(work, seconds=1.0, threads=1)
        recipes: dict[str, Any] = {
            kind: Recipe([each.step], limit=ANY_DROP)
            for kind, each in KINDS.items()
            if each.engine != "inductor" or name in COMPILED
        }
        compared = compare(work, rounds=ROUNDS, seconds=seconds, metric=False, threads=1, **recipes)
        lost.update({f"{name}, {row.name}": row.failure for row in compared.rows if row.failure})
        return rows_of(name, before, compared)

    measured = measured_rows(names, rows)
    return AdviceBench(rows=measured["rows"], failures=lost | measured["failures"])


def rows_of(name: str, before: Profile, compared: Comparison) -> list[AdviceRow]:
    """A row for each kind of step that was measured."""
    state = compared.quality.state if compared.quality else None
    return [
        AdviceRow(
            model=name,
            kind=row.name,
            terms={
                term: round(ms / before.total_ms, 5)
                for term, ms in terms_of(before, KINDS[row.name], before.layers).items()
            },
            left=1 / row.speedup,
            left_interval=row.speedup_interval
            and (1 / row.speedup_interval[1], 1 / row.speedup_interval[0]),
            machine_was=state,
        )
        for row in compared.rows
        if row.name in KINDS and row.speedup
    ]

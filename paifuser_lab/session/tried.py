"""What was tried in a session: a row for each recipe that was measured or failed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import PaifuserError
from ..machine import machine_label
from ..recipe import Recipe
from ..records import Comparison, Limit, Measurement, Profile, ResultRow, Results
from .baseline import Baseline
from .history import RecordCache


@dataclass(frozen=True)
class Trial:
    """A recipe with its comparison, or why it failed."""

    recipe: Recipe
    comparison: Comparison | None = None
    failure: str | None = None


class Tried:
    """The trials in their order; one that is measured again keeps its number."""

    def __init__(self, first: Recipe, profiles: RecordCache[Profile], baseline: Baseline) -> None:
        self._trials = {first.digest: Trial(first)}
        self._profiles = profiles
        self._baseline = baseline
        self._record: Results | None = None

    def put(self, recipe: Recipe, comparison: Comparison) -> None:
        """Keep what was measured of a recipe, in place of what was known of it."""
        self._keep(Trial(recipe, comparison))

    def fail(self, recipe: Recipe, failure: str) -> None:
        """Keep why a recipe failed, unless it was measured before."""
        known = self._trials.get(recipe.digest)
        if known is None or known.comparison is None:
            self._keep(Trial(recipe, failure=failure))

    def has_other_limit(self, recipe: Recipe) -> bool:
        """Whether the same steps were tried within another limit."""
        known = self._trials.get(recipe.digest)
        return known is not None and known.recipe.limit != recipe.limit

    def update(self) -> None:
        """Make the record anew: a profile was kept or dropped."""
        self._record = None

    def recipe(self, number: int) -> Recipe:
        """The recipe of a row."""
        trials = list(self._trials.values())
        if (
            isinstance(number, bool)
            or not isinstance(number, int)
            or number not in range(len(trials))
        ):
            raise PaifuserError(
                f"There is no result {number}; the results are 0 to {len(trials) - 1}."
            )
        return trials[number].recipe

    def number(self, recipe: Recipe) -> int:
        """The row of a recipe that was tried."""
        return list(self._trials).index(recipe.digest)

    def allowed(self, number: int) -> Recipe:
        """The recipe of a row with its limit widened to what the row loses."""
        recipe = self.recipe(number)
        compared = list(self._trials.values())[number].comparison
        if compared is None or (row := measured_row(compared)).failure:
            raise PaifuserError(f"Result {number} was not measured; it cannot be allowed.")
        before, limit = compared[compared.baseline].metric, recipe.limit
        if row.metric is not None and before is not None:
            lost = _rounded_up(before - row.metric)
            wider = Limit(
                metric_drop=min(1.0, max(limit.metric_drop, lost)), output_error=limit.output_error
            )
        else:
            error = _rounded_up(row.relative_error or 0.0)
            wider = Limit(
                metric_drop=limit.metric_drop, output_error=max(limit.output_error, error)
            )
        return Recipe(recipe.steps, workload=recipe.workload, limit=wider)

    def profile(self, number: int) -> Profile | None:
        """The profile of a row; None if it is not kept any more."""
        return self._profiles.get(self.recipe(number))

    def results(self, workload: str, current: Recipe) -> Results | None:
        """All rows; the same object until something changes. None before the first measurement."""
        trials = list(self._trials.values())
        if trials[0].comparison is None and len(trials) == 1:
            return None
        numbers = {digest: number for number, digest in enumerate(self._trials)}
        chosen = numbers.get(current.digest)
        if self._record is None or self._record.current != chosen:
            known = next(iter(self._comparisons), None)
            self._record = Results(
                workload=workload,
                machine=known.machine if known else machine_label(),
                metric_name=known.metric_name if known else None,
                current=chosen,
                rows=tuple(
                    self._row(number, trial) if number else self._first_row(trial)
                    for number, trial in enumerate(trials)
                ),
            )
        return self._record

    def _keep(self, trial: Trial) -> None:
        self._trials[trial.recipe.digest] = trial
        self._record = None

    @property
    def _comparisons(self) -> list[Comparison]:
        return [trial.comparison for trial in self._trials.values() if trial.comparison]

    def _first_row(self, trial: Trial) -> ResultRow:
        """The row of the unchanged model: as the comparison timed it whose latency is shown."""
        row, compared = self._named(0, trial), self._baseline.comparison
        if compared is None:
            return row
        measured = compared[compared.baseline]
        metrics = (one[one.baseline].metric for one in self._comparisons)
        return row.model_copy(
            update=_figures(measured, compared)
            | {
                "speedup": 1.0,
                "speedup_interval": None,
                "relative_error": 0.0,
                "drift_ms": self._baseline.drift_ms,
                "metric": next((value for value in metrics if value is not None), None),
            }
        )

    def _row(self, number: int, trial: Trial) -> ResultRow:
        row, compared = self._named(number, trial), trial.comparison
        if compared is None:
            return row
        compared = self._baseline.stated(compared)
        return row.model_copy(update=_figures(measured_row(compared), compared))

    def _named(self, number: int, trial: Trial) -> ResultRow:
        recipe = trial.recipe
        return ResultRow(
            number=number,
            label=recipe.label if number else "As it came",
            steps=tuple({step.kind: step.options} for step in recipe),
            step_labels=tuple(step.label for step in recipe),
            failure=trial.failure,
            has_profile=recipe in self._profiles,
        )


def _rounded_up(value: float) -> float:
    """At three decimals, so that the same model measured again stays within it."""
    return math.ceil(1000 * value) / 1000


def measured_row(comparison: Comparison) -> Measurement:
    """The row of the variant; the baseline's if nothing else was compared."""
    return next((row for row in comparison.rows if row.steps), comparison[comparison.baseline])


def _figures(measured: Measurement, compared: Comparison) -> dict[str, object]:
    """The fields of a result that a comparison's row has."""
    return {
        "latency_ms": measured.latency_ms,
        "before_ms": compared[compared.baseline].latency_ms,
        "speedup": measured.speedup,
        "speedup_interval": measured.speedup_interval,
        "metric": measured.metric,
        "relative_error": measured.relative_error,
        "size_bytes": measured.size_bytes,
        "peak_bytes": measured.peak_bytes,
        "quality": compared.quality,
        "refused": measured.refused,
        "failure": measured.failure,
    }

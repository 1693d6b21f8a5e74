"""The recipes of a session: as they were chosen, with undo and redo, and as they were tried, with
what was measured of each.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, replace

from ..errors import PaifuserError
from ..records import Comparison, Limit, Measurement, Profile, ResultRow, Results
from ..variant.recipe import Recipe, RecipeKey
from .baseline import Baseline

MAX_PROFILES = 32


class History:
    """Past and undone recipes; the first is the empty recipe (the unchanged model) and stays."""

    def __init__(self, first: Recipe) -> None:
        self._past, self._future = [first], list[Recipe]()

    @property
    def first(self) -> Recipe:
        """The empty recipe: the unchanged model."""
        return self._past[0]

    @property
    def current(self) -> Recipe:
        """The chosen recipe."""
        return self._past[-1]

    def __len__(self) -> int:
        return len(self._past)

    @property
    def can_undo(self) -> bool:
        """Whether a recipe was chosen before the current one."""
        return len(self._past) > 1

    @property
    def can_redo(self) -> bool:
        """Whether a recipe was undone."""
        return bool(self._future)

    def push(self, recipe: Recipe) -> bool:
        """Choose a recipe and clear the redo list; False if it is chosen already."""
        if recipe == self.current and recipe.limit == self.current.limit:
            return False
        self._past.append(recipe)
        self._future.clear()
        return True

    def undo(self) -> bool:
        """Return to the previous recipe; False if there is none."""
        if self.can_undo:
            self._future.append(self._past.pop())
            return True
        return False

    def redo(self) -> bool:
        """Choose the last undone recipe again; False if there is none."""
        if self.can_redo:
            self._past.append(self._future.pop())
            return True
        return False

    def withdraw(self, recipe: Recipe, *, can_redo: bool) -> bool:
        """Remove the recipe if it is the current one; False if it is not."""
        if recipe != self.current or not self.can_undo:
            return False
        self._past.pop()
        self._future += [recipe] if can_redo else []
        return True


@dataclass(frozen=True)
class Trial:
    """A recipe with its comparison, or why it failed."""

    recipe: Recipe
    comparison: Comparison | None = None
    failure: str | None = None


class Tried:
    """The trials in their order; one that is measured again keeps its number. Each has the one
    latency of the unchanged model. Past `MAX_PROFILES` the oldest profile is dropped, never that of
    the unchanged model; `earlier` is shown as that until there is one.
    """

    def __init__(self, first: Recipe, baseline: Baseline, earlier: Profile | None = None) -> None:
        self._trials = {first.key: Trial(first)}
        self._first, self._baseline, self._earlier = first, baseline, earlier
        self._profiles: OrderedDict[RecipeKey, Profile] = OrderedDict()
        self._record: Results | None = None

    def put(self, recipe: Recipe, comparison: Comparison) -> None:
        """Keep what was measured of a recipe, in place of what was known of it."""
        self._keep(Trial(recipe, comparison))

    def fail(self, recipe: Recipe, failure: str) -> None:
        """Keep why a recipe failed, unless it was measured before."""
        known = self._trials.get(recipe.key)
        if known is None or known.comparison is None:
            self._keep(Trial(recipe, failure=failure))

    def comparison(self, recipe: Recipe) -> Comparison | None:
        """What was measured of a recipe; None within another limit, which it says nothing about."""
        known = self._trials.get(recipe.key)
        return known.comparison if known and known.recipe.limit == recipe.limit else None

    @property
    def first_profile(self) -> Profile | None:
        """The profile of the unchanged model; that of an earlier session until there is one."""
        return self._profiles.get(self._first.key) or self._earlier

    def profile_of(self, recipe: Recipe) -> Profile | None:
        """The profile that is shown for a recipe."""
        return self._profiles.get(recipe.key) if len(recipe) else self.first_profile

    def has_own_profile(self, recipe: Recipe) -> bool:
        """Whether a recipe was profiled in this session."""
        return recipe.key in self._profiles

    def put_profile(self, recipe: Recipe, profile: Profile) -> None:
        """Keep the profile of a recipe."""
        profiles, first = self._profiles, self._first.key
        profiles[recipe.key] = self._in_proportion(recipe.key, profile)
        profiles.move_to_end(recipe.key)
        while len(profiles) > MAX_PROFILES:
            del profiles[next(key for key in profiles if key != first)]
        self._record = None

    def drop_noisy_profile(self, recipe: Recipe) -> None:
        """Drop a recipe's profile if the machine was busy, so that it is taken again."""
        known = self._profiles.get(recipe.key)
        if known is not None and known.quality and not known.quality.is_quiet:
            del self._profiles[recipe.key]
            self._record = None

    def restate(self) -> None:
        """Give everything the latency of the unchanged model, which was measured anew."""
        for key, trial in self._trials.items():
            stated = self._baseline.stated(trial.comparison)
            self._trials[key] = replace(trial, comparison=stated)
        # the profiles follow the latencies of their comparisons
        for key, profile in self._profiles.items():
            self._profiles[key] = self._in_proportion(key, profile)
        if self._earlier is not None:
            self._earlier = self._in_proportion(self._first.key, self._earlier)
        self._record = None

    def recipe(self, number: int) -> Recipe:
        """The recipe of a row."""
        return self._trial(number).recipe

    def number(self, recipe: Recipe) -> int:
        """The row of a recipe that was tried."""
        return list(self._trials).index(recipe.key)

    def profile(self, number: int) -> Profile | None:
        """The profile of a row; None if it is not kept any more."""
        return self._profiles.get(self.recipe(number).key)

    def allowed(self, number: int) -> Recipe:
        """The recipe of a row with its limit widened to what the row loses."""
        recipe, compared = self.recipe(number), self._trial(number).comparison
        if compared is None or (row := measured_row(compared)).failure:
            raise PaifuserError(f"Result {number} was not measured; it cannot be allowed.")
        before, limit = compared[compared.baseline].metric, recipe.limit
        drop, error = limit.metric_drop, limit.output_error
        if row.metric is not None and before is not None:
            lost = row.metric - before if compared.smaller_is_better else before - row.metric
            if not math.isfinite(lost):
                raise PaifuserError(f"Result {number} has no finite metric; it cannot be allowed.")
            drop = max(drop, _rounded_up(lost))
        else:
            error = max(error, _rounded_up(row.relative_error or 0.0))
        wider = Limit(metric_drop=drop, output_error=error)
        return Recipe(recipe.steps, workload=recipe.workload, limit=wider)

    def results(self, workload: str, current: Recipe) -> Results | None:
        """All rows; the same object until something changes. None before the first measurement."""
        known = next(iter(self._comparisons), self._baseline.comparison)
        if known is None or (len(self._trials) == 1 and not self._comparisons):
            return None
        numbers = {key: number for number, key in enumerate(self._trials)}
        chosen = numbers.get(current.key)
        if self._record is None or self._record.current != chosen:
            self._record = Results(
                workload=workload,
                machine=known.machine,
                metric_name=known.metric_name,
                smaller_is_better=known.smaller_is_better,
                current=chosen,
                rows=tuple(
                    self._row(number, trial) for number, trial in enumerate(self._trials.values())
                ),
            )
        return self._record

    def _trial(self, number: int) -> Trial:
        trials = list(self._trials.values())
        is_number = isinstance(number, int) and not isinstance(number, bool)
        if not is_number or number not in range(len(trials)):
            raise PaifuserError(
                f"There is no result {number}; the results are 0 to {len(trials) - 1}."
            )
        return trials[number]

    def _keep(self, trial: Trial) -> None:
        self._trials[trial.recipe.key] = trial
        self._record = None

    def _in_proportion(self, key: RecipeKey, profile: Profile) -> Profile:
        """A profile whose layers share the latency that the comparison of its recipe shows."""
        trial = self._trials.get(key)
        if key == self._first.key:
            latency_ms = self._baseline.ms
        else:
            compared = trial.comparison if trial else None
            latency_ms = measured_row(compared).latency_ms if compared else None
        return profile if latency_ms is None else profile.taking(latency_ms)

    @property
    def _comparisons(self) -> list[Comparison]:
        return [trial.comparison for trial in self._trials.values() if trial.comparison]

    def _row(self, number: int, trial: Trial) -> ResultRow:
        """A row; the unchanged model is as the comparison timed it whose latency is shown."""
        recipe, compared = trial.recipe, trial.comparison if number else self._baseline.comparison
        row = ResultRow(
            number=number,
            label=recipe.label if number else "As it came",
            steps=tuple({step.kind: step.options} for step in recipe),
            step_labels=tuple(step.label for step in recipe),
            failure=trial.failure,
            has_profile=self.has_own_profile(recipe),
        )
        if compared is None:
            return row
        if number:
            return row.model_copy(update=_figures(measured_row(compared), compared))
        metrics = (one[one.baseline].metric for one in self._comparisons)
        own = {
            "speedup": 1.0,
            "speedup_interval": None,
            "relative_error": 0.0,
            "drift_ms": self._baseline.drift_ms,
            "metric": next((value for value in metrics if value is not None), None),
        }
        return row.model_copy(update=_figures(compared[compared.baseline], compared) | own)


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

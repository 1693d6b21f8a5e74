"""The records that a session keeps, all with one latency of the unchanged model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..recipe import Recipe
from ..records import Comparison, Profile
from ..workload import Workload
from .baseline import Baseline
from .first_profile import kept_profile
from .history import History, RecordCache
from .state import RECORDS, State, known_records
from .tried import Tried, measured_row
from .worker import StateWorker


class SessionRecords(StateWorker):
    """The recipes of a session, and what was measured of them."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self._history = History(Recipe(workload=work.loaded_as))
        self._comparisons = RecordCache[Comparison](self._history)
        self._profiles = RecordCache[Profile](self._history)
        self._records: dict[str, Any] = dict.fromkeys(RECORDS)
        self.baseline = Baseline()
        self.tried = Tried(self._history.first, self._profiles, self.baseline)
        self._kept = kept = kept_profile(work)
        first = State(self._history.first, baseline=kept, profile=kept, status="applying")
        super().__init__(first, name=f"session of {work.name}")

    @property
    def _baseline(self) -> Profile | None:
        """The profile of the unchanged model; that of an earlier session until there is one."""
        return self._profiles.get(self._history.first) or self._kept

    @property
    def _current_profile(self) -> Profile | None:
        """The profile that is shown: of the chosen recipe, or of the unchanged model."""
        recipe = self._history.current
        return self._profiles.get(recipe) if len(recipe) else self._baseline

    def _set(self, state: State) -> None:
        """Set a state with everything tried so far in it."""
        compared = self.baseline.stated(state.comparison)
        results = self.tried.results(self.work.name, state.recipe)
        super()._set(replace(state, comparison=compared, results=results))

    def _keep(self, recipe: Recipe, measured: Comparison) -> None:
        """Keep a comparison, as a row of the results too; it timed the unchanged model anew."""
        with self._lock:
            self._comparisons.put(recipe, measured)
            self.tried.put(recipe, measured)
            self.baseline.add(measured, is_rough=measured.is_interrupted)
            self._restate()

    def _show(self, name: str, record: Any) -> None:
        with self._lock:
            self._records[name] = record = self.baseline.stated(record)
            self._set(self._state.with_record(name, record))

    def _restate(self) -> None:
        """Give every record that is kept the one latency of the unchanged model, which was measured
        anew; called under the lock.
        """
        self._comparisons.restate(lambda _, compared: self.baseline.stated(compared))
        self._profiles.restate(self._in_proportion)
        if self._kept is not None:
            self._kept = self._in_proportion(self._history.first.digest, self._kept)
        self._records = {name: self.baseline.stated(one) for name, one in self._records.items()}
        self.tried.update()
        profiles: dict[str, Any] = {"baseline": self._baseline, "profile": self._current_profile}
        self._set(replace(self._state, **profiles, **known_records(self._records)))

    def _in_proportion(self, digest: str, profile: Profile) -> Profile:
        """A profile whose layers share the latency that the comparison of its recipe shows."""
        compared = self._comparisons.of_digest(digest)
        if digest == self._history.first.digest:
            latency_ms = self.baseline.ms
        else:
            latency_ms = measured_row(compared).latency_ms if compared else None
        return profile if latency_ms is None else profile.taking(latency_ms)

"""Where the trials of searches and the runs of sweeps are kept: studies of Optuna in a database,
SQLite by default.

A trial holds its candidate as it was measured: steps and figures, never a weight or a datum. A
search that goes on reads them back, and what a killed process had begun is begun again. The history
of everything measured is a table of the same database (`variant/history.py`).
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psutil

from .._files import HISTORY_OFF, history_file
from ..errors import FileError, first_line
from ..machine import machine_label
from ..model.weights import weights_hash
from ..records import Candidate, SearchGoal, SweepRun
from ..workload import Workload
from .halves import samples_in
from .space import Point

if TYPE_CHECKING:
    import optuna

SCHEMA = 3  # 3: a study is also about its inputs, metric and test data
PAUSES_S = (0.05, 0.1, 0.2, 0.4)  # between attempts to open a database
ROW, VALUES, OWNER, QUEUED = "candidate", "values", "owner", "queued"
KEY, TOKEN, RUN = "key", "token", "run"


def default_url() -> str | None:
    """The database in the user's data folder; None where history is switched off."""
    file = history_file()
    return None if file is None else f"sqlite:///{file}"


def about_of(work: Workload, goal: SearchGoal, url: str | None) -> dict[str, str | int | None]:
    """What a search is about: its study holds for nothing else. Test data are counted, which reads
    all of them, only where a study may go on.
    """
    return {
        "workload": work.name,
        "goal": goal,
        "model": weights_hash(work.model),
        "machine": machine_label(),
        "shape of the inputs": work.inputs.described,
        "metric": work.metric_name,
        "number of test samples": samples_in(work) if url else None,
    }


@dataclass
class Study:
    """One search's trials: those that are finished, and those that Optuna suggests next."""

    study: optuna.Study
    axes: Mapping[str, tuple[Any, ...]]
    where: str | None

    @classmethod
    def open(
        cls,
        url: str | None,
        about: Mapping[str, Any],
        axes: Mapping[str, tuple[Any, ...]],
        seed: int = 0,
    ) -> Study:
        """A new study in the user's database; with a `url`, the one there that is about the same,
        which goes on. `seed` is that of Optuna's choices.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        where = url or default_url()
        name = f"{about['workload']} · {about['goal']}"
        if url is None:
            name = f"{name} · {uuid4().hex[:12]}"
        choices = {axis: list(values) for axis, values in axes.items()}
        with _named_errors(where):
            study = optuna.create_study(
                study_name=name,
                storage=_storage(where),
                directions=["minimize", "minimize"],
                sampler=optuna.samplers.TPESampler(
                    seed=seed, multivariate=True, n_startup_trials=8
                ),
                load_if_exists=url is not None,
            )
            kept = study.user_attrs.get("about")
            if kept is None:
                began = datetime.now().astimezone().isoformat(timespec="seconds")
                study.set_user_attr(
                    "about", {**about, "schema": SCHEMA, "choices": choices, "began": began}
                )
            else:
                _check_same(where, kept, about, choices)
                axes = {axis: tuple(kept["choices"][axis]) for axis in axes}
            opened = cls(study, axes, where)
            opened._begin_again()
        return opened

    def _begin_again(self) -> None:
        """Queue what a process that is gone had begun and not finished."""
        for trial in self._running():
            if _is_alive(trial.user_attrs.get(OWNER)):
                continue
            if ROW in trial.user_attrs:  # it was measured, and not yet told
                self._finish(trial.number, trial.user_attrs[VALUES])
                continue
            self._finish(trial.number, None)
            self.study.enqueue_trial(trial.params, user_attrs={QUEUED: True})

    def _running(self) -> list[optuna.trial.FrozenTrial]:
        from optuna.trial import TrialState

        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    @property
    def finished(self) -> dict[Point, Candidate]:
        """The candidates that were measured or refused, by their points."""
        rows = {}
        for trial in self.study.get_trials(deepcopy=False):
            if ROW in trial.user_attrs and trial.state.is_finished():
                point = Point(**trial.params)
                rows[point] = Candidate.model_validate(trial.user_attrs[ROW])
        return rows

    @property
    def importance(self) -> dict[str, float]:
        """How much each choice explains which trials are in the better half; {} where too little
        was measured to tell.
        """
        from optuna.exceptions import StorageInternalError
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is experimental, and says which direction it takes
            try:
                return get_param_importances(
                    self.study,
                    evaluator=PedAnovaImportanceEvaluator(target_quantile=0.5),
                    target=lambda trial: float(trial.values[0]),
                )
            # fewer than two trials, or all alike; or a full disk
            except (ValueError, RuntimeError, StorageInternalError):
                return {}

    @property
    def begun(self) -> set[Point]:
        """The points that a living process works at."""
        return {Point(**trial.params) for trial in self._running() if trial.params}

    def queue(self, point: Point) -> None:
        """Have a point asked for before those that Optuna chooses."""
        with _named_errors(self.where):
            self.study.enqueue_trial(point.values, user_attrs={QUEUED: True})

    def ask(self) -> tuple[optuna.trial.Trial, Point]:
        """The next point, from the queue before what Optuna expects most from."""
        from optuna.distributions import BaseDistribution, CategoricalDistribution

        choices: dict[str, BaseDistribution] = {
            axis: CategoricalDistribution(values) for axis, values in self.axes.items()
        }
        with _named_errors(self.where):
            trial = self.study.ask(choices)
            trial.set_user_attr(OWNER, _owner())
        return trial, Point(**trial.params)

    def tell(
        self,
        trial: optuna.trial.Trial,
        row: Candidate,
        values: tuple[float, float] | None,
        allowed: float,
    ) -> None:
        """Keep what a trial gave: its value and its loss, or none where it was refused."""
        with _named_errors(self.where):
            trial.set_user_attr(VALUES, values)
            if values is not None:
                trial.set_constraint("loss", values[1] - allowed)
            trial.set_user_attr(ROW, json.loads(row.model_dump_json()))
            self._finish(trial.number, values)

    def _finish(self, number: int, values: Sequence[float] | None) -> None:
        from optuna.trial import TrialState

        if values is None:
            self.study.tell(number, state=TrialState.FAIL)
        else:
            self.study.tell(number, list(values))

    def drop(self, trial: optuna.trial.Trial) -> None:
        """Give a trial back that was not measured."""
        with _named_errors(self.where):
            self._finish(trial.number, None)


@dataclass
class Runs:
    """The runs of sweeps of one notebook: what those that are complete gave, and who is at which.

    A process that begins a run adds a trial, and the least number of those of one run has it.
    """

    study: optuna.Study
    where: str

    @classmethod
    def open(cls, url: str, name: str) -> Runs:
        """The runs in a database, also those of other processes."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with _named_errors(url):
            study = optuna.create_study(study_name=name, storage=_storage(url), load_if_exists=True)
        return cls(study, url)

    def begin(self, key: str, *, again: bool = False) -> int | SweepRun:
        """The number under which this process has a run; a row instead where it is complete, unless
        `again`, or where a living process is at it.
        """
        import optuna

        token = uuid4().hex
        with _named_errors(self.where):
            if (other := self._other(key, again)) is not None:
                return other
            attributes = {KEY: key, OWNER: _owner(), TOKEN: token}
            state = optuna.trial.TrialState.RUNNING
            self.study.add_trial(optuna.trial.create_trial(state=state, user_attrs=attributes))
            own = next(trial for trial in self._trials(key) if trial.user_attrs.get(TOKEN) == token)
            if (other := self._other(key, again, before=own.number)) is None:
                return own.number
            self.study.tell(own.number, state=optuna.trial.TrialState.FAIL)
            return other

    def end(self, number: int, key: str, row: SweepRun | None) -> None:
        """Give a run back, with what it gave; without, it is tried again another time."""
        import optuna

        with _named_errors(self.where):
            if row is not None:
                # a trial of its own: only a new one takes its row and its state at once
                attributes = {KEY: key, RUN: json.loads(row.model_dump_json())}
                self.study.add_trial(optuna.trial.create_trial(value=0.0, user_attrs=attributes))
            self.study.tell(number, state=optuna.trial.TrialState.FAIL)

    def _trials(self, key: str) -> list[optuna.trial.FrozenTrial]:
        trials = self.study.get_trials(deepcopy=False)
        return [trial for trial in trials if trial.user_attrs.get(KEY) == key]

    def _other(self, key: str, again: bool, before: float = math.inf) -> SweepRun | None:
        """The newest row of a complete run, or one that says who is at it."""
        from optuna.trial import TrialState

        for trial in reversed(self._trials(key)):
            if trial.state == TrialState.COMPLETE and not again:
                return SweepRun.model_validate(trial.user_attrs[RUN])
            owner: Any = trial.user_attrs.get(OWNER)
            is_running = trial.state == TrialState.RUNNING and trial.number < before
            if is_running and _is_alive(owner):
                note = f"not run here: process {owner[1]} on {owner[0]} is at it"
                return SweepRun(name=key, parameters={}, note=note)
        return None


def _owner() -> list[Any]:
    """This process, so that others can tell whether it still runs."""
    return [platform.node(), os.getpid(), _started(os.getpid())]


def _check_same(
    where: str | None,
    kept: Mapping[str, Any],
    about: Mapping[str, Any],
    choices: Mapping[str, Any],
) -> None:
    """Raise unless a study is about the same model, machine and version as this search."""
    if kept.get("schema") != SCHEMA:
        raise FileError(
            f"the study in {where} has schema {kept.get('schema')}, and this version writes "
            f"{SCHEMA}; give another study=."
        )
    for name, value in about.items():
        if kept.get(name) != value:
            raise FileError(
                f"the study in {where} is of another {name}: {kept.get(name)}, where this search "
                f"has {value}; give another study=."
            )
    # whether a pool pays is measured anew by each search; a study keeps its answer
    others = [
        axis for axis in choices if axis != "memory" and kept["choices"].get(axis) != choices[axis]
    ]
    if others:
        raise FileError(
            f"the study in {where} chooses among others than this search ({', '.join(others)}); "
            "give the same engines= and may_train=, or another study=."
        )


def _storage(where: str | None) -> optuna.storages.BaseStorage | None:
    """Optuna's storage. Of processes that create its tables at the same moment all but one fail,
    and find them when they try again.
    """
    import optuna
    import sqlalchemy

    if where is None:
        return None
    for pause in PAUSES_S:
        with suppress(sqlalchemy.exc.OperationalError, sqlalchemy.exc.IntegrityError):
            return optuna.storages.RDBStorage(where)
        time.sleep(pause)
    return optuna.storages.RDBStorage(where)


@contextmanager
def _named_errors(where: str | None) -> Iterator[None]:
    """Errors of the database, as a sentence that names it."""
    import optuna
    import sqlalchemy

    kinds = (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, OSError)
    try:
        yield
    except kinds as error:
        cause = getattr(error, "orig", None) or error.__cause__ or error
        reason = first_line(getattr(cause, "orig", None) or cause)
        raise FileError(
            f"the study in {where} cannot be used ({reason}); give another study=, or set "
            f"{HISTORY_OFF}=0."
        ) from error


def _is_alive(owner: Any) -> bool:
    """Whether the process that began a trial still runs, here or on another machine."""
    if not isinstance(owner, list) or len(owner) != 3:
        return False
    node, pid, started = owner
    if node == platform.node() and pid == os.getpid():
        return False  # an earlier search of this process, which a full disk ended
    return node != platform.node() or (started is not None and _started(pid) == started)


def _started(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None

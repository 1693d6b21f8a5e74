"""The subject of a checklist: the user's own loop, or a workload that is called a few times."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from ...errors import WorkloadError
from ...workload import Derived, Workload, running, workload_of

CALLS = 3


@dataclass(frozen=True)
class Subject:
    """A loop to watch, and the workload that it calls if known."""

    name: str
    loop: Callable[[], Any]
    work: Workload | None = None
    origin: Workload | None = None  # the workload that a variant was made from
    own_threads: int | None = None
    baseline_metric: float | None = None

    @contextmanager
    def ready(self) -> Iterator[None]:
        """A workload runs in eval mode and without gradients; a user's loop runs as it is."""
        with running(self.work.model) if self.work is not None else nullcontext():
            yield


def subject_of(
    subject: Workload | Derived | Callable[[], Any], baseline_metric: float | None
) -> Subject:
    """The subject of a workload or a loop; raises for anything else."""
    if baseline_metric is not None and not math.isfinite(baseline_metric):
        raise WorkloadError(
            f"A baseline metric of {baseline_metric} compares with nothing; give a finite number."
        )
    if isinstance(subject, nn.Module) or not callable(subject):
        return _of_workload(subject, baseline_metric)  # type: ignore[arg-type]
    _check_runs_when_called(subject)
    return Subject(_name(subject), subject, baseline_metric=baseline_metric)


def _check_runs_when_called(loop: Callable[[], Any]) -> None:
    if inspect.isgeneratorfunction(loop) or inspect.iscoroutinefunction(loop):
        raise WorkloadError(
            f"{_name(loop)} only begins when it is iterated or awaited; wrap it: "
            "lambda: list(loop()), or asyncio.run."
        )
    try:
        inspect.signature(loop).bind()
    except TypeError as error:
        raise WorkloadError(
            f"The loop is called without arguments, and {_name(loop)} has some ({error}); wrap it: "
            "lambda: train(model, data)."
        ) from error
    except ValueError:
        return  # some callables written in C have no signature; the call itself will raise


def _of_workload(subject: Workload | Derived, baseline_metric: float | None) -> Subject:
    work = workload_of(subject)
    origin = getattr(subject, "work", None)

    def call() -> None:
        for _ in range(CALLS):
            work.inputs.clone()(work.model)

    return Subject(
        work.name,
        call,
        work,
        origin=origin if isinstance(origin, Workload) else None,
        own_threads=None if isinstance(subject, Workload) else subject.own_threads,
        baseline_metric=baseline_metric,
    )


def _name(loop: Callable[[], Any]) -> str:
    name = getattr(loop, "__name__", type(loop).__name__)
    return "your loop" if name == "<lambda>" else name

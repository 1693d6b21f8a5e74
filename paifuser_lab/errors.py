"""The exceptions of this package, a tree from `PaifuserError` down.

Every message says in one sentence what was wrong with which layer, file or value, and what to
do.

Long work is stopped by one of them: it calls `should_stop` regularly and raises StoppedError when
that is true. Ctrl-C is handled the same way: `keep_when_stopped` catches both if there are results
to keep, else the caller gets them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any


class PaifuserError(Exception):
    """The base class: `except PaifuserError` catches every error that this package raises."""


class WorkloadError(PaifuserError):
    """A model, its inputs or its data do not fit together."""


class UnknownModelError(WorkloadError):
    """No model of that name."""


class MissingInputsError(WorkloadError):
    """A model came without example inputs, and its first layer does not determine them."""


class ForwardError(WorkloadError):
    """The model failed on its inputs."""

    def __init__(self, message: str, *, layer: str) -> None:
        super().__init__(message)
        self.layer = layer


class RecipeError(PaifuserError):
    """A recipe cannot be read, or does not fit this model."""


class StepError(PaifuserError):
    """A step failed or was not exact enough; nothing was changed."""


class StoppedError(StepError):
    """A long step was stopped before its end; its work is kept, and it can resume from there."""


class ExportError(StepError):
    """A model cannot be exported as asked; no file was changed."""


class ParityError(ExportError):
    """An exported model's outputs differ from the live model's; no file was changed."""

    def __init__(self, message: str, *, difference: Any = None) -> None:
        super().__init__(message)
        self.difference = difference  # a LayerDifference; None where no layer can be compared


class NotVerifiableError(PaifuserError):
    """A converted file cannot be run on this machine, so its outputs are not compared."""


class MeasureError(PaifuserError):
    """Something could not be measured."""


class DataError(StepError, MeasureError):
    """A batch of the workload's data cannot be read or used; nothing was changed or measured."""


class KernelError(PaifuserError):
    """A CUDA kernel does not compile, does not load, or got invalid arguments."""


class PoolError(PaifuserError):
    """A memory pool cannot be had here, has an impossible limit, or is used twice."""


class AccelerationError(PaifuserError):
    """A training loop cannot be accelerated in this way, or already is."""


class ParallelError(PaifuserError):
    """Several processes disagree, cannot find each other, or one of them failed."""


class StreamError(PaifuserError):
    """A stream cannot start or go on: its source, a stage, its sink or the cluster failed."""


class MissingExtraError(PaifuserError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, *, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs {package}, which is not installed: pip install "
            f"'paifuser-lab[{extra}]'."
        )


def optional_module(name: str, *, extra: str, needed_for: str, package: str = "") -> Any:
    """A module of an optional package, imported now; raises if that is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        missing = package or name.partition(".")[0]
        raise MissingExtraError(missing, extra=extra, needed_for=needed_for) from error


class FileError(PaifuserError):
    """A file is missing, damaged, or would have executed code."""


def first_line(error: BaseException) -> str:
    """An error's first line, and the next if it ends in a colon; else the name of its class."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    count = next(
        (index for index, line in enumerate(lines, 1) if not line.rstrip().endswith(":")),
        len(lines),
    )
    return " ".join(line.strip() for line in lines[:count])


def message_of(error: Exception) -> str:
    """One of this package's errors in its own words; another by its class and first line."""
    is_ours = isinstance(error, PaifuserError)
    return str(error) if is_ours else f"{type(error).__name__}: {first_line(error)}"


ShouldStop = Callable[[], bool]
NO_RESULT = "was stopped before there was a result; nothing was changed."


@dataclass
class Ending:
    """How a block of work ended."""

    is_stopped: bool = False


def stop_if_asked(should_stop: ShouldStop | None, message: str = NO_RESULT) -> None:
    """Raise StoppedError if `should_stop` returns true."""
    if should_stop is not None and should_stop():
        raise StoppedError(message)


@contextmanager
def keep_when_stopped(has_results: Callable[[], bool] = lambda: True) -> Iterator[Ending]:
    """End only the block on a stop or Ctrl-C inside it, if there are results to keep."""
    ending = Ending()
    try:
        yield ending
    except (StoppedError, KeyboardInterrupt):
        if not has_results():
            raise
        ending.is_stopped = True


@contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM, by which `kill`, `timeout` and batch schedulers end a process, keeps the results so
    far, as Ctrl-C does; a forked worker that receives it just ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    command = os.getpid()

    def end(number: int, frame: object) -> None:
        if os.getpid() != command:
            os._exit(128 + number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""Writes that are killed, whose disk fills or whose memory ends at a random moment: what was whole
before is whole after, nothing half-written is read as whole, and the next run goes on.

Each fault happens to a fork of this process, which has imported everything.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import psutil
import torch
import typer

from paifuser_lab.bench.runner import BenchRecord, Columns, Names, check_known, measured_rows
from paifuser_lab.errors import MeasureError, PaifuserError
from paifuser_lab.machine import threads
from paifuser_lab.records import Record

from .fault_tasks import TASKS, Task

KINDS = ("kill", "full disk", "no memory")
DONE, REFUSED, FAILED = 0, 3, 4  # how a fork ends


class FaultRow(Record):
    """One kind of fault in one task."""

    task: str
    fault: str
    tried: int
    hit: int = 0  # the write was under way, and ended by it
    lost: tuple[str, ...] = ()  # what was lost, or how it failed otherwise than in a sentence


class FaultsBench(BenchRecord):
    """The result of `python -m benchmarks faults`."""

    rows: tuple[FaultRow, ...] = ()
    caption = "writes disturbed at random moments on {0.machine}"
    columns: ClassVar[Columns] = {
        "write": "task",
        "fault": "fault",
        "tried": "tried",
        "ended by it": "hit",
        "survived": lambda row: str(row.tried - len(row.lost)),
        "lost": lambda row: str(len(row.lost)),
    }

    @property
    def line(self) -> str:
        """How many in all."""
        tried, lost = sum(row.tried for row in self.rows), sum(len(row.lost) for row in self.rows)
        return f"{tried} tried, {sum(row.hit for row in self.rows)} ended by the fault, {lost} lost"

    @property
    def summary(self) -> str:
        """How many in all, and each loss."""
        lines = [f"{row.task}, {row.fault}: {text}" for row in self.rows for text in row.lost]
        return "\n".join([self.line, *lines, *self.failed])

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost."""
        return not self.failures and not any(row.lost for row in self.rows)


def bench(
    names: Names = None,
    *,
    times: Annotated[int, typer.Option(help="Faults of each kind in each task.", min=1)] = 70,
) -> FaultsBench:
    """Disturb writes at random moments: killed, on a full disk, without memory."""
    check_known(names or (), TASKS)
    os.environ["PAIFUSER_HISTORY"] = "0"
    # OpenMP's threads do not survive a fork, so nothing may start any: a search tries every core
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with threads(1):
        measured = measured_rows(
            names or tuple(TASKS), lambda name: _rows(TASKS[name](), times), "tasks"
        )
    return FaultsBench(**measured)


def _rows(task: Task, times: int) -> Iterator[FaultRow]:
    times = max(1, round(times * task.share))
    with tempfile.TemporaryDirectory(prefix="paifuser-faults-") as name:
        disturbed = _Disturbed.write(task, Path(name))
        for kind in KINDS:
            yield disturbed.row(kind, times, random.Random(kind))


@dataclass(frozen=True)
class _Disturbed:
    """A task in a folder, the folder as it was before, and how long and large a write is."""

    task: Task
    folder: Path
    whole: Path
    took_s: float
    size: int  # bytes of the largest file

    @classmethod
    def write(cls, task: Task, place: Path) -> _Disturbed:
        """Write once undisturbed, after a first write where it is a second that is disturbed."""
        folder, whole = place / "folder", place / "whole"
        folder.mkdir()
        if task.is_again:
            _forked(lambda: task.write(folder))
        if (folder / "model").is_dir():
            (folder / "model" / "of my own").write_text("kept")
        shutil.copytree(folder, whole)
        began = time.perf_counter()
        code, text = _forked(lambda: task.write(folder))
        took = time.perf_counter() - began
        if code != DONE:
            raise MeasureError(f"undisturbed, it fails: {text}")
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        return cls(task, folder, whole, took, max(sizes))

    def row(self, kind: str, times: int, draw: random.Random) -> FaultRow:
        """Disturb it so often, each time from the same state."""
        hit, lost = 0, []
        for _ in range(times):
            shutil.rmtree(self.folder)
            shutil.copytree(self.whole, self.folder)
            kill_after = draw.uniform(0, self.took_s) if kind == "kill" else None
            code, text = _forked(self._limited(_limit(kind, draw, self.size)), kill_after)
            hit += code != DONE
            # any error may say that memory is out
            wrong = f"during it: {text}" if code == FAILED and kind != "no memory" else ""
            if wrong := wrong or self._loss():
                lost.append(wrong)
        return FaultRow(task=self.task.name, fault=kind, tried=times, hit=hit, lost=tuple(lost))

    def _limited(self, limit: Callable[[], None]) -> Callable[[], None]:
        def write() -> None:
            limit()
            self.task.write(self.folder)

        return write

    def _loss(self) -> str:
        """What is lost after the fault, or after the next run; '' for nothing."""
        for when, call in (("after it", self.task.check), ("the next run", self.task.write)):
            code, text = _forked(lambda: call(self.folder))  # noqa: B023
            if code != DONE:
                return f"{when}: {text}"
        left = [path.name for path in self.folder.rglob(".*")]
        return f"the next run left {left[0]}" if left else ""


def _limit(kind: str, draw: random.Random, size: int) -> Callable[[], None]:
    """Takes something from a fork: every file ends at a byte, as on a full disk, or memory does."""
    if kind == "full disk":
        most = draw.randrange(size + 1)
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if kind == "no memory":
        most = psutil.Process().memory_info().vms + draw.randrange(1 << 26)
        return lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return lambda: None


def _forked(call: Callable[[], object], kill_after: float | None = None) -> tuple[int, str]:
    """How a fork ended that called this: done, refused in a sentence or by the kill, or failed."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        logging.disable()
        torch.set_num_threads(1)
        code, text = DONE, ""
        try:
            call()
        except PaifuserError as error:
            code, text = REFUSED, str(error)
        except BaseException:
            code, text = FAILED, " | ".join(traceback.format_exc().splitlines()[-4:])
        os.write(write, text.encode()[:4000])
        os._exit(code)
    os.close(write)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        is_ours = os.WTERMSIG(status) == signal.SIGKILL and kill_after is not None
        return (REFUSED, "") if is_ours else (FAILED, f"signal {os.WTERMSIG(status)}")
    return os.WEXITSTATUS(status), text

"""Ranks killed at random while they train under torchrun: whether all go on from the last
checkpoint, how long that takes, and whether the training ends as one that was left alone.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from pydantic import Field

from paifuser_lab.bench.runner import BenchRecord, Columns, Keep
from paifuser_lab.errors import MeasureError, keep_when_stopped
from paifuser_lab.parallel.torchrun import torchrun_command
from paifuser_lab.records import Record

SCRIPT = Path(__file__).with_name("parallel_kill_rank.py")
STEPS_A_KILL = 12
SYNC_FREQUENCY = 8
ASKED_EVERY_S = 0.02
WAIT_S = 120.0  # for a rank to take its next step


class Kill(Record):
    """One rank killed after a step, and the step from which all went on."""

    rank: int = Field(ge=0)
    step: int = Field(ge=0)
    resumed_at: int = Field(ge=0, description="the first step that was taken again")
    seconds: float = Field(description="from the kill to the next step")


class KillBench(BenchRecord):
    """The result of `python -m benchmarks parallel --kills N`."""

    machine: str = ""  # of no matter
    processes: int
    steps: int
    kills: tuple[Kill, ...] = ()
    row_field = "kills"
    columns: ClassVar[Columns] = {
        "rank": "rank",
        "killed after step": "step",
        "went on from": "resumed_at",
        "seconds": lambda kill: f"{kill.seconds:.1f}",
    }
    different_steps: int = Field(
        default=0, description="steps after which a rank's weights were not those of the reference"
    )
    is_equal: bool | None = Field(
        default=None,
        description="whether all ranks end with the reference's weights; None if stopped early",
    )

    @property
    def title(self) -> str:
        """How many kills, in how long a training."""
        kills = f"{len(self.kills)} {'kill' if len(self.kills) == 1 else 'kills'}"
        return f"{kills} in {self.steps} steps of {self.processes} processes"

    @property
    def is_good(self) -> bool:
        """Whether it was not stopped early, and ends with the reference's weights."""
        return self.is_equal is True

    @property
    def summary(self) -> str:
        """The times to the next step, and whether the weights are those of the reference."""
        seconds = [kill.seconds for kill in self.kills]
        times = (
            f" · next step after {median(seconds):.1f} s (median), {max(seconds):.1f} s at most"
            if seconds
            else ""
        )
        if self.is_equal is None:
            return f"{self.title}{times} · stopped early, so that its weights were not compared"
        end = "equal to" if self.is_equal else "different from"
        return (
            f"{self.title}{times} · weights {end} the undisturbed training's, "
            f"{self.different_steps} steps differed"
        )


def kill_ranks(
    count: int = 40,
    *,
    processes: int = 2,
    alone: Path | None = None,
    keep: Keep = lambda record: None,
) -> KillBench:
    """Train twice under torchrun: left alone, and with `count` kills of a random rank at a random
    moment, one after the other. `alone` is the folder of a training of as many steps that was left
    alone, where there is one. `keep` is called with the record so far; stopped after a kill, it
    returns that.
    """
    steps = STEPS_A_KILL * (count + 1)
    record = KillBench(processes=processes, steps=steps)
    with tempfile.TemporaryDirectory(prefix="paifuser-kills-") as name:
        disturbed = Path(name, "disturbed")
        if alone is None:
            alone = Path(name, "alone")
            _attempt(alone, steps, processes, 0, lambda process: None)
        draw = random.Random(0)

        def disturb(process: subprocess.Popen[bytes]) -> None:
            nonlocal record
            for index in range(count):
                low = STEPS_A_KILL * index + 1
                target = draw.randint(low, low + STEPS_A_KILL - 1)
                rank = draw.randrange(processes)
                kill = _kill(disturbed, process, rank, target, draw.random())
                record = record.model_copy(update={"kills": (*record.kills, kill)})
                keep(record)

        with keep_when_stopped(lambda: bool(record.kills)) as ending:
            _attempt(disturbed, steps, processes, count, disturb)
        if ending.is_stopped:
            return record
        expected = [
            {row["step"]: row["hash"] for row in _rows(alone, rank)} for rank in range(processes)
        ]
        different = sum(
            row["hash"] != expected[rank][row["step"]]
            for rank in range(processes)
            for row in _rows(disturbed, rank)
        )
        ends = {(folder / f"end-{rank}").read_text() for folder in (alone, disturbed)
                for rank in range(processes)}  # fmt: skip
    return record.model_copy(update={"different_steps": different, "is_equal": len(ends) == 1})


def _attempt(
    folder: Path,
    steps: int,
    processes: int,
    restarts: int,
    disturb: Callable[[subprocess.Popen[bytes]], None],
) -> None:
    """One training under torchrun, to its end."""
    folder.mkdir()
    command, environment = torchrun_command(
        SCRIPT,
        [str(folder), str(steps), str(SYNC_FREQUENCY)],
        processes=processes,
        restarts=restarts,
        folder=folder,
    )
    # the script's own folder has files of the names of Python's modules
    environment |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            disturb(process)
            code = process.wait(WAIT_S + steps)
        except BaseException:
            process.terminate()  # torchrun ends its ranks then
            process.wait()
            raise
    if code:
        raise MeasureError(f"the training ended with code {code}: {_last_line(folder / 'log')}")


def _kill(
    folder: Path, process: subprocess.Popen[bytes], rank: int, step: int, part: float
) -> Kill:
    """Kill a rank once it has come to a step, somewhere within the next."""
    row = _wait_for(folder, process, rank, lambda row: row["step"] >= step)
    time.sleep(part * 0.03)
    os.kill(row["pid"], signal.SIGKILL)
    killed = time.time()
    again = _wait_for(folder, process, rank, lambda later: later["pid"] != row["pid"])
    first = next(other for other in _rows(folder, rank) if other["pid"] == again["pid"])
    return Kill(rank=rank, step=row["step"], resumed_at=first["step"], seconds=first["at"] - killed)


def _wait_for(
    folder: Path,
    process: subprocess.Popen[bytes],
    rank: int,
    is_it: Callable[[dict[str, Any]], bool],
) -> dict[str, Any]:
    """The last row of a rank, once it is what is waited for."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        rows = _rows(folder, rank)
        if rows and is_it(rows[-1]):
            return rows[-1]
        if process.poll() is not None:
            raise MeasureError(f"the training ended early: {_last_line(folder / 'log')}")
        time.sleep(ASKED_EVERY_S)
    raise MeasureError(f"rank {rank} took no step within {WAIT_S:g} s.")


def _rows(folder: Path, rank: int) -> list[dict[str, Any]]:
    """What a rank has written; a line that a kill cut short is left out."""
    path = folder / f"rank-{rank}.jsonl"
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text().splitlines():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def _last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if "Error" in line]
    return lines[-1] if lines else "it wrote no error"

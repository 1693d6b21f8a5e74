"""Run a function in several processes of this machine, as ranks of one group, from a notebook or a
script; nothing is left running, however it ends.

The processes find each other through a file and exchange over the loopback interface: no port is
chosen. A function of a notebook is sent as it is, by cloudpickle.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cloudpickle
import torch

from ..arguments import check_count
from ..errors import ParallelError, StoppedError
from .group import MOST_PROCESSES, TIMEOUT_S, on_loopback

GRACE_S = 3.0  # that the other ranks have to say why, once one has failed
ASKED_EVERY_S = 0.2
OnLog = Callable[[int, str], None]  # rank, line
OnTold = Callable[[int, Any], None]  # rank, value


def run(
    function: Callable[..., Any],
    *args: Any,
    processes: int = 2,
    timeout_s: float = TIMEOUT_S,
    threads: int | None = None,
    on_log: OnLog | None = None,
    on_told: OnTold | None = None,
    should_stop: Callable[[], bool] | None = None,
    **kwargs: Any,
) -> list[Any]:
    """Call `function(*args, **kwargs)` in several processes and return the result of each rank.

    They are one group of torch.distributed, on gloo or, with a GPU each, NCCL. What a rank prints
    is printed here, with its rank; what it gives to `parallel.tell` goes to `on_told`. If one
    fails or is killed, all end, and the error names the rank and the reason. A rank that waits
    longer than `timeout_s` for another is an error, too. An interrupt ends all of them. `threads`
    are those of each; left out, this process's are divided.
    """
    _check(function, processes, timeout_s)
    count = threads or max(1, torch.get_num_threads() // processes)
    call = _pickled((function, args, kwargs))
    with tempfile.TemporaryDirectory(prefix="paifuser-") as folder:
        job = {"world": processes, "store": str(Path(folder, "store")), "timeout_s": timeout_s}
        job |= {"threads": count, "call": call}
        ranks: list[Rank] = []
        try:
            for rank in range(processes):
                with _interrupts_later():
                    ranks.append(Rank(rank, job, on_log or print_line, on_told))
            return _results(ranks, timeout_s, should_stop or (lambda: False))
        finally:
            with _interrupts_later(), contextlib.ExitStack() as ends:
                for started in ranks:  # each is ended, also where the end of another fails
                    ends.callback(started.end)


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C, and SIGTERM where handled, wait for the block's end: no process is half started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    came: list[Any] = []
    for number in handled:
        signal.signal(number, lambda *event: came.append(event))
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
    if came:
        handled[came[0][0]](*came[0])


def print_line(rank: int, line: str) -> None:
    """Print a line of a rank's output."""
    sys.stdout.write(f"[rank {rank}] {line}\n")
    sys.stdout.flush()


class Rank:
    """One of the processes, seen from here."""

    def __init__(
        self, rank: int, job: dict[str, Any], on_log: OnLog, on_told: OnTold | None
    ) -> None:
        self.rank, self.on_log, self.on_told = rank, on_log, on_told
        self.result: list[Any] = []  # one at most
        self.failure: dict[str, Any] | None = None
        self._text = b""
        self.connection, theirs = Pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "paifuser_lab.parallel.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt of the terminal reaches this process alone
                env=_environment(rank, job["world"], job["threads"]),
            )
        finally:
            theirs.close()
        assert self.process.stdout is not None
        self.output: int | None = self.process.stdout.fileno()
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which is seen later
            self.connection.send_bytes(pickle.dumps(job | {"rank": rank}))

    @property
    def is_over(self) -> bool:
        """Whether it has given its result or failed."""
        return bool(self.result) or self.failure is not None

    def read(self, source: Connection | int) -> None:
        """Take what has come from the connection or from the output."""
        if source == self.output:
            self._read_output()
            return
        try:
            kind, value = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            self._note_end()
            return
        if kind == "told":
            if self.on_told is not None:
                self.on_told(self.rank, value)
        elif kind == "result":
            self.result = [value]
        else:
            self.failure = value

    def sources(self) -> list[Connection | int]:
        """What may bring something."""
        output: list[Connection | int] = [] if self.output is None else [self.output]
        return output if self.is_over else [self.connection, *output]

    def end(self) -> None:
        """End the process and its children; one that has given its result ends by itself."""
        with contextlib.suppress(OSError):
            if self.result:
                self.connection.send_bytes(b"end")
        self.connection.close()
        if self.result:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        while self.output is not None and wait([self.output], 0):
            self._read_output()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _read_output(self) -> None:
        assert self.output is not None
        content = os.read(self.output, 1 << 16)
        *lines, self._text = (self._text + content).split(b"\n")
        if not content:
            self.output, lines = None, [self._text] if self._text else []
        for line in lines:
            self.on_log(self.rank, line.decode(errors="replace"))

    def _note_end(self) -> None:
        """Note how a process ended that gave neither a result nor an error."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its children
        code = self.process.wait()
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code} and without a result"
        )
        self.failure = {"message": how, "traceback": "", "is_by_another": False, "is_killed": True}


def _results(ranks: list[Rank], timeout_s: float, should_stop: Callable[[], bool]) -> list[Any]:
    """The result of each rank; raises as soon as it is clear why there is none."""
    failed_at: float | None = None
    while not all(rank.is_over for rank in ranks):
        sources = {source: rank for rank in ranks for source in rank.sources()}
        for source in wait(list(sources), ASKED_EVERY_S):
            sources[source].read(source)  # type: ignore[index,arg-type]
        if should_stop():
            raise StoppedError("was stopped; its processes were ended.")
        now = time.monotonic()
        if failed_at is None and any(rank.failure for rank in ranks):
            failed_at = now
        if failed_at is not None and now - failed_at > GRACE_S:
            break
    if any(rank.failure for rank in ranks):
        raise failure_of(ranks, timeout_s)
    return [rank.result[0] for rank in ranks]


def failure_of(ranks: list[Rank], timeout_s: float) -> ParallelError:
    """The failure that began it: a rank killed, else an error of its own, else waiting in vain."""
    world = len(ranks)
    failed = [(rank, rank.failure) for rank in ranks if rank.failure]
    rank, failure = min(
        failed,
        key=lambda pair: (not pair[1].get("is_killed"), pair[1].get("is_by_another", False)),
    )
    waiting = [str(other.rank) for other in ranks if not other.is_over]
    words = f"rank {rank.rank} of {world} {'' if failure.get('is_killed') else 'failed: '}"
    message = f"{words}{failure['message'].rstrip('.')}"
    if failure.get("is_by_another") and waiting:
        message += (
            f"; it waited up to {timeout_s:g} s for rank {', '.join(waiting)}, still at work: look "
            "at what that does, or raise timeout_s"
        )
    ended = [str(other.rank) for other in ranks if other.result]
    if failure.get("is_by_another") and ended:
        message += (
            f"; rank {', '.join(ended)} had ended already: do all take as many steps, and all part "
            "in each exchange?"
        )
    error = ParallelError(f"{message}; all {world} were ended.")
    if failure["traceback"]:
        error.add_note(failure["traceback"])
    return error


def _environment(rank: int, world: int, threads: int) -> dict[str, str]:
    """The environment of a rank: what torchrun would set, and the parent's import path."""
    paths = [path or os.getcwd() for path in sys.path]
    own = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": world,
        "OMP_NUM_THREADS": threads,
        "PYTHONPATH": os.pathsep.join(paths),
        "PAIFUSER_PROGRESS": "none",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": 1,
    }
    return {**os.environ, **on_loopback(), **{key: str(value) for key, value in own.items()}}


def _pickled(call: tuple[Any, ...]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(call))
    except Exception as error:  # each object raises its own kind of error
        raise ParallelError(
            f"the function or its arguments cannot be sent to another process "
            f"({type(error).__name__}: {error}); give what can be pickled, and make the rest "
            "inside the function."
        ) from error


def _check(function: Any, processes: Any, timeout_s: Any) -> None:
    if not callable(function):
        raise ParallelError(f"run takes a function, not a {type(function).__name__}.")
    check_count("processes", processes, most=MOST_PROCESSES, error=ParallelError)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise ParallelError(f"timeout_s={timeout_s!r} is no time to wait; give seconds above 0.")
    if not hasattr(os, "killpg"):
        raise ParallelError("run starts processes on Linux and macOS only; use torchrun here.")

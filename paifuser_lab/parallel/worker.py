"""What each process of `parallel.run` executes: one call, as one rank, and its result sent back.

It ends with the process that started it: the connection between them closes, also where that
process was killed.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from threading import Event, Lock, Thread
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from ..errors import DataError, PaifuserError, first_line
from . import group

BY_ANOTHER_RANK = re.compile(
    r"gloo|nccl|timed? ?out|connection (closed|reset|refused)|broken pipe", re.IGNORECASE
)


class Line:
    """The connection to the process that started this one."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.is_done, self.may_end = connection, Event(), Event()
        self._lock = Lock()

    def send(self, kind: str, value: Any) -> None:
        """Send one message."""
        content = cloudpickle.dumps((kind, value))
        with self._lock:
            self.connection.send_bytes(content)

    def watch(self) -> None:
        """Wait until the other side closes; a call that still runs ends then, with its children."""
        try:
            self.connection.recv_bytes()
        except (EOFError, OSError):
            if not self.is_done.is_set():
                os.killpg(0, signal.SIGKILL)
        self.may_end.set()


def main(descriptor: int) -> None:
    """Execute the call that comes through this file descriptor."""
    line = Line(Connection(descriptor))
    job = pickle.loads(line.connection.recv_bytes())  # of the process that started this one
    Thread(target=line.watch, daemon=True).start()
    group._send.append(lambda value: line.send("told", value))
    torch.set_num_threads(job["threads"])
    try:
        store = FileStore(job["store"], job["world"])
        group.initialise(store, job["rank"], job["world"], job["timeout_s"])
        function, args, kwargs = pickle.loads(job["call"])
        result = function(*args, **kwargs)
        sys.stdout.flush()
        line.send("result", result)
    except BaseException as error:
        line.send("failed", _failure(error))
    line.is_done.set()
    line.may_end.wait()  # the others may still exchange with this rank
    if dist.is_initialized():
        dist.destroy_process_group()


def _failure(error: BaseException) -> dict[str, Any]:
    is_ours = isinstance(error, PaifuserError)
    text, cause = first_line(error), error.__cause__ if is_ours else error
    if isinstance(error, DataError):  # a loader waits for its own processes, not for another rank
        cause = None
    return {
        "message": text if is_ours else f"{type(error).__name__}: {text}",
        "traceback": "".join(traceback.format_exception(error)),
        "is_by_another": isinstance(cause, RuntimeError)
        and bool(BY_ANOTHER_RANK.search(first_line(cause))),
    }


if __name__ == "__main__":
    main(int(sys.argv[1]))

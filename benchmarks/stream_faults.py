"""Streams over a real Ray on this machine while its parts are killed: workers, a machine (a raylet
with all its processes), the process that drives the stream; and one whose object store is small.

All but the first run in a process and a folder of their own, so that no cluster of the user's is
joined, and none of theirs is left where `ray.init()` would find it.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from paifuser_lab.errors import MeasureError
from paifuser_lab.machine.cluster import connect, ray_module, signals_kept
from paifuser_lab.streaming import Items, Result, Stream

from .stream_rows import GROUP, PART, SERVICE_S, SimulatedWorker, StreamRow, row, timed_row

KILL_EVERY_S = 5.0
KILL_FRAMES = 10_000
KILL_WORKERS = 6
USUAL_S = 8.0  # of a case, for which it has that many frames
MACHINES = 4
POLL_S = 0.1
STORE_BYTES = 80 << 20
LARGE_BYTES = 8 << 20  # of a frame; those on their way are more than the store holds


def workers_killed(seconds: float) -> StreamRow:
    """A worker's process is killed every 5 s."""
    count = int(KILL_FRAMES * min(seconds / USUAL_S, 1.0))
    ideal = KILL_WORKERS / SERVICE_S
    factors = (1.0,) * KILL_WORKERS
    return timed_row("workers killed", "ray", factors, count, ideal, meanwhile=_kill)


def _kill(stream: Stream, is_over: threading.Event) -> None:
    chance = random.Random(0)
    while not is_over.is_set():
        up = [node.host for node in stream.report.nodes if node.state == "up"]
        if up:
            with suppress(ProcessLookupError):  # it may have died in the meantime
                os.kill(int(chance.choice(up).rpartition(" ")[2]), signal.SIGKILL)
        is_over.wait(KILL_EVERY_S)


def _machine_killed(seconds: float) -> StreamRow:
    """One of four raylets is killed with its worker; later another machine joins."""
    ray = ray_module()
    from ray.cluster_utils import Cluster

    machine = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster, begun = Cluster(), threading.Event()
    try:
        with signals_kept(), ThreadPoolExecutor(1) as thread:
            machines = [cluster.add_node(**machine) for _ in range(MACHINES)]
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            ideal = MACHINES / SERVICE_S
            future = thread.submit(
                timed_row,
                "machine killed",
                "ray",
                (1.0,) * MACHINES,
                int(seconds * ideal),
                ideal,
                part=1.0,
                meanwhile=lambda stream, is_over: begun.set(),
            )
            # machines start on the main thread alone
            while not begun.wait(POLL_S) and not future.done():
                continue
            time.sleep(seconds / 4)
            cluster.remove_node(machines[-1], allow_graceful=False)
            time.sleep(seconds / 4)
            cluster.add_node(**machine)
            row: StreamRow = future.result()
            return row
    finally:
        ray.shutdown()
        cluster.shutdown()


def _small_store(seconds: float) -> StreamRow:
    """Frames of 8 MiB, more on their way than the object store holds."""
    ray = ray_module()
    try:
        with signals_kept():
            ray.init(
                address="local",
                num_cpus=2,
                object_store_memory=STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                _node_ip_address="127.0.0.1",
            )
        count = int(seconds * 2 / SERVICE_S / 4)
        return timed_row(
            "small store", "ray", (1.0, 1.0), count, None, group=2, payload=_large, window=8
        )
    finally:
        ray.shutdown()


def _large(index: int) -> bytes:
    return index.to_bytes(4, "little") * (LARGE_BYTES // 4)


def driver_killed(seconds: float) -> StreamRow:
    """The process that drives the stream is killed half-way, and started again with its journal."""
    with tempfile.TemporaryDirectory() as folder:
        count = int(seconds * 2 / SERVICE_S / GROUP) * GROUP
        try:
            _in_own_process(_journaled, folder, count, count // 2)
        except BrokenProcessPool:
            _in_own_process(_journaled, folder, count, None)
        else:
            raise MeasureError("the process that was to be killed ended by itself")
        lines = [line.split() for line in (Path(folder) / "lines").read_text().splitlines()]
    indices = [int(index) for index, *_ in lines]
    moments = [(float(moment), float(latency)) for *_, moment, latency in lines]
    return row("driver killed", "ray", 2, indices, moments, expected=count)


def _journaled(folder: str, count: int, killed_at: int | None) -> None:
    stream = Stream(
        Items(range(count), group=GROUP),
        SimulatedWorker(tempfile.mkdtemp(dir=folder), (1.0, 1.0)),
        sink=Lines(Path(folder) / "lines", killed_at),
        engine="ray",
        workers=2,
        options={"num_cpus": PART},
        journal=Path(folder) / "journal",
    )
    stream.run()


class Lines:
    """A line a frame: its index, its value, when it came and its latency; what is behind the length
    that was committed is cut off. Before the group of frame `killed_at` is committed, the process
    is killed.
    """

    name, is_resumable = "lines", True

    def __init__(self, path: Path, killed_at: int | None = None) -> None:
        self.path, self.killed_at = path, killed_at

    def open(self, token: str | None) -> None:
        self.file = self.path.open("ab")
        self.file.truncate(int(token or 0))

    def write(self, results: Sequence[Result]) -> str | None:
        for result in results:
            line = f"{result.index} {result.value} {time.monotonic()} {result.latency_ms}\n"
            self.file.write(line.encode())
        self.file.flush()
        if self.killed_at is not None and results[-1].index >= self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return str(self.file.tell())

    def close(self) -> None:
        self.file.close()

    abort = close


def _in_own_process(measure: Callable[..., Any], *arguments: Any) -> Any:
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder,
        ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=_prepare, initargs=(folder,)
        ) as pool,
    ):
        try:
            return pool.submit(measure, *arguments).result()
        except KeyboardInterrupt:  # of this process alone; it waits for the other to end
            for process in active_children():
                process.terminate()
            raise


def _prepare(folder: str) -> None:
    """A process with a Ray of its own, which it ends, too, when it is terminated."""
    os.environ["RAY_TMPDIR"] = folder
    os.environ.pop("RAY_ADDRESS", None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, whose process ends this one
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends it to all of a group
    raise KeyboardInterrupt


@contextmanager
def one_ray() -> Iterator[None]:
    """One Ray on this machine for several streams."""
    is_ours = connect(None, cpus=2)
    try:
        yield
    finally:
        if is_ours:
            ray_module().shutdown()


# cases that start a Ray of their own
APART: dict[str, Callable[[float], StreamRow]] = {
    "machine killed": partial(_in_own_process, _machine_killed),
    "driver killed": driver_killed,
    "small store": partial(_in_own_process, _small_store),
}

"""How long a frame takes that nothing is done with: streams, and what they could be replaced by.

Ways are measured in turn, several rounds of each. A call waits for its answer before the next one.
"""

from __future__ import annotations

import itertools
import logging
import queue
import statistics
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from paifuser_lab.bench.runner import INTERRUPTED, measure_each, measured
from paifuser_lab.machine.cluster import ray_module
from paifuser_lab.records import Record
from paifuser_lab.streaming import Items, Stream

from .stream_rows import PART

ROUNDS = 3
CALLS = 700  # of a round
ROWS = 120  # of a data set, whose rows are slower


class Overhead(Record):
    """Milliseconds of a frame that nothing is done with, one at a time."""

    way: str
    p50_ms: float
    p95_ms: float
    note: str = ""


def same(frame: Any) -> Any:
    """What is done with a frame."""
    return frame


def overheads(engines: Collection[str]) -> tuple[tuple[Overhead, ...], dict[str, str]]:
    """Each way of these engines in turn, `ROUNDS` times; and why some could not be measured."""
    ways = [way for way, engine in ENGINE_OF.items() if engine is None or engine in engines]
    latencies: dict[str, list[float]] = {way: [] for way in ways}
    failures: dict[str, str] = {}
    for _ in range(ROUNDS):
        if INTERRUPTED in failures:
            break
        failures |= measure_each(
            [way for way in ways if way not in failures],
            lambda way: latencies[way].extend(measured(WAYS[way])),
            "overheads",
        )
    complete = [way for way in ways if latencies[way] and way not in failures]
    return tuple(_overhead(way, latencies[way]) for way in complete), failures


def _overhead(way: str, latencies: list[float]) -> Overhead:
    ordered = sorted(latencies)
    p50, p95 = (ordered[int(share * len(ordered))] for share in (0.5, 0.95))
    note = ""
    if way == "Ray Data":
        mean = statistics.fmean(latencies)
        note = f"from one result to the next, {mean:.3g} ms on average, as it takes no single calls"
    return Overhead(way=way, p50_ms=p50, p95_ms=p95, note=note)


def _calls(call: Callable[[int], Any], count: int) -> list[float]:
    """Latencies of single calls; the first tenth is not counted."""
    latencies = []
    for frame in range(count):
        begun = time.perf_counter()
        call(frame)
        latencies.append(1e3 * (time.perf_counter() - begun))
    return latencies[count // 10 :]


def _plain_queues() -> list[float]:
    """A thread between two queues."""
    there: queue.Queue[int | None] = queue.Queue()
    back: queue.Queue[int] = queue.Queue()

    def serve() -> None:
        while (frame := there.get()) is not None:
            back.put(same(frame))

    def call(frame: int) -> None:
        there.put(frame)
        back.get()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        return _calls(call, CALLS)
    finally:
        there.put(None)
        thread.join()


def _stream(engine: Any, **options: Any) -> list[float]:
    """One worker, one group of one frame on its way."""
    stream = Stream(
        Items(range(CALLS), group=1), same, engine=engine, workers=1, window=1, **options
    )
    return [result.latency_ms for result in stream][CALLS // 10 :]


def _ray_call() -> list[float]:
    """An actor of Ray, called without a stream."""
    ray = ray_module()

    class Same:
        def call(self, frame: Any) -> Any:
            return frame

    actor = ray.remote(Same).options(num_cpus=PART).remote()
    try:
        return _calls(lambda frame: ray.get(actor.call.remote(frame)), CALLS)
    finally:
        ray.kill(actor)


def _ray_data() -> list[float]:
    """A data set of one row a block through a task each."""
    import ray.data as data

    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    rows = data.from_items(list(range(ROWS)), override_num_blocks=ROWS).map(same, num_cpus=PART)
    moments = []
    for _ in rows.iter_rows():
        moments.append(time.perf_counter())
    gaps = [1e3 * (later - earlier) for earlier, later in itertools.pairwise(moments)]
    return gaps[ROWS // 10 :]


def _ray_serve() -> list[float]:
    """A deployment of one replica, called through its handle."""
    from ray import serve

    @serve.deployment(ray_actor_options={"num_cpus": PART})
    class Same:
        def __call__(self, frame: Any) -> Any:
            return frame

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    try:
        deployment: Any = Same  # serve's decorator has no types
        handle = serve.run(deployment.bind(), name="overhead", route_prefix=None)
        return _calls(lambda frame: handle.remote(frame).result(), CALLS)
    finally:
        serve.shutdown()


WAYS: dict[str, Callable[[], list[float]]] = {
    "plain queues": _plain_queues,
    "threads": lambda: _stream("threads"),
    "ray": lambda: _stream("ray", options={"num_cpus": PART}),
    "a plain actor": _ray_call,
    "Ray Data": _ray_data,
    "Ray Serve": _ray_serve,
}
ENGINE_OF = dict.fromkeys(WAYS, "ray") | {"plain queues": None, "threads": "threads"}

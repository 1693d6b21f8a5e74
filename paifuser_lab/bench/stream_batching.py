"""Latency against throughput of dynamic batching, at rising rates of arrival and several rules."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..records import BatchingCurve, BatchingPoint
from ..streaming import Batcher, BatchRule

CALL_MS, ITEM_MS = 4.0, 1.0
RULES = (BatchRule(1, 0.0), BatchRule(4, 5.0), BatchRule(16, 5.0), BatchRule(16, 20.0))
RATES = (50.0, 100.0, 150.0, 300.0, 500.0, 700.0)
SECONDS = 1.5


def measure(
    call: Callable[[list[Any]], list[Any]] | None = None,
    *,
    rates: tuple[float, ...] = RATES,
    rules: tuple[BatchRule, ...] = RULES,
    seconds: float = SECONDS,
    name: str = "the call",
) -> BatchingCurve:
    """Each rule at each rate of arrival; without a `call` it is a sleep of 4 ms + 1 ms an item."""
    points = [_point(call or _sleep, rule, rate, seconds) for rule in rules for rate in rates]
    called = name if call is not None else f"a sleep of {CALL_MS:g} ms + {ITEM_MS:g} an item"
    return BatchingCurve(call=called, points=tuple(points))


def _sleep(items: list[Any]) -> list[Any]:
    time.sleep((CALL_MS + ITEM_MS * len(items)) / 1e3)
    return items


def _point(
    call: Callable[[list[Any]], list[Any]], rule: BatchRule, rate: float, seconds: float
) -> BatchingPoint:
    """Items arrive at random at a mean rate, whether earlier ones are answered or not."""
    chance = random.Random(0)
    batcher = Batcher(call, rule, capacity=100_000)
    latencies: list[float] = []
    begun = at = time.monotonic()

    def note(sent: float) -> Callable[[Future[Any]], None]:
        return lambda _: latencies.append(1e3 * (time.monotonic() - sent))

    while at < begun + seconds:
        time.sleep(max(at - time.monotonic(), 0.0))
        batcher.submit(None).add_done_callback(note(at))
        at += chance.expovariate(rate)
    batcher.close()
    elapsed = time.monotonic() - begun
    ordered = sorted(latencies)
    p50, p95, p99 = (ordered[int(share * len(ordered))] for share in (0.5, 0.95, 0.99))
    calls = sum(batcher.sizes.values())
    return BatchingPoint(
        count=rule.count,
        delay_ms=rule.delay_ms,
        offered_per_s=rate,
        answered_per_s=len(ordered) / elapsed,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        mean_batch=len(ordered) / calls,
    )

"""Measure the link between processes: latency by small exchanges, bandwidth by a large one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from ..records import Link
from .launch import run

SMALL, LARGE = 1, 1 << 21  # floats
ROUNDS = 20
SIDE = 256  # of the matrices that are multiplied


def measure_link(processes: int = 2) -> tuple[Link, float]:
    """The link between processes of this machine, and how much slower each computes while the
    others do, too. Starts them, which takes seconds.
    """
    results: list[Any] = run(probe, processes=processes, threads=1)
    small_s, large_s, slowdown = results[0]
    return link_of(small_s, large_s, processes), slowdown


def link_of(small_s: float, large_s: float, processes: int) -> Link:
    """The link on which all-reduces of a small and of a large tensor take these seconds."""
    passes = 2 * (processes - 1)
    latency_s = small_s / passes
    transfer_s = max(large_s - small_s, 1e-9)
    sent_bits = passes * 32 * LARGE / processes
    return Link(
        latency_us=1e6 * latency_s,
        gbit_per_s=sent_bits / transfer_s / 1e9,
        source=f"measured between {processes} processes",
    )


def probe() -> tuple[float, float, float]:
    """Seconds of a small and of a large all-reduce, and the slowdown by the other processes."""
    small, large = (
        _median_s(partial(dist.all_reduce, torch.zeros(count))) for count in (SMALL, LARGE)
    )
    matrix = torch.ones(SIDE, SIDE) / SIDE
    dist.barrier()
    alone = _median_s(lambda: matrix @ matrix) if dist.get_rank() == 0 else 0.0
    dist.barrier()
    together = _median_s(lambda: matrix @ matrix)
    return small, large, max(1.0, together / alone) if alone else 1.0


def _median_s(call: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return median(seconds)

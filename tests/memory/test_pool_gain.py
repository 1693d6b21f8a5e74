"""What a pool may spare is reckoned from counted page faults and the measured time of one."""

from __future__ import annotations

import subprocess
import sys
from itertools import count

import pytest
import torch
from torch import nn

from paifuser_lab import Workload
from paifuser_lab.memory.pools import PoolGain, calls, heap_obstacle, pool_gain

pytestmark = pytest.mark.skipif(bool(heap_obstacle()), reason=heap_obstacle())
WORK = Workload(nn.Linear(4, 4), torch.zeros(1, 4), name="net")


def reckoned(faults_of_call, **more):
    """The gain of a workload whose n-th call has these faults and takes 2 ms."""
    readings = [0]
    for call in range(calls.ADAPTING_CALLS + calls.CALLS):
        readings += [readings[-1], readings[-1] + faults_of_call(call)]
    shown = iter(readings)
    ticks = count()
    return pool_gain(
        WORK,
        count=lambda: next(shown),
        clock=lambda: next(ticks) * 0.002,
        fault_us=lambda: 0.5,
        **more,
    )


def test_the_faults_of_the_first_calls_do_not_count():
    found = reckoned(lambda call: 9_000 if call < calls.ADAPTING_CALLS else 400 + call % 2)
    assert found is not None and found.faults in (400, 401)
    assert found.call_ms == pytest.approx(2.0, abs=2.1)
    assert found.fault_us == 0.5


def test_the_estimate_is_faults_times_cost_and_no_more_than_the_call():
    found = PoolGain(faults=40_000, fault_us=0.25, call_ms=30.0)
    assert found.spared_ms == 10.0 and found.speedup == pytest.approx(1.5) and found.pays
    assert found.sentence == (
        "40,000 page faults a call at 0.25 µs each are 10 of 30 ms: at most 1.50 ×"
    )
    assert not PoolGain(faults=1_000, fault_us=0.25, call_ms=30.0).pays
    everything = PoolGain(faults=1e6, fault_us=1.0, call_ms=10.0)
    assert everything.spared_ms < 10.0 and everything.speedup == pytest.approx(100)


def test_there_is_no_estimate_without_a_pool_or_a_count(monkeypatch):
    assert pool_gain(WORK, count=lambda: None) is None
    monkeypatch.setattr(calls, "heap_obstacle", lambda: "musl has none")
    assert pool_gain(WORK) is None


def test_a_real_call_that_holds_much_faults_and_a_small_one_does_not():
    """In its own process: a hole that another test's pool left in the heap would serve it."""
    code = """
import torch
from torch import nn
from paifuser_lab import Workload
from paifuser_lab.memory.pools import pool_gain

class Large(nn.Module):
    def forward(self, x):
        return (x.expand(24 << 18, 4) + 1.0).sum()  # 96 MiB, which are mapped and given back

print(pool_gain(Workload(Large(), torch.zeros(1, 4), name="large")).faults)
print(pool_gain(Workload(nn.Linear(4, 4), torch.zeros(1, 4), name="net")).faults)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    many, few = map(float, done.stdout.split())
    assert many > 20_000 > 100 > few

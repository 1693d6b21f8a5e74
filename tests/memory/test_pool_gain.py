"""What a pool may spare is reckoned from counted page faults and the measured time of one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paifuser_lab import Workload
from paifuser_lab.memory.pools import PoolGain, calls, heap_obstacle, pool_gain
from tests.support.processes import python

pytestmark = pytest.mark.skipif(bool(heap_obstacle()), reason=heap_obstacle())
WORK = Workload(nn.Linear(4, 4), torch.zeros(1, 4), name="net")


def test_the_faults_of_the_first_calls_do_not_count(monkeypatch):
    called = []
    model = nn.Identity()
    model.register_forward_hook(lambda *_: called.append(9_000 if len(called) < 3 else 400))
    work = Workload(model, torch.zeros(1, 4), name="net")
    called.clear()
    monkeypatch.setattr(calls, "page_faults", lambda: sum(called))
    monkeypatch.setattr(calls, "measured_fault_us", lambda: 0.5)
    found = pool_gain(work)
    assert found is not None and (found.faults, found.fault_us) == (400, 0.5)
    assert found.call_ms > 0 and len(called) == calls.ADAPTING_CALLS + calls.CALLS


def test_the_estimate_is_faults_times_cost_and_no_more_than_the_call():
    found = PoolGain(faults=40_000, fault_us=0.25, call_ms=30.0)
    assert found.spared_ms == 10.0 and found.speedup == pytest.approx(1.5) and found.pays
    assert found.sentence == (
        "40,000 page faults a call at 0.25 µs each are 10 of 30 ms: at most 1.50 ×"
    )
    assert not PoolGain(faults=1_000, fault_us=0.25, call_ms=30.0).pays
    everything = PoolGain(faults=1e6, fault_us=1.0, call_ms=10.0)
    assert everything.spared_ms < 10.0 and everything.speedup == pytest.approx(100)
    slow = PoolGain(faults=2e6, fault_us=1.0, call_ms=9876.0)
    assert slow.sentence.endswith("are 2000 of 9880 ms: at most 1.25 ×")


def test_there_is_no_estimate_without_a_pool_or_a_count(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(calls, "page_faults", lambda: None)
        assert pool_gain(WORK) is None
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
    many, few = map(float, python("-c", code).stdout.split())
    assert many > 20_000 > 100 > few

"""Page faults of a model's calls with a pool and without it: counted, on a stand-in for both."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import StoppedError
from paifuser_lab.memory.pools import calls as counting
from paifuser_lab.memory.pools import pool_calls
from paifuser_lab.records import MemoryPoolUse

pytestmark = pytest.mark.usefixtures("one_thread")


class Machine:
    """Faults in many pages at the first call, ten at each one after it, two at each in a pool."""

    def __init__(self) -> None:
        self.faults, self.calls, self.is_kept, self.limit = 0, [], False, "none"

    def call(self) -> None:
        self.faults += 1000 if not self.calls else 2 if self.is_kept else 10
        self.calls.append(self.is_kept)

    @contextmanager
    def held(self):
        self.is_kept = True
        self.faults += 500  # of the first call in the pool, say
        yield
        self.is_kept = False

    @property
    def statistics(self) -> MemoryPoolUse:
        return MemoryPoolUse(device="cpu", is_in_force=self.is_kept, kept_bytes=7)


class Calling(nn.Module):
    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = [machine]

    def forward(self, x):
        self.machine[0].call()
        return x + 1


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()

    def make(limit, **options):
        machine.limit = limit
        return machine

    monkeypatch.setattr(counting, "memory_pool", make)
    monkeypatch.setattr(counting, "page_faults", lambda: machine.faults)
    return machine


def counted(machine, **options):
    work = lab.Workload(Calling(machine), torch.zeros(3), name="net")
    machine.calls.clear()
    return pool_calls(work, **options)


def test_calls_are_counted_without_the_pool_first_then_within_it(machine):
    result = counted(machine, limit="2 GB", calls=3)
    assert (result.faults_without, result.faults_with, result.calls) == (10.0, 2.0, 3)
    assert machine.calls == [False] * 5 + [True] * 5 and machine.limit == "2 GB"
    assert result.use.is_in_force and not machine.is_kept, "it was read in force, and is left"


def test_where_nobody_counts_page_faults_there_is_no_figure(machine, monkeypatch):
    monkeypatch.setattr(counting, "page_faults", lambda: None)
    result = counted(machine)
    assert result.faults_without is None and result.faults_with is None


def test_a_stop_ends_the_counting_and_leaves_the_pool(machine):
    with pytest.raises(StoppedError):
        counted(machine, should_stop=lambda: machine.is_kept and len(machine.calls) > 9)
    assert machine.calls[-1], "it was stopped within the pool"

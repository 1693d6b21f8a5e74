"""A second thread's OpenMP pool slows both down, until it is released; counted by sleeps, not
milliseconds.
"""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace

import pytest

from paifuser_lab.machine import openmp
from paifuser_lab.records.quality import MAX_SLEEPS
from tests.support.processes import python

SWITCHES = """
import resource, sys, threading, torch
from paifuser_lab.machine.openmp import release_pool

model = torch.nn.Sequential(*[torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(8)]).eval()
x = torch.rand(1, 16, 64, 64)
torch.set_num_threads(2)

def sleeps():
    with torch.no_grad():
        model(x)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        for _ in range(10):
            model(x)
        return (resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before) / 10

sleeps()
if sys.argv[1] == "released":
    assert release_pool()
counted = []
thread = threading.Thread(target=lambda: counted.append(sleeps()))
thread.start(); thread.join()
print(counted[0])
"""


QUALITY = """
import sys, threading, torch
import paifuser_lab as lab
from paifuser_lab.machine.openmp import release_pool

model = torch.nn.Sequential(*[torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(32)])
work = lab.Workload(model, torch.rand(1, 16, 64, 64), name="layers")
torch.set_num_threads(2)
work.output()
if sys.argv[1] == "released":
    assert release_pool()
found = []
compare = lambda: found.append(lab.compare(work, threads=2, rounds=3, seconds=1.0, metric=False))
thread = threading.Thread(target=compare)
thread.start(); thread.join()
print(found[0].quality.sleeps)
"""


def environment() -> dict[str, str]:
    """The environment without a number of threads in it; a thread that waits for the others of
    its pool spins, however busy the machine is, unless there are more threads than cores.
    """
    without = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return without | {"OMP_WAIT_POLICY": "active"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libgomp is Linux's")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two threads need two cores")
@pytest.mark.parametrize(("code", "least"), [(SWITCHES, 0.2), (QUALITY, MAX_SLEEPS)])
def test_a_thread_sleeps_in_each_operator_while_another_thread_keeps_its_pool(code, least):
    kept, released = (
        float(python("-c", code, word, env=environment()).stdout) for word in ("kept", "released")
    )
    assert kept > least and released < min(least, kept / 4), (kept, released)


def test_where_there_is_no_libgomp_nothing_is_released(monkeypatch, tmp_path):
    monkeypatch.setattr(openmp, "MAPS", tmp_path / "missing")
    openmp._libgomp.cache_clear()
    assert openmp.release_pool() is False
    openmp._libgomp.cache_clear()


def test_a_notebook_releases_the_main_threads_pool_after_each_cell_and_once(monkeypatch):
    events = SimpleNamespace(callbacks={"post_run_cell": []})
    events.register = lambda name, call: events.callbacks[name].append(call)
    shell = SimpleNamespace(events=events)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    released = []
    monkeypatch.setattr(openmp, "release_pool", lambda: released.append(threading.get_ident()))
    openmp.release_after_cells()
    openmp.release_after_cells()
    (after_cell,) = events.callbacks["post_run_cell"]
    after_cell(None)
    assert released == [threading.get_ident()]

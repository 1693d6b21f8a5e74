"""The pool on a CPU: thresholds set and restored, the limit, and what the allocator then does."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError, PoolError
from paifuser_lab.memory.pools import HeapPool, heap, heap_obstacle
from paifuser_lab.memory.pools.heap import (
    ADAPTED,
    LARGEST,
    LEAST,
    NEVER,
    Heap,
    Thresholds,
    keeping,
    obstacle,
    usual,
)
from tests.support.allocators import FakeLibrary
from tests.support.processes import python

MB = 1 << 20
real = pytest.mark.skipif(bool(heap_obstacle()), reason=heap_obstacle())


@pytest.fixture
def library(monkeypatch):
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    return FakeLibrary()


def pools_in(library, *limits):
    shared = Heap(library)
    return [HeapPool(f"pool {limit}", limit, heap=shared) for limit in limits]


def test_a_pool_keeps_everything_and_restores_what_glibc_adapts_to(library):
    (pool,) = pools_in(library, None)
    assert library.settings == {}, "nothing is set before a pool is in force"
    with pool as entered:
        assert entered is pool and pool.statistics.is_in_force
        assert library.thresholds == (LARGEST, NEVER) and library.trims == 0
    assert library.thresholds == ADAPTED and library.trims == 1
    assert not pool.statistics.is_in_force


def test_a_pool_is_not_entered_twice(library):
    (pool,) = pools_in(library, None)
    with pool:
        with pytest.raises(PoolError, match="'pool None' is in force already; leave it first"):
            pool.__enter__()
        assert library.thresholds == (LARGEST, NEVER)
    assert library.thresholds == ADAPTED


def test_calls_in_a_pool_leave_what_they_freed(library):
    (pool,) = pools_in(library, None)
    with pool.during_call():
        assert library.thresholds == (LARGEST, NEVER)
    assert library.thresholds == ADAPTED and library.trims == 0
    with pool.held():
        with pool.during_call():
            pass
        assert library.thresholds == (LARGEST, NEVER), "a call inside ends nothing"
    assert library.thresholds == ADAPTED and library.trims == 1
    with pool.suspended(), pool.suspended(), pool.during_call():
        assert library.thresholds == ADAPTED
    with pool.during_call():
        assert library.thresholds == (LARGEST, NEVER), "it is suspended no longer"


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_in_any_order_of_use_the_pools_in_force_decide(uses):
    library = FakeLibrary()
    limits = (None, 10 * MB, 200 * MB, 3 << 30)
    shared = Heap(library)
    shared._usual = Thresholds(1, 2)
    pools = [HeapPool("", limit, heap=shared) for limit in limits]
    depth = [0, 0, 0, 0]
    for index, is_entering in uses:
        if is_entering:
            pools[index]._begin()
            depth[index] += 1
        elif depth[index]:
            pools[index]._end(trim=True)
            depth[index] -= 1
        in_force = [limit for limit, times in zip(limits, depth, strict=True) if times]
        known = [limit for limit in in_force if limit is not None]
        expected = keeping(min(known, default=None)) if in_force else Thresholds(1, 2)
        if library.settings:
            assert library.thresholds == (expected.mmap_bytes, expected.trim_bytes)
        assert [pool.statistics.is_in_force for pool in pools] == [times > 0 for times in depth]
    while any(depth):
        index = depth.index(max(depth))
        pools[index]._end(trim=True)
        depth[index] -= 1
    assert not library.settings or library.thresholds == (1, 2)


def test_what_is_kept_past_the_limit_is_given_back(library):
    (pool,) = pools_in(library, 10 * MB)
    library.mallinfo2.held = 5 * MB
    with pool:
        library.mallinfo2.free = 10 * MB
        now = pool.statistics
        assert (now.kept_bytes, now.held_bytes, now.trims, library.trims) == (10 * MB, 5 * MB, 0, 0)
        library.mallinfo2.free = 11 * MB
        now = pool.statistics
        assert (now.kept_bytes, now.trims, library.trims) == (0, 1, 1) and not now.is_over_limit
    library.mallinfo2.free = 11 * MB
    with pool.during_call():
        assert library.trims == 2
    assert (pool.trims, library.trims) == (2, 3), "a call past the limit is trimmed after it"


def test_holes_that_a_trim_has_emptied_are_not_trimmed_at_each_call(library):
    (pool,) = pools_in(library, 10 * MB)
    library.between = library.mallinfo2.free = 50 * MB
    assert pool.statistics.kept_bytes == 0 and pool.trims == 1
    assert pool.statistics.trims == 1, "there is nothing more to give back"
    library.mallinfo2.free = 20 * MB
    assert pool.statistics.kept_bytes == 0, "holes that are filled again"
    library.mallinfo2.free = 29 * MB
    assert pool.statistics.kept_bytes == 9 * MB


def test_page_faults_are_counted_while_the_pool_is_in_force(library, monkeypatch):
    (pool,) = pools_in(library, None)
    count = {"now": 10}
    monkeypatch.setattr(heap, "page_faults", lambda: count["now"])
    with pool:
        count["now"] = 15
        assert pool.statistics.page_faults == 5
    count["now"] = 100
    assert pool.statistics.page_faults == 5
    with pool.during_call(), pool.held():
        count["now"] = 130
    assert pool.statistics.page_faults == 35


def test_without_mallinfo2_a_pool_works_without_these_statistics(monkeypatch):
    library = FakeLibrary(has_statistics=False)
    (pool,) = pools_in(library, 10 * MB)
    with pool:
        assert library.thresholds == (10 * MB, 10 * MB)
        pool.trim()
    now = pool.statistics
    assert (now.held_bytes, now.kept_bytes, now.trims, library.trims) == (None, None, 1, 2)
    assert "Keeps an unknown amount" in str(now)


GNU = {"gnu_get_libc_version": None, "mallopt": None}


@pytest.mark.parametrize(
    ("platform", "symbols", "reason"),
    [
        ("linux", GNU, ""),
        ("linux", {"mallopt": None}, "musl"),
        ("linux", {**GNU, "mallctl": None}, "jemalloc replaces"),
        ("linux", {**GNU, "tc_version": None}, "tcmalloc replaces"),
        ("darwin", {}, r"this system \(darwin\) has no setting"),
        ("win32", {}, "Windows' allocator has no setting"),
    ],
)
def test_other_allocators_get_a_sentence(platform, symbols, reason, monkeypatch):
    found = obstacle(SimpleNamespace(**symbols), platform)
    assert bool(found) is bool(reason)
    monkeypatch.setattr(heap, "heap_obstacle", lambda: found)
    if reason:
        with pytest.raises(PoolError, match=f"needs the GNU C library's allocator, and .*{reason}"):
            lab.memory_pool()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": "2 GBs"}, "'2 GBs' cannot be read"),
        ({"limit": 0}, "holds nothing"),
        ({"hard": True}, "A hard limit needs CUDA"),
        ({"device": "meta"}, "no memory pool on meta"),
        ({"device": "nowhere"}, "no memory pool on device='nowhere'"),
    ],
)
def test_impossible_pools_are_refused_in_a_sentence(options, message):
    with pytest.raises((PoolError, MeasureError), match=message):
        lab.memory_pool(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_pool_on_cuda_without_a_gpu_is_refused():
    with pytest.raises(PoolError, match="needs a GPU that torch can use"):
        lab.memory_pool(device="cuda")


# In a process of its own, so that the heap holds nothing else: what it does with large buffers.
ALONE = """
import json, threading
import torch
import paifuser_lab as lab
from paifuser_lab.measure import page_faults

MB = 1 << 20

def faults_of(size):
    for _ in range(5):  # aligned buffers leave gaps until the heap has settled
        torch.ones(size // 4)
    before = page_faults()
    for _ in range(3):
        torch.ones(size // 4)
    return (page_faults() - before) / 3 * 4096 / size

seen = {"without": faults_of(96 * MB)}
with lab.memory_pool():
    seen["kept"] = faults_of(96 * MB)
with lab.memory_pool(limit="200 MiB"):
    seen["within"] = faults_of(40 * MB)
    seen["past"] = faults_of(250 * MB)
with lab.memory_pool() as pool:
    tensor = torch.ones(96 * MB // 4)
    seen["holding"] = pool.statistics.model_dump()
    del tensor
    seen["freed"] = pool.statistics.model_dump()
    pool.trim()
    seen["trimmed"] = pool.statistics.model_dump()
    thread = threading.Thread(target=lambda: seen.update(elsewhere=faults_of(96 * MB)))
    thread.start()
    thread.join()
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen():
    if reason := heap_obstacle():
        pytest.skip(reason)
    return json.loads(python("-c", ALONE).stdout)


def test_the_real_heap_faults_in_a_large_buffer_at_each_call_and_in_a_pool_once(seen):
    assert seen["kept"] < 0.05 and seen["without"] > 0.9


def test_the_real_heap_gives_back_what_is_past_the_limit(seen):
    assert seen["within"] < 0.05 and seen["past"] > 0.9


def test_the_real_pool_knows_what_it_holds_keeps_and_has_given_back(seen):
    holding, freed, trimmed = seen["holding"], seen["freed"], seen["trimmed"]
    assert holding["held_bytes"] - freed["held_bytes"] >= 95 * MB
    assert freed["kept_bytes"] - holding["kept_bytes"] >= 95 * MB
    assert freed["resident_bytes"] - trimmed["resident_bytes"] >= 90 * MB
    assert trimmed["kept_bytes"] < MB and trimmed["trims"] == 1
    assert freed["page_faults"] >= 96 * MB // 4096 - 100


def test_the_real_heap_of_another_thread_keeps_no_buffer_past_64_mb(seen):
    assert seen["elsewhere"] > 0.9


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ADAPTED),
        ({"MALLOC_MMAP_THRESHOLD_": "1000000"}, (1000000, LEAST)),
        ({"MALLOC_TRIM_THRESHOLD_": "5"}, (LEAST, 5)),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=0x10:x=1"}, (16, LEAST)),
        ({"GLIBC_TUNABLES": "other.mmap_threshold=7:trim_threshold=8"}, ADAPTED),
        (
            {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=9", "MALLOC_TRIM_THRESHOLD_": "5"},
            (LEAST, 9),
        ),
        ({"MALLOC_TRIM_THRESHOLD_": "many"}, ADAPTED),
    ],
)
def test_the_usual_thresholds_are_those_of_the_environment(environment, expected):
    assert usual(environment) == Thresholds(*expected)

"""The pool on CUDA, on a stand-in for torch's caching allocator, and on a GPU if there is one."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import paifuser_lab as lab
from paifuser_lab.errors import PoolError
from paifuser_lab.memory.pools import DevicePool, pools_of
from tests.support.allocators import ROUNDED, SEGMENT, FakeCuda

KB, MB = 1 << 10, 1 << 20


@pytest.fixture
def cuda():
    return FakeCuda()


def pool_of(cuda, limit=None, name="mine", **options):
    return DevicePool(name, limit, cuda=cuda, **options)


def test_what_is_allocated_in_a_pool_is_the_pool_s(cuda):
    pool = pool_of(cuda)
    cuda.caching_allocator_alloc(KB)
    with pool:
        first = cuda.caching_allocator_alloc(1000 * KB + 1)
        cuda.caching_allocator_alloc(100)
    cuda.caching_allocator_alloc(2 * KB)
    now = pool.statistics
    assert (now.held_bytes, now.requested_bytes) == (1000 * KB + 2 * ROUNDED, 1000 * KB + 101)
    assert (now.name, now.device, now.is_in_force) == ("mine", "cuda:0", False)
    assert now.reserved_bytes == SEGMENT and now.largest_free_bytes == now.kept_bytes
    assert now.rounding == pytest.approx(1 - (1000 * KB + 101) / (1000 * KB + 1024))
    cuda.caching_allocator_delete(first)
    split = pool.statistics
    assert split.kept_bytes == SEGMENT - ROUNDED
    assert split.fragmentation == pytest.approx(1 - (SEGMENT - 1001 * KB) / (SEGMENT - ROUNDED))


def test_the_pools_of_a_device_are_listed_apart(cuda):
    pool, private = pool_of(cuda), cuda.MemPool()
    cuda.caching_allocator_alloc(KB)
    with pool:
        cuda.caching_allocator_alloc(2 * KB)
    with cuda.use_mem_pool(private, 0):
        cuda.caching_allocator_alloc(3 * KB)
    cuda.caching_allocator_alloc(4 * KB, 1)
    listed = pools_of(0, cuda=cuda)
    assert [(each.name, each.held_bytes) for each in listed] == [
        ("torch", KB),
        (f"private 0.{private.id[1]}", 3 * KB),
        (f"private 0.{pool._pool.id[1]}", 2 * KB),
    ]
    assert [each.held_bytes for each in pools_of(1, cuda=cuda)] == [4 * KB]


def test_without_a_gpu_there_are_no_pools_to_list(cuda, monkeypatch):
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with pytest.raises(PoolError, match="A memory pool on CUDA needs a GPU that torch can use"):
        pools_of(cuda=cuda)


def test_a_pool_routes_its_own_thread_and_calls_inside_end_nothing(cuda):
    pool, seen = pool_of(cuda), []
    with pool:
        thread = threading.Thread(target=lambda: seen.append(cuda.routed))
        thread.start()
        thread.join()
        with pool.during_call(), pool.held():
            assert cuda.routed == pool._pool.id
        assert cuda.routed == pool._pool.id and pool.statistics.is_in_force
    assert cuda.routed == (0, 0) and seen == [(0, 0)]


def test_a_pool_is_left_after_an_exception_and_in_its_own_thread(cuda):
    pool, errors = pool_of(cuda, 8 * MB, is_hard=True), []

    def leave():
        try:
            pool.__exit__(None, None, None)
        except PoolError as error:
            errors.append(str(error))

    with suppress(KeyError), pool:
        assert cuda.share == 8 * MB / cuda.total
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert cuda.routed != (0, 0), "it is still in force here"
        raise KeyError
    assert "'mine' was entered in another thread" in errors[0]
    assert (cuda.routed, cuda.share, pool.statistics.is_in_force) == ((0, 0), 1.0, False)


def test_a_pool_that_cannot_be_entered_leaves_nothing_behind(cuda):
    pool = pool_of(cuda, 8 * MB, is_hard=True)
    cuda.fails_to_route = True
    with pytest.raises(RuntimeError), pool:
        pass
    assert (cuda.share, pool.statistics.is_in_force) == (1.0, False)
    cuda.fails_to_route = False
    with pool:
        assert cuda.routed != (0, 0)


def test_a_soft_limit_trims_what_is_free_and_says_what_is_over(cuda):
    pool = pool_of(cuda, 3 * MB)
    with pool:
        first = cuda.caching_allocator_alloc(4 * MB)
        cuda.caching_allocator_alloc(KB)
    assert pool.statistics.is_over_limit and cuda.share == 1.0, "tensors are not taken away"
    assert ", which is exceeded" in pool.statistics.sentence
    cuda.caching_allocator_delete(first)
    now = pool.statistics
    assert (now.reserved_bytes, now.is_over_limit) == (SEGMENT, False) and pool.trims > 0


def test_a_pool_without_a_limit_keeps_its_segments_until_it_is_trimmed(cuda):
    pool = pool_of(cuda)
    with pool:
        cuda.caching_allocator_delete(cuda.caching_allocator_alloc(4 * MB))
    assert (pool.statistics.kept_bytes, pool.statistics.trims) == (4 * MB, 0)
    with pool:
        before = pool._pool
        pool.trim()
        assert pool._pool is before, "a pool in force is not replaced"
    pool.trim()
    assert (pool.statistics.kept_bytes, pool.statistics.trims, pool._pool) == (0, 2, None)


def test_hard_limits_nest_in_any_order_and_the_share_of_before_comes_back(cuda):
    cuda.share = 0.5
    small, large, larger = (
        pool_of(cuda, size, is_hard=True) for size in (cuda.total // 8, cuda.total // 4, cuda.total)
    )
    large.__enter__()
    assert cuda.share == 0.25
    small.__enter__()
    assert cuda.share == 0.125
    large.__exit__(None, None, None)
    assert cuda.share == 0.125
    small.__exit__(None, None, None)
    assert cuda.share == 0.5
    with larger:
        assert cuda.share == 0.5, "a pool never raises a limit"
    assert cuda.share == 0.5


def test_a_hard_limit_below_what_is_held_is_refused_with_the_smallest_that_works(cuda):
    cuda.caching_allocator_alloc(8 * MB)
    with (
        pytest.raises(PoolError, match=f"give at least {8 * MB} bytes"),
        pool_of(cuda, 8 * MB - 1, is_hard=True),
    ):
        pass
    assert cuda.share == 1.0
    with pool_of(cuda, 8 * MB, is_hard=True):
        assert cuda.share == 8 * MB / cuda.total


@given(st.lists(st.integers(1, 5 * MB) | st.integers(-20, 0), max_size=30))
def test_blocks_add_up_whatever_is_allocated_and_freed(requests):
    cuda = FakeCuda()
    pool, alive, free_before = pool_of(cuda), [], 0
    with pool:
        for request in requests:
            if request > 0:
                alive.append((cuda.caching_allocator_alloc(request), request))
            elif alive:
                cuda.caching_allocator_delete(alive.pop(request % len(alive))[0])
            now = pool.statistics
            assert now.requested_bytes == sum(size for _, size in alive)
            assert (
                now.requested_bytes
                <= now.held_bytes
                < now.requested_bytes + ROUNDED * (len(alive) + 1)
            )
            assert now.reserved_bytes >= free_before, "without a trim nothing is given back"
            assert 0 <= now.fragmentation < 1 and 0 <= now.rounding < 1
            free_before = now.reserved_bytes
        for address, _ in alive:
            cuda.caching_allocator_delete(address)
    assert (pool.statistics.held_bytes, pool.statistics.rounding) == (0, 0.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_pool_on_a_gpu_holds_its_tensors_and_gives_back_the_rest():
    with lab.memory_pool(device="cuda", name="mine") as pool:
        tensor = torch.ones(8 * MB, device="cuda")
        assert pool.statistics.requested_bytes == 32 * MB
    assert float(tensor.sum()) == 8 * MB
    before = torch.cuda.memory_reserved()
    del tensor
    assert pool.statistics.kept_bytes >= 32 * MB
    pool.trim()
    assert pool.statistics.reserved_bytes == 0
    assert torch.cuda.memory_reserved() <= before - 32 * MB


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_hard_limit_on_a_gpu_raises_out_of_memory_and_is_taken_back():
    with (
        pytest.raises(torch.OutOfMemoryError),
        lab.memory_pool("256 MiB", device="cuda", hard=True),
    ):
        torch.ones(128 * MB, device="cuda")
    assert torch.ones(128 * MB, device="cuda").numel() == 128 * MB

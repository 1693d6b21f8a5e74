"""The simulated caching allocator keeps its invariants, and does what torch documents."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from paifuser_lab.memory.snapshots.allocator import Allocator
from paifuser_lab.memory.snapshots.settings import Settings

MIB = 1 << 20
KINDS = {
    "default": Settings(),
    "max_split": Settings(max_split_size_mb=32),
    "rounding": Settings(roundup_power2_divisions=4),
    "expandable": Settings(expandable_segments=True),
    "collecting": Settings(garbage_collection_threshold=0.5),
    "expandable and rounding": Settings(expandable_segments=True, roundup_power2_divisions=8),
}
LIMITS = (None, 96 * MIB)

# a request in powers of two with its stream, the release of a block, or a trim
actions = some.lists(
    some.one_of(
        some.tuples(some.floats(0, 25.5), some.integers(0, 1)),
        some.integers(0, 30),
        some.none(),
    ),
    max_size=60,
)


def blocks_of(allocator):
    """All mapped blocks, by walking the chain of each segment from its free and used blocks."""
    found = {}

    def walk(block):
        while block.previous is not None:
            block = block.previous
        while block is not None:
            found[block.address] = block
            block = block.next

    for pool in allocator.pools.values():
        for block in pool.blocks():
            walk(block)
    return found, walk


def check(allocator, alive):
    """No two blocks overlap, nothing is lost, and the counts are those of the blocks."""
    found, walk = blocks_of(allocator)
    for block in alive:
        walk(block)
    mapped = sorted((block for block in found.values() if block.is_mapped),
                    key=lambda block: block.address)  # fmt: skip
    for block, behind in pairwise(mapped):
        assert block.end <= behind.address
    for block in found.values():
        assert block.next is None or block.next.previous is block
        assert block.next is None or block.next.address == block.end
        free_pair = (
            block.next is not None and block.is_free and block.next.is_free
            and block.is_mapped == block.next.is_mapped
        )  # fmt: skip
        assert not free_pair, "free neighbours are joined"
    used = {block.address for block in mapped if not block.is_free}
    assert used == {block.address for block in alive}
    free = {
        address: block for pool in allocator.pools.values()
        for address, block in pool.by_address.items()
    }  # fmt: skip
    assert set(free) == {block.address for block in mapped if block.is_free}
    for pool in allocator.pools.values():
        assert pool.order == sorted((b.size, b.address) for b in pool.by_address.values())
    assert allocator.allocated_bytes == sum(block.size for block in alive)
    assert allocator.reserved_bytes == sum(block.size for block in mapped)
    assert allocator.reserved_bytes >= allocator.allocated_bytes
    assert allocator.peak_reserved_bytes >= allocator.reserved_bytes
    assert allocator.peak_reserved_bytes >= allocator.peak_allocated_bytes
    if allocator.limit_bytes is not None:
        assert allocator.peak_reserved_bytes <= allocator.limit_bytes


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("kind", KINDS)
@hypothesis_settings(max_examples=30, deadline=None)
@given(actions)
def test_no_blocks_overlap_nothing_is_lost_and_all_is_given_back(kind, limit, todo):
    allocator = Allocator(KINDS[kind], limit)
    alive = []
    for action in todo:
        if action is None:
            allocator.trim()
        elif isinstance(action, int):
            if alive:
                allocator.free(alive.pop(action % len(alive)))
        else:
            size = int(2 ** action[0])
            block = allocator.allocate(size, action[1])
            if block is not None:
                assert block.size >= size
                assert block.pool.key == (action[1], KINDS[kind].rounded(size) <= MIB)
                alive.append(block)
        check(allocator, alive)
    for block in alive:
        allocator.free(block)
    check(allocator, [])
    assert allocator.allocated_bytes == 0
    allocator.trim()
    assert allocator.reserved_bytes == 0


@pytest.mark.parametrize(
    ("size", "rounded"), [(0, 512), (1, 512), (512, 512), (513, 1024), (3 * MIB - 1, 3 * MIB)]
)
def test_requests_are_rounded_to_512_bytes(size, rounded):
    assert Settings().rounded(size) == rounded


@pytest.mark.parametrize(
    ("size", "rounded"),
    [(1200, 1536), (2048, 2048), (2049, 2560), (5000, 5120), (1 << 20, 1 << 20),
     (9 * MIB, 10 * MIB), (17 * MIB, 20 * MIB)],
)  # fmt: skip
def test_divisions_of_powers_of_two_round_up_to_the_next_division(size, rounded):
    assert Settings(roundup_power2_divisions=4).rounded(size) == rounded


@pytest.mark.parametrize(
    ("size", "reserved"),
    [(1, 2 * MIB), (MIB, 2 * MIB), (MIB + 1, 20 * MIB), (10 * MIB - 512, 20 * MIB),
     (10 * MIB, 10 * MIB), (10 * MIB + 1, 12 * MIB), (33 * MIB, 34 * MIB)],
)  # fmt: skip
def test_a_request_takes_a_segment_of_its_kind(size, reserved):
    allocator = Allocator()
    allocator.allocate(size)
    assert allocator.reserved_bytes == reserved


def test_small_requests_share_a_segment_and_other_streams_have_their_own():
    allocator = Allocator()
    first, second = allocator.allocate(1000), allocator.allocate(1000)
    assert second.address == first.end and allocator.reserved_bytes == 2 * MIB
    allocator.allocate(1000, stream=7)
    assert allocator.reserved_bytes == 4 * MIB


def test_a_freed_block_serves_the_next_request_that_fits_best():
    allocator = Allocator()
    blocks = [allocator.allocate(size * 1024) for size in (100, 5, 50, 5, 70, 5)]
    for block in blocks[::2]:
        allocator.free(block)
    assert allocator.allocate(45 * 1024).address == blocks[2].address
    assert allocator.allocate(66 * 1024).address == blocks[4].address


def test_a_large_block_keeps_a_rest_of_up_to_a_mebibyte():
    allocator = Allocator()
    kept = allocator.allocate(11 * MIB)
    assert kept.size == 12 * MIB == allocator.allocated_bytes
    split = Allocator()
    split.free(split.allocate(14 * MIB))
    assert split.allocate(12 * MIB).size == 12 * MIB


def test_settings_are_read_from_a_snapshot_and_written_as_torch_takes_them():
    recorded = {
        "max_split_size": 128 * MIB,
        "garbage_collection_threshold": 0.7,
        "expandable_segments": True,
        "roundup_power2_divisions": {"1": 4, "2": 4},
    }
    assert str(Settings.of_snapshot(recorded)) == (
        "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.7,"
        "roundup_power2_divisions:4"
    )
    mixed = {"roundup_power2_divisions": {"1": 0, "256": 4}, "max_split_size": "x"}
    assert str(Settings.of_snapshot(mixed)) == "default"

"""The simulator under settings of which no recording is public: a small case, reckoned by hand, for
each rule of torch's allocator. In brackets the function of c10/cuda/CUDACachingAllocator.cpp
(c10/core/AllocatorConfig.cpp for the settings) that has the rule.
"""

from __future__ import annotations

import pytest
import torch

from paifuser_lab.memory.snapshots.allocator import Allocator
from paifuser_lab.memory.snapshots.settings import Settings

MIB = 1 << 20
EXPANDABLE = Settings(expandable_segments=True)


def allocated(allocator, *megabytes, stream=0):
    return [allocator.allocate(size * MIB, stream) for size in megabytes]


def free(allocator, *blocks):
    for block in blocks:
        allocator.free(block)


# roundup_power2_divisions


def test_small_sizes_are_not_divided():
    """[round_size: only above 512 bytes times the number of divisions]"""
    assert Settings(roundup_power2_divisions=8).rounded(4096) == 4096
    assert Settings(roundup_power2_divisions=8).rounded(3000) == 3072
    assert Settings(roundup_power2_divisions=8).rounded(4097) == 4608  # 4096 + 512


HAS_CUDA = torch.cuda.is_available()
on_a_cpu = pytest.mark.skipif(HAS_CUDA, reason="it would change the allocator that is in use")


def parsed_by_torch(text):
    """Torch's own parser of the settings, which a CPU has too; it keeps what is not named."""
    torch._C._accelerator_setAllocatorSettings(text)


@on_a_cpu
@pytest.mark.parametrize(
    "settings",
    [
        Settings(expandable_segments=True, garbage_collection_threshold=0.6),
        Settings(roundup_power2_divisions=16, max_split_size_mb=20),
    ],
    ids=str,
)
def test_torch_s_parser_takes_the_settings_as_they_are_written(settings):
    parsed_by_torch(str(settings))


# max_split_size_mb


def test_a_block_that_is_not_split_serves_requests_that_are_a_little_smaller():
    """[get_free_block: block.size < size + max_non_split_rounding, of 20 MiB]"""
    for size in (44, 46):
        allocator = Allocator(Settings(max_split_size_mb=32))
        free(allocator, *allocated(allocator, 64))
        (block,) = allocated(allocator, size)
        assert block.size == (64 if size == 46 else 44) * MIB


def test_a_block_of_just_the_split_size_is_left_for_requests_of_it():
    """[get_free_block: size < max_split_size <= block.size]"""
    allocator = Allocator(Settings(max_split_size_mb=20))
    free(allocator, *allocated(allocator, 5))  # its segment has 20 MiB
    (block,) = allocated(allocator, 12)
    assert block.size == 12 * MIB and allocator.reserved_bytes == 32 * MIB
    assert allocated(allocator, 20)[0].size == 20 * MIB
    assert allocator.reserved_bytes == 32 * MIB


def test_the_segment_given_back_for_a_request_is_the_smallest_that_is_enough():
    """[release_available_cached_blocks: lower_bound of the larger of size and max_split_size]"""
    allocator = Allocator(Settings(max_split_size_mb=32), 200 * MIB)
    free(allocator, *allocated(allocator, 40, 60, 80))
    allocated(allocator, 12, 10)
    assert allocator.reserved_bytes == (60 + 80 + 12 + 10) * MIB


def test_where_no_segment_is_enough_several_of_the_stream_are_given_back_the_largest_first():
    """[release_available_cached_blocks, its other branch]"""
    allocator = Allocator(Settings(max_split_size_mb=32), 240 * MIB)
    free(allocator, *allocated(allocator, 40, 50, 60), *allocated(allocator, 90, stream=1))
    allocated(allocator, 100)  # 60 + 50 go; the 90 of the other stream stay
    assert allocator.reserved_bytes == (40 + 90 + 100) * MIB


# garbage_collection_threshold


def collected(*requests, limit):
    """The MiB given back for a request of 44: three segments of 30 MiB were freed, with a number of
    requests for large blocks after the first and after the second.
    """
    allocator = Allocator(Settings(garbage_collection_threshold=0.5), limit * MIB)
    blocks = allocated(allocator, 30, 30, 30)
    free(allocator, *allocated(allocator, *[40] * sum(requests)))  # what serves these requests
    for block, count in zip(blocks, (*requests, 0), strict=True):
        allocator.free(block)
        allocated(allocator, *[40] * count)
    before = allocator.reserved_bytes
    allocated(allocator, 44)
    return (before + 44 * MIB - allocator.reserved_bytes) // MIB


def test_past_the_threshold_segments_of_at_least_the_average_age_are_given_back():
    """[garbage_collect_cached_blocks] Of 130 MiB reserved, 30 are too many; one is older."""
    assert collected(1, 0, limit=200) == 30


def test_collection_goes_on_with_the_next_ones_until_enough_is_given_back():
    """[garbage_collect_cached_blocks] The ages are 2, 1 and 0: first the two of at least 1. Of 170
    MiB reserved, 50 are too many, and then 80.
    """
    assert collected(1, 1, limit=240) == 60
    assert collected(1, 1, limit=180) == 90


def test_without_a_limit_nothing_is_collected():
    """[malloc: only if a memory fraction is set]"""
    allocator = Allocator(Settings(garbage_collection_threshold=0.1))
    free(allocator, *allocated(allocator, 30, 30))
    allocated(allocator, 40)
    assert allocator.reserved_bytes == 100 * MIB


# expandable_segments


def test_an_expandable_segment_grows_by_pages_behind_its_last_block():
    """[try_allocate_expandable_block, map_block: whole pages of 20 MiB]"""
    allocator = Allocator(EXPANDABLE)
    first = allocator.allocate(15 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    second = allocator.allocate(15 * MIB)
    assert second.address == first.end and allocator.reserved_bytes == 40 * MIB
    allocator.free(first)
    allocator.trim()  # [unmap_block: only whole pages]
    assert allocator.reserved_bytes == 40 * MIB
    allocator.free(second)
    allocator.trim()
    assert allocator.reserved_bytes == 0


def test_a_block_that_can_grow_is_left_for_last():
    """[get_free_block: its size is what it can expand to]"""
    allocator = Allocator(EXPANDABLE)
    inner, _, last = allocated(allocator, 60, 20, 40)
    free(allocator, inner, last)
    assert allocated(allocator, 30)[0].address == inner.address
    assert allocated(allocator, 35)[0].address == last.address, "the inner one has 30 left"


def test_free_and_unmapped_ranges_in_a_row_serve_one_request():
    """[find_expandable_block, try_allocate_expandable_block]"""
    allocator = Allocator(EXPANDABLE)
    first, second, third, fourth, _ = allocated(allocator, 20, 20, 20, 20, 20)
    free(allocator, second, fourth)
    allocator.trim()
    allocator.free(third)  # unmapped, free, unmapped
    (large,) = allocated(allocator, 60)
    assert (large.address, large.size) == (first.end, 60 * MIB)
    assert allocator.reserved_bytes == 100 * MIB


def test_where_the_device_is_full_free_pages_are_unmapped_and_the_request_is_tried_again():
    """[malloc: alloc_block, release_cached_blocks, alloc_block]"""
    allocator = Allocator(EXPANDABLE, 100 * MIB)
    first, second, _ = allocated(allocator, 20, 20, 20)
    free(allocator, first, second)
    (block,) = allocated(allocator, 80)  # pages for it alone are 100 MiB with the used ones
    assert block.size == 80 * MIB and allocator.reserved_bytes == 100 * MIB
    assert allocated(allocator, 1) == [None] == allocated(allocator, 20)


def test_an_expandable_block_past_the_split_size_is_passed_over_where_it_cannot_grow():
    """[get_free_block: max_split_size counts for expandable segments as well]"""
    allocator = Allocator(Settings(expandable_segments=True, max_split_size_mb=32))
    inner, _ = allocated(allocator, 40, 20)
    allocator.free(inner)
    (block,) = allocated(allocator, 20)
    assert block.address == inner.address + 60 * MIB and allocator.reserved_bytes == 80 * MIB
    assert allocated(allocator, 40)[0].address == inner.address

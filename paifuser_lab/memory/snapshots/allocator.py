"""A simulated caching allocator, built from what torch documents of its own.

Requests are rounded up and served by best fit from free blocks of their stream, small ones and
large ones apart. What is left over of a block is split off, and free neighbours are joined again.
Where no block fits, a segment is taken from the device; where the device has too little left, free
segments are given back first. Only sizes are simulated: nothing is allocated.

With expandable segments a stream has one segment for small and one for large requests, of addresses
without end; pages are mapped behind the last used block, and unmapped when memory is given back.
"""

from __future__ import annotations

from .free_blocks import Block, FreeBlocks
from .settings import (
    LARGE_SEGMENT_BYTES,
    SMALL_REQUEST_BYTES,
    SMALL_SEGMENT_BYTES,
    SMALLEST_BYTES,
    Settings,
)

ADDRESSES_BYTES = LARGE_SEGMENT_BYTES << 24  # of an expandable segment; more than any device has


class Allocator:
    """The allocator of one device; `limit_bytes` is what it may reserve."""

    def __init__(self, settings: Settings | None = None, limit_bytes: int | None = None) -> None:
        self.settings, self.limit_bytes = settings or Settings(), limit_bytes
        self.pools: dict[tuple[int, bool], FreeBlocks] = {}
        self.unmapped: dict[tuple[int, bool], list[Block]] = {}
        self.reserved_bytes = self.allocated_bytes = 0
        self.peak_reserved_bytes = self.peak_allocated_bytes = 0
        self.device_calls = self.clock = 0
        self.next_address = ADDRESSES_BYTES

    def allocate(self, size: int, stream: int = 0) -> Block | None:
        """Serve a request; None if the limit has no room for it."""
        self.clock += 1
        size = self.settings.rounded(size)
        pool = self._pool(stream, is_small=size <= SMALL_REQUEST_BYTES)
        block = self._fitting(pool, size)
        if block is None:
            self._collect()
            block = self._grown(pool, size)
        if block is None and self._give_back_oversized(size):
            block = self._grown(pool, size)
        if block is None:
            self.trim()
            block = self._grown(pool, size)
        return None if block is None else self._use(block, size)

    def free(self, block: Block) -> None:
        """Make a block available again, joined with its free neighbours."""
        self.clock += 1
        self.allocated_bytes -= block.size
        block.is_free, block.freed_at = True, self.clock
        self._add(block)

    def trim(self) -> None:
        """Give back to the device what can be: free segments, or pages of expandable ones."""
        for pool in self.pools.values():
            for block in pool.blocks():
                if self.settings.expandable_segments:
                    self._unmap(pool, block)
                elif block.is_whole_segment:
                    self._give_back(pool, block)

    def largest_free_bytes(self) -> int:
        """The largest free block."""
        return max((pool.order[-1][0] for pool in self.pools.values() if pool.order), default=0)

    def _pool(self, stream: int, *, is_small: bool) -> FreeBlocks:
        key = (stream, is_small)
        if key not in self.pools:
            self.pools[key] = FreeBlocks(key)
        return self.pools[key]

    def _fitting(self, pool: FreeBlocks, size: int) -> Block | None:
        """The best fitting free block. One too large to be split serves only requests near its
        size.
        """
        block, split = pool.smallest_from(size), self.settings.max_split_bytes
        if block is None or split is None or self.settings.expandable_segments:
            return block
        if size < split <= block.size:
            return None
        if size >= split and block.size >= size + LARGE_SEGMENT_BYTES:
            return None
        return block

    def _use(self, block: Block, size: int) -> Block:
        block.pool.remove(block)
        block.is_free = False
        if self._is_split(block, size):
            rest = block.split(size)
            rest.is_free = True
            block.pool.add(rest)
        self.allocated_bytes += block.size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def _is_split(self, block: Block, size: int) -> bool:
        rest = block.size - size
        if block.pool.is_small or self.settings.expandable_segments:
            return rest >= SMALLEST_BYTES
        split = self.settings.max_split_bytes
        return (split is None or size < split) and rest > SMALL_REQUEST_BYTES

    def _add(self, block: Block) -> Block:
        """Add a free block to its pool, joined with free neighbours."""
        behind, before = block.next, block.previous
        if behind is not None and behind.is_free and behind.is_mapped:
            block.pool.remove(behind)
            block.absorb_next()
        if before is not None and before.is_free and before.is_mapped:
            block.pool.remove(before)
            before.absorb_next()
            before.freed_at = max(before.freed_at, block.freed_at)
            block = before
        block.pool.add(block)
        return block

    def _grown(self, pool: FreeBlocks, size: int) -> Block | None:
        """A free block of memory taken from the device."""
        if self.settings.expandable_segments:
            return self._extended(pool, size)
        taken = self.settings.segment_bytes(size)
        if not self._take(taken):
            return None
        block = Block(pool, self.next_address, taken)
        self.next_address += taken
        block.freed_at = self.clock
        pool.add(block)
        return block

    def _take(self, size: int) -> bool:
        if self.limit_bytes is not None and self.reserved_bytes + size > self.limit_bytes:
            return False
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        self.device_calls += 1
        return True

    def _give_back(self, pool: FreeBlocks, block: Block) -> None:
        pool.remove(block)
        self.reserved_bytes -= block.size
        self.device_calls += 1

    def _give_back_oversized(self, size: int) -> bool:
        """Give back one segment that is too large to be split and large enough for the request."""
        split = self.settings.max_split_bytes
        if split is None or self.settings.expandable_segments:
            return False
        enough = max(split, self.settings.segment_bytes(size))
        for pool in self.pools.values():
            block = pool.smallest_from(enough)
            if block is not None and block.is_whole_segment:
                self._give_back(pool, block)
                return True
        return False

    def _collect(self) -> None:
        """Past the threshold, give back the segments that have been free for longest."""
        threshold = self.settings.garbage_collection_threshold
        if not threshold or self.limit_bytes is None or self.settings.expandable_segments:
            return
        target = int(threshold * self.limit_bytes)
        if self.reserved_bytes <= target:
            return
        whole = [
            block
            for pool in self.pools.values()
            if not pool.is_small
            for block in pool.blocks()
            if block.is_whole_segment
        ]
        for block in sorted(whole, key=lambda block: block.freed_at):
            if self.reserved_bytes <= target:
                return
            self._give_back(block.pool, block)

    # expandable segments

    def _extended(self, pool: FreeBlocks, size: int) -> Block | None:
        """Map pages behind a free block, at the lowest address where there is room."""
        page = SMALL_SEGMENT_BYTES if pool.is_small else LARGE_SEGMENT_BYTES
        holes = self._holes(pool)
        for hole in sorted(holes, key=lambda block: block.address):
            before = hole.previous
            held = before.size if before is not None and before.is_free and before.is_mapped else 0
            behind = hole.next
            follows = behind.size if behind is not None and behind.is_free else 0
            if held + hole.size + follows < size:
                continue
            missing = min(-(-(size - held) // page) * page, hole.size)
            if not self._take(missing):
                return None
            if missing < hole.size:
                holes.append(hole.split(missing))
            holes.remove(hole)
            hole.is_mapped, hole.freed_at = True, self.clock
            return self._add(hole)
        return None

    def _holes(self, pool: FreeBlocks) -> list[Block]:
        """The unmapped ranges of a pool's expandable segment, which is made at its first use."""
        if pool.key not in self.unmapped:
            block = Block(pool, self.next_address, ADDRESSES_BYTES, is_mapped=False)
            self.next_address += ADDRESSES_BYTES
            self.unmapped[pool.key] = [block]
        return self.unmapped[pool.key]

    def _unmap(self, pool: FreeBlocks, block: Block) -> None:
        """Give back the pages that lie wholly within a free block."""
        page = SMALL_SEGMENT_BYTES if pool.is_small else LARGE_SEGMENT_BYTES
        start, end = -(-block.address // page) * page, block.end // page * page
        if end <= start:
            return
        pool.remove(block)
        if start > block.address:
            rest = block.split(start - block.address)
            pool.add(block)
            block = rest
        if end < block.end:
            pool.add(block.split(end - block.address))
        block.is_mapped = False
        self.reserved_bytes -= block.size
        self.device_calls += 1
        self._holes(pool).append(self._joined_hole(pool, block))

    def _joined_hole(self, pool: FreeBlocks, block: Block) -> Block:
        """An unmapped block with its unmapped neighbours."""
        holes = self._holes(pool)
        if block.next is not None and not block.next.is_mapped:
            holes.remove(block.next)
            block.absorb_next()
        if block.previous is not None and not block.previous.is_mapped:
            holes.remove(block.previous)
            block = block.previous
            block.absorb_next()
        return block

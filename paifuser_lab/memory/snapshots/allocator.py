"""A simulated caching allocator, after the rules of c10/cuda/CUDACachingAllocator.cpp in torch.

Requests are rounded up and served by best fit from free blocks of their stream, small ones and
large ones apart. What is left over of a block is split off, and free neighbours are joined again.
Where no block fits, a segment is taken from the device; where the device has too little left, free
segments are given back first. Only sizes are simulated: nothing is allocated.

With expandable segments a stream has one segment for small and one for large requests, of addresses
without end; pages are mapped at the lowest address where free and unmapped ranges in a row have
room, and unmapped when memory is given back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from .settings import (
    LARGE_SEGMENT_BYTES,
    SMALL_REQUEST_BYTES,
    SMALL_SEGMENT_BYTES,
    SMALLEST_BYTES,
    Settings,
)


class Block:
    """A range of addresses within a segment; neighbours are linked."""

    __slots__ = ("address", "freed_at", "is_free", "is_mapped", "next", "pool", "previous", "size")

    def __init__(
        self, pool: FreeBlocks, address: int, size: int, *, is_mapped: bool = True
    ) -> None:
        self.pool, self.address, self.size = pool, address, size
        self.is_free, self.is_mapped, self.freed_at = True, is_mapped, 0
        self.previous: Block | None = None
        self.next: Block | None = None

    @property
    def is_whole_segment(self) -> bool:
        """Whether nothing of its segment is used."""
        return self.previous is None and self.next is None

    @property
    def end(self) -> int:
        return self.address + self.size

    @property
    def reach(self) -> int:
        """Its size with the unmapped range behind it."""
        is_frontier = self.next is not None and not self.next.is_mapped
        return self.size + (self.next.size if self.next is not None and is_frontier else 0)

    def has_room(self, size: int) -> bool:
        """Whether it and the free and unmapped ranges behind it are large enough."""
        block: Block | None = self
        while block is not None and block.is_free:
            size -= block.size
            if size <= 0:
                return True
            block = block.next
        return False

    def split(self, size: int) -> Block:
        """Keep the first `size` bytes; return a block of the rest, linked behind."""
        rest = Block(self.pool, self.address + size, self.size - size, is_mapped=self.is_mapped)
        rest.freed_at, rest.is_free = self.freed_at, self.is_free
        rest.previous, rest.next = self, self.next
        if self.next is not None:
            self.next.previous = rest
        self.next, self.size = rest, size
        return rest

    def absorb_next(self) -> None:
        """Join the block behind to this one."""
        behind = self.next
        assert behind is not None
        self.size += behind.size
        self.next = behind.next
        if behind.next is not None:
            behind.next.previous = self


class FreeBlocks:
    """The free blocks of one stream's small or large segments."""

    def __init__(self, key: tuple[int, bool]) -> None:
        self.key = key  # stream; whether its segments are small
        self.order: list[tuple[int, int]] = []
        self.by_address: dict[int, Block] = {}

    @property
    def is_small(self) -> bool:
        return self.key[1]

    def add(self, block: Block) -> None:
        """Make a block available."""
        insort(self.order, (block.size, block.address))
        self.by_address[block.address] = block

    def remove(self, block: Block) -> None:
        """Take a block out."""
        del self.order[bisect_left(self.order, (block.size, block.address))]
        del self.by_address[block.address]

    def blocks_from(self, size: int) -> Iterator[Block]:
        """The blocks of at least this size, the smallest first; equal ones by address."""
        for index in range(bisect_left(self.order, (size, -1)), len(self.order)):
            yield self.by_address[self.order[index][1]]

    def blocks(self) -> list[Block]:
        """All blocks, the smallest first."""
        return [self.by_address[address] for _, address in self.order]


FIRST_ADDRESS = 1 << 44
ENDLESS = 1 << 24  # pages of an expandable segment; more than any device has


class Allocator:
    """The allocator of one device; `limit_bytes` is what it may reserve."""

    def __init__(self, settings: Settings | None = None, limit_bytes: int | None = None) -> None:
        self.settings, self.limit_bytes = settings or Settings(), limit_bytes
        self.pools: dict[tuple[int, bool], FreeBlocks] = {}
        self.unmapped: dict[tuple[int, bool], list[Block]] = {}
        self.reserved_bytes = self.allocated_bytes = 0
        self.peak_reserved_bytes = self.peak_allocated_bytes = 0
        self.device_calls = 0
        self.requests = {True: 0, False: 0}  # for small blocks and for large ones
        self.next_address = FIRST_ADDRESS

    def allocate(self, size: int, stream: int = 0) -> Block | None:
        """Serve a request; None if the limit has no room for it."""
        size = self.settings.rounded(size)
        pool = self._pool(stream, is_small=size <= SMALL_REQUEST_BYTES)
        self.requests[pool.is_small] += 1
        block = self._fitting(pool, size)
        if block is None:
            self._collect()
            block = self._grown(pool, size)
        if block is None and self._give_back_oversized(pool, size):
            block = self._grown(pool, size)
        if block is None:
            self.trim()
            block = self._grown(pool, size)
        return None if block is None else self._use(block, size)

    def free(self, block: Block) -> None:
        """Make a block available again, joined with its free neighbours."""
        self.allocated_bytes -= block.size
        block.is_free = True
        self._add(block)

    def trim(self) -> None:
        """Give back to the device what can be: free segments, or pages of expandable ones."""
        for pool in self.pools.values():
            for block in pool.blocks():
                if self.settings.expandable_segments:
                    self._unmap(pool, block)
                elif block.is_whole_segment:
                    self._give_back(block)

    def _pool(self, stream: int, *, is_small: bool) -> FreeBlocks:
        key = (stream, is_small)
        if key not in self.pools:
            self.pools[key] = FreeBlocks(key)
        return self.pools[key]

    def _fitting(self, pool: FreeBlocks, size: int) -> Block | None:
        """The best fitting free block; one too large to be split serves requests near its size."""
        blocks = pool.blocks_from(size)
        block = next(blocks, None)
        if block is None:
            return None
        if self.settings.expandable_segments:
            for other in blocks:
                if other.reach >= block.reach:
                    break
                block = other
        split = self.settings.max_split_bytes
        if split is None:
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
            self._insert(rest)
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
            block = before
        self._insert(block)
        return block

    def _insert(self, block: Block) -> None:
        block.freed_at = self.requests[block.pool.is_small]
        block.pool.add(block)

    def _grown(self, pool: FreeBlocks, size: int) -> Block | None:
        """A free block of memory taken from the device."""
        if self.settings.expandable_segments:
            return self._extended(pool, size)
        taken = self.settings.segment_bytes(size)
        if not self._take(taken):
            return None
        block = Block(pool, self.next_address, taken)
        self.next_address += taken
        self._insert(block)
        return block

    def _take(self, size: int) -> bool:
        if self.limit_bytes is not None and self.reserved_bytes + size > self.limit_bytes:
            return False
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        self.device_calls += 1
        return True

    def _give_back(self, block: Block) -> None:
        block.pool.remove(block)
        self.reserved_bytes -= block.size
        self.device_calls += 1

    def _give_back_oversized(self, pool: FreeBlocks, size: int) -> bool:
        """Give back the smallest segment of the stream that is too large to be split and large
        enough for the request, else the largest of these until they are enough; whether they are.
        """
        split = self.settings.max_split_bytes
        if split is None or self.settings.expandable_segments:
            return False
        enough = max(split, size)
        if (block := next(pool.blocks_from(enough), None)) is not None:
            self._give_back(block)
            return True
        given = 0
        for block in reversed(pool.blocks()):
            if given >= enough or block.size < split:
                break
            given += block.size
            self._give_back(block)
        return given >= enough

    def _collect(self) -> None:
        """Past the threshold, give back the free segments of at least their average age until
        enough are. The age is the requests for large blocks since a segment was freed.
        """
        threshold = self.settings.garbage_collection_threshold
        if not threshold or self.limit_bytes is None or self.settings.expandable_segments:
            return
        excess = self.reserved_bytes - int(threshold * self.limit_bytes)
        large = (pool for pool in self.pools.values() if not pool.is_small)
        whole = [block for pool in large for block in pool.blocks() if block.is_whole_segment]
        while excess > 0 and whole:
            average = sum(block.freed_at for block in whole) / len(whole)
            for block in [block for block in whole if block.freed_at <= average]:
                excess -= block.size
                whole.remove(block)
                self._give_back(block)

    # expandable segments

    def _extended(self, pool: FreeBlocks, size: int) -> Block | None:
        """Map pages at the lowest address where free and unmapped ranges in a row have room."""
        holes = sorted(self._holes(pool), key=lambda hole: hole.address)
        starts = (
            hole.previous if hole.previous is not None and hole.previous.is_free else hole
            for hole in holes
        )
        start = next(start for start in starts if start.has_room(size))
        block = start if start.is_mapped else self._mapped(start, size)
        while block is not None and block.size < size:
            assert block.next is not None
            block = self._mapped(block.next, size - block.size)
        return block

    def _mapped(self, hole: Block, size: int) -> Block | None:
        """Map pages at the start of an unmapped range; None if the device has too little left."""
        page, holes = self._page_bytes(hole.pool), self._holes(hole.pool)
        mapped = min(-(-size // page) * page, hole.size)
        if not self._take(mapped):
            return None
        if mapped < hole.size:
            holes.append(hole.split(mapped))
        holes.remove(hole)
        hole.is_mapped = True
        return self._add(hole)

    def _page_bytes(self, pool: FreeBlocks) -> int:
        return SMALL_SEGMENT_BYTES if pool.is_small else LARGE_SEGMENT_BYTES

    def _holes(self, pool: FreeBlocks) -> list[Block]:
        """The unmapped ranges of a pool's expandable segment, which is made at its first use."""
        if pool.key not in self.unmapped:
            size = ENDLESS * self._page_bytes(pool)
            start = -(-self.next_address // size) * size
            self.unmapped[pool.key] = [Block(pool, start, size, is_mapped=False)]
            self.next_address = start + size
        return self.unmapped[pool.key]

    def _unmap(self, pool: FreeBlocks, block: Block) -> None:
        """Give back the pages that lie wholly within a free block."""
        page = self._page_bytes(pool)
        start, end = -(-block.address // page) * page, block.end // page * page
        if end <= start:
            return
        pool.remove(block)
        if start > block.address:
            rest = block.split(start - block.address)
            self._insert(block)
            block = rest
        if end < block.end:
            self._insert(block.split(end - block.address))
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

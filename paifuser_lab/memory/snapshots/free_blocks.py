"""The free blocks of one pool, ordered by size and address for best fit."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


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

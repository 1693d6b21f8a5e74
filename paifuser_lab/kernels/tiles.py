"""Tiles: named integers by which a kernel divides its work, the last template arguments of its
entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

Tile = Mapping[str, int]

# Per multiprocessor, sm_90 and sm_100. Older ones have less shared memory: a valid tile may be too
# large to load there.
SHARED_BYTES = 228 << 10
RESERVED_BYTES = 1 << 10  # of those, per block
REGISTERS = 1 << 16


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, so that choices can be cached
class Tiles:
    """Every tile that a kernel's source takes, and the default where nothing was measured."""

    choices: Mapping[str, tuple[int, ...]]
    default: Tile
    is_valid: Callable[[Tile], bool] = lambda tile: True

    def __iter__(self) -> Iterator[Tile]:
        """All valid tiles, in a fixed order."""
        for numbers in product(*self.choices.values()):
            tile = dict(zip(self.choices, numbers, strict=True))
            if self.is_valid(tile):
                yield tile

    def __contains__(self, tile: object) -> bool:
        return (
            isinstance(tile, Mapping)
            and tile.keys() == self.choices.keys()
            and all(tile[name] in numbers for name, numbers in self.choices.items())
            and self.is_valid(tile)
        )

    def arguments(self, tile: Tile) -> str:
        """A tile as the last template arguments, in the order of the choices."""
        return ", ".join(str(tile[name]) for name in self.choices)


NO_TILES = Tiles(choices={}, default={})  # of a kernel without tile sizes

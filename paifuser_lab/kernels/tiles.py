"""How a kernel cuts its work: named integers that its entry takes as template arguments, and which
combine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

Tile = Mapping[str, int]

# Of a multiprocessor, sm_90 and sm_100. Older ones have less shared memory: a tile that is sound
# may be too large to load there.
SHARED_BYTES = 228 << 10
RESERVED_BYTES = 1 << 10  # of those, for each block
REGISTERS = 1 << 16


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, so that choices can be cached
class Tiles:
    """Every tile that a kernel's source takes, and the one to take where nothing was measured."""

    choices: Mapping[str, tuple[int, ...]]
    default: Tile
    is_sound: Callable[[Tile], bool] = lambda tile: True

    def __iter__(self) -> Iterator[Tile]:
        """All that the source takes, in a fixed order."""
        for numbers in product(*self.choices.values()):
            tile = dict(zip(self.choices, numbers, strict=True))
            if self.is_sound(tile):
                yield tile

    def __contains__(self, tile: object) -> bool:
        return (
            isinstance(tile, Mapping)
            and tile.keys() == self.choices.keys()
            and all(tile[name] in numbers for name, numbers in self.choices.items())
            and self.is_sound(tile)
        )

    def arguments(self, tile: Tile) -> str:
        """A tile as the last arguments of a template, in the order of the choices."""
        return ", ".join(str(tile[name]) for name in self.choices)


WHOLE = Tiles(choices={}, default={})  # of a kernel with one way to cut its work

"""Tiles as points that a search can walk between: drawn by chance, changed in one number, mixed of
two.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection

from ..tiles import Tile, Tiles

Cut = tuple[int, ...]  # a tile's numbers, in the order of the choices

COUNTED = 2048  # combinations, sound or not, up to which all are looked at; beyond, some are drawn
TRIES = 2000  # draws before a space counts as exhausted


class Space:
    """The sound tiles of a kernel; all of them are known only where they are few."""

    def __init__(self, tiles: Tiles, counted: int = COUNTED) -> None:
        self.tiles = tiles
        self.choices = tuple(tiles.choices.values())
        is_counted = math.prod(map(len, self.choices)) <= counted
        self.all = tuple(self.cut(tile) for tile in tiles) if is_counted else None

    def cut(self, tile: Tile) -> Cut:
        """A tile as a point."""
        return tuple(tile[name] for name in self.tiles.choices)

    def tile(self, cut: Cut) -> Tile:
        """A point as a tile."""
        return dict(zip(self.tiles.choices, cut, strict=True))

    def is_sound(self, cut: Cut) -> bool:
        """Whether the source takes it."""
        return self.tiles.is_sound(self.tile(cut))

    def drawn(self, chance: random.Random, without: Collection[Cut] = ()) -> Cut | None:
        """A sound tile by chance, or None where all are among those to do without."""
        if self.all is not None:
            left = [cut for cut in self.all if cut not in without]
            return chance.choice(left) if left else None
        for _ in range(TRIES):
            cut = tuple(chance.choice(numbers) for numbers in self.choices)
            if cut not in without and self.is_sound(cut):
                return cut
        return None

    def mutated(self, cut: Cut, chance: random.Random) -> Cut:
        """The same but for one number: the next larger or smaller one, or any; it may be
        unsound.
        """
        index = chance.randrange(len(cut))
        numbers = self.choices[index]
        if chance.random() < 0.5:
            place = numbers.index(cut[index]) + chance.choice((-1, 1))
            number = numbers[min(max(place, 0), len(numbers) - 1)]
        else:
            number = chance.choice(numbers)
        return (*cut[:index], number, *cut[index + 1 :])

    def crossed(self, one: Cut, other: Cut, chance: random.Random) -> Cut:
        """Each number of the one or of the other; it may be unsound."""
        return tuple(chance.choice(pair) for pair in zip(one, other, strict=True))

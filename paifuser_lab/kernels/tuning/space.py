"""Tiles as points of a search space: drawn at random, mutated in one number, crossed of two."""

from __future__ import annotations

import math
import random
from collections.abc import Collection

from ..tiles import Tile, Tiles

TilePoint = tuple[int, ...]  # a tile's numbers, in the order of the choices

COUNTED = 2048  # combinations, sound or not, up to which all are listed; beyond, some are drawn
TRIES = 2000  # draws before a space counts as exhausted


class Space:
    """The sound tiles of a kernel; all of them are known only where they are few."""

    def __init__(self, tiles: Tiles, counted: int = COUNTED) -> None:
        self.tiles = tiles
        self.choices = tuple(tiles.choices.values())
        is_counted = math.prod(map(len, self.choices)) <= counted
        self.all = tuple(self.point(tile) for tile in tiles) if is_counted else None

    def point(self, tile: Tile) -> TilePoint:
        """A tile as a point."""
        return tuple(tile[name] for name in self.tiles.choices)

    def tile(self, point: TilePoint) -> Tile:
        """A point as a tile."""
        return dict(zip(self.tiles.choices, point, strict=True))

    def is_sound(self, point: TilePoint) -> bool:
        """Whether the source takes it."""
        return self.tiles.is_sound(self.tile(point))

    def drawn(
        self, generator: random.Random, without: Collection[TilePoint] = ()
    ) -> TilePoint | None:
        """A random sound tile, or None where all are excluded."""
        if self.all is not None:
            left = [point for point in self.all if point not in without]
            return generator.choice(left) if left else None
        for _ in range(TRIES):
            point = tuple(generator.choice(numbers) for numbers in self.choices)
            if point not in without and self.is_sound(point):
                return point
        return None

    def mutated(self, point: TilePoint, generator: random.Random) -> TilePoint:
        """The same but for one number: the next larger or smaller one, or any; it may be
        unsound.
        """
        index = generator.randrange(len(point))
        numbers = self.choices[index]
        if generator.random() < 0.5:
            place = numbers.index(point[index]) + generator.choice((-1, 1))
            number = numbers[min(max(place, 0), len(numbers) - 1)]
        else:
            number = generator.choice(numbers)
        return (*point[:index], number, *point[index + 1 :])

    def crossed(self, one: TilePoint, other: TilePoint, generator: random.Random) -> TilePoint:
        """Each number of the one or of the other; it may be unsound."""
        return tuple(generator.choice(pair) for pair in zip(one, other, strict=True))

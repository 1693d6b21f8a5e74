"""Tiles as points of a search space: random samples, mutations in one number, crossovers of two."""

from __future__ import annotations

import math
import random
from collections.abc import Collection

from ..tiles import Tile, Tiles

TilePoint = tuple[int, ...]  # a tile's numbers, in the order of the choices

MAX_LISTED = 2048  # combinations, valid or not, up to which all are listed; else they are sampled
MAX_DRAWS = 2000  # draws before a space counts as exhausted


class Space:
    """The valid tiles of a kernel; all of them are listed only where they are few."""

    def __init__(self, tiles: Tiles, max_listed: int = MAX_LISTED) -> None:
        self.tiles = tiles
        self.choices = tuple(tiles.choices.values())
        is_listed = math.prod(map(len, self.choices)) <= max_listed
        self.all = tuple(self.point(tile) for tile in tiles) if is_listed else None

    def point(self, tile: Tile) -> TilePoint:
        """A tile as a point."""
        return tuple(tile[name] for name in self.tiles.choices)

    def tile(self, point: TilePoint) -> Tile:
        """A point as a tile."""
        return dict(zip(self.tiles.choices, point, strict=True))

    def is_valid(self, point: TilePoint) -> bool:
        """Whether the source takes the tile."""
        return self.tiles.is_valid(self.tile(point))

    def sample(
        self, generator: random.Random, without: Collection[TilePoint] = ()
    ) -> TilePoint | None:
        """A random valid tile, or None if all are excluded."""
        if self.all is not None:
            left = [point for point in self.all if point not in without]
            return generator.choice(left) if left else None
        for _ in range(MAX_DRAWS):
            point = tuple(generator.choice(numbers) for numbers in self.choices)
            if point not in without and self.is_valid(point):
                return point
        return None

    def mutate(self, point: TilePoint, generator: random.Random) -> TilePoint:
        """Replace one number by the next larger or smaller one, or by any; the result may be
        invalid.
        """
        index = generator.randrange(len(point))
        numbers = self.choices[index]
        if generator.random() < 0.5:
            position = numbers.index(point[index]) + generator.choice((-1, 1))
            number = numbers[min(max(position, 0), len(numbers) - 1)]
        else:
            number = generator.choice(numbers)
        return (*point[:index], number, *point[index + 1 :])

    def crossover(self, first: TilePoint, second: TilePoint, generator: random.Random) -> TilePoint:
        """Take each number from one of two points at random; the result may be invalid."""
        return tuple(generator.choice(pair) for pair in zip(first, second, strict=True))

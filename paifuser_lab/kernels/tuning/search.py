"""The search for the best tile within a budget of measurements, and the finals of the best few.

The first tiles are chosen by their bound and at random, the rest by a learned model. One in ten
stays random throughout, to correct a model that is wrong but certain.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence

from ...errors import KernelError, keep_when_stopped, message_of
from ...progress import progress
from ...records import Record
from ..tiles import Tile, Tiles, describe_tile
from .evolution import MAX_LISTED, CostModel, Features, Space, TilePoint, promising

Measure = Callable[[Tile], float]  # milliseconds; a tile for which it raises is recorded as failed

# milliseconds of each tile, measured in turn for so many rounds
InTurn = Callable[[Sequence[Tile], int], Sequence[float]]

INITIAL_TILES = 18  # measured before the first model is fitted
TILES_PER_MODEL = 6  # measured before it is refitted
RANDOM_SHARE = 0.1
FINAL_ROUNDS = 5
MAX_FAILURES = 25  # consecutive failures after which the device is assumed to be broken
INTERRUPTED = "it was interrupted"


class Attempt(Record):
    """A measured tile: its time, or why it has none."""

    tile: dict[str, int]
    ms: float | None = None
    failure: str = ""

    def __str__(self) -> str:
        return f"{describe_tile(self.tile)}: {self.failure or f'{self.ms:.4g} ms'}"


class Search(Record):
    """Every attempt, in order."""

    attempts: tuple[Attempt, ...]
    ended_by: str

    @property
    def is_interrupted(self) -> bool:
        """Whether the user stopped it."""
        return self.ended_by == INTERRUPTED

    @property
    def ranked(self) -> tuple[Attempt, ...]:
        """The successful attempts, fastest first."""
        measured = (attempt for attempt in self.attempts if attempt.ms is not None)
        return tuple(sorted(measured, key=lambda attempt: attempt.ms or 0.0))


class Winner(Record):
    """The winner of the finals, and the default's time in the same rounds."""

    tile: dict[str, int]
    ms: float
    default_ms: float
    search: Search

    def __str__(self) -> str:
        tried = len(self.search.attempts)
        gain = (
            f"{self.default_ms / self.ms:.2f} times as fast as the default"
            if self.ms < self.default_ms
            else "the default"
        )
        return (
            f"{describe_tile(self.tile)}: {self.ms * 1e3:.1f} µs, {gain}; {tried} tiles tried, "
            f"then {self.search.ended_by}"
        )


def search(
    tiles: Tiles,
    measure: Measure,
    *,
    budget: int,
    first: Sequence[Tile] = (),
    features: Features = lambda point: (),
    seed: int = 0,
    seconds: float = math.inf,
    max_listed: int = MAX_LISTED,
) -> Search:
    """Measure up to `budget` tiles, those of `first` first; when stopped, keep the results."""
    if budget < 1:
        raise KernelError(
            f"A search measures at least one tile, not {budget}; increase the budget."
        )
    space = Space(tiles, max_listed)
    attempts: dict[TilePoint, Attempt] = {}
    end = time.monotonic() + seconds
    ended_by = ""
    with progress("tiles", budget) as shown, keep_when_stopped() as ending:
        for point in _proposals(
            space,
            attempts,
            [tiles.numbers(tile) for tile in first if tile in tiles],
            features,
            random.Random(seed),
        ):
            attempts[point] = _measured(tiles.tile(point), measure)
            shown.advance(doing=str(attempts[point]))
            ended_by = _reason_to_end(list(attempts.values()), budget, time.monotonic() > end)
            if ended_by:
                break
        else:
            ended_by = "every tile was tried"
    ended_by = INTERRUPTED if ending.is_stopped else ended_by
    return Search(attempts=tuple(attempts.values()), ended_by=ended_by)


def _proposals(
    space: Space,
    attempts: dict[TilePoint, Attempt],
    first: Sequence[TilePoint],
    features: Features,
    generator: random.Random,
) -> Iterator[TilePoint]:
    """The next tile to measure, by those measured so far; ends when no tile is left."""
    yield from dict.fromkeys(first)
    while len(attempts) < INITIAL_TILES or all(a.ms is None for a in attempts.values()):
        if (point := space.sample(generator, attempts)) is None:
            return
        yield point
    while True:
        times = {point: attempt.ms for point, attempt in attempts.items()}
        best = sorted(
            (point for point, ms in times.items() if ms is not None),
            key=lambda point: times[point] or 0.0,
        )
        waiting = promising(CostModel(times, features), space, best, attempts, generator)
        for _ in range(TILES_PER_MODEL):
            proposed = (
                next((point for point in waiting if point not in attempts), None)
                if generator.random() >= RANDOM_SHARE
                else None
            )
            if (point := proposed or space.sample(generator, attempts)) is None:
                return
            yield point


def _measured(tile: Tile, measure: Measure) -> Attempt:
    """Measure a tile; an error, even a driver's, is recorded and does not end the search."""
    try:
        ms = measure(tile)
    except Exception as error:
        return Attempt(tile=dict(tile), failure=message_of(error))
    if not 0 < ms < math.inf:
        return Attempt(tile=dict(tile), failure=f"its time is {ms} ms")
    return Attempt(tile=dict(tile), ms=ms)


def _reason_to_end(attempts: Sequence[Attempt], budget: int, is_late: bool) -> str:
    if len(attempts) >= budget:
        return "the budget is spent"
    last = attempts[-MAX_FAILURES:]
    if len(last) == MAX_FAILURES and all(attempt.failure for attempt in last):
        return f"{MAX_FAILURES} tiles failed in a row, the last because: {last[-1].failure}"
    return "no time was left" if is_late else ""


def finals(
    field: Sequence[Tile], in_turn: InTurn, *, rival: Tile, rounds: int = FINAL_ROUNDS
) -> tuple[Tile, float, float]:
    """The winner, its milliseconds, and those of its rival, the default, in the same rounds."""
    left = [tile for tile in field if tile != rival]
    while True:
        times = in_turn([*left, rival], rounds)
        ranked = sorted(range(len(left)), key=times.__getitem__)
        if len(left) <= 1:
            break
        left = [left[index] for index in ranked[: -(-len(left) // 2)]]
        rounds *= 2
    rival_ms = times[-1]
    is_faster = bool(left) and times[0] < rival_ms
    return (left[0], times[0], rival_ms) if is_faster else (rival, rival_ms, rival_ms)

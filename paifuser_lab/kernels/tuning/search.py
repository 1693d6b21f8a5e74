"""The search for the best tile within a budget of measurements, and the final rounds of the best
few.

The first tiles are taken by their bound and at random, the rest by a learned model. One in ten
stays random throughout, so that a model that is wrong but certain is corrected.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence

from ...errors import KernelError, PaifuserError, first_line
from ...progress import progress
from ...stopping import keep_when_stopped
from ..tiles import Tile, Tiles
from .evolution import CostModel, Known, promising
from .record import INTERRUPTED, Attempt, Search
from .space import COUNTED, Space, TilePoint

Measure = Callable[[Tile], float]  # milliseconds; whatever it raises is noted, and the tile left

InTurn = Callable[
    [Sequence[Tile], int], Sequence[float]
]  # milliseconds of each, measured in turn for so many rounds

START = 18  # tiles measured before a model is learned of them
AT_ONCE = 6  # tiles measured before it is learned anew
BY_CHANCE = 0.1
FINAL_ROUNDS = 5
FAILURES_TO_STOP = 25  # consecutive failures after which the device is taken for broken


def search(
    tiles: Tiles,
    measure: Measure,
    *,
    budget: int,
    first: Sequence[Tile] = (),
    known: Known = lambda point: (),
    seed: int = 0,
    seconds: float = math.inf,
    counted: int = COUNTED,
) -> Search:
    """Measure up to `budget` tiles, those of `first` first; when stopped, the results so far are
    kept.
    """
    if budget < 1:
        raise KernelError(
            f"A search measures at least one tile, not {budget}; give it a larger budget."
        )
    space = Space(tiles, counted)
    attempts: dict[TilePoint, Attempt] = {}
    end = time.monotonic() + seconds
    ended_by = ""
    with progress("tiles", budget) as shown, keep_when_stopped() as ending:
        for point in _proposed(
            space,
            attempts,
            [space.point(tile) for tile in first if tile in tiles],
            known,
            random.Random(seed),
        ):
            attempts[point] = _tried(space.tile(point), measure)
            shown.advance(doing=str(attempts[point]))
            ended_by = _reason_to_end(list(attempts.values()), budget, time.monotonic() > end)
            if ended_by:
                break
        else:
            ended_by = "every tile was tried"
    ended_by = INTERRUPTED if ending.is_stopped else ended_by
    return Search(attempts=tuple(attempts.values()), ended_by=ended_by)


def _proposed(
    space: Space,
    attempts: dict[TilePoint, Attempt],
    first: Sequence[TilePoint],
    known: Known,
    generator: random.Random,
) -> Iterator[TilePoint]:
    """The next tile to try, given those tried; ends when no tile is left."""
    yield from dict.fromkeys(first)
    while len(attempts) < START or all(one.ms is None for one in attempts.values()):
        if (point := space.drawn(generator, attempts)) is None:
            return
        yield point
    while True:
        times = {point: one.ms for point, one in attempts.items()}
        best = sorted(
            (point for point, ms in times.items() if ms is not None),
            key=lambda point: times[point] or 0.0,
        )
        waiting = promising(CostModel(times, known), space, best, attempts, generator)
        for _ in range(AT_ONCE):
            guessed = (
                next((point for point in waiting if point not in attempts), None)
                if generator.random() >= BY_CHANCE
                else None
            )
            if (point := guessed or space.drawn(generator, attempts)) is None:
                return
            yield point


def _tried(tile: Tile, measure: Measure) -> Attempt:
    """A tile measured, or why not; an error of one, even a driver's, does not end the search."""
    try:
        ms = measure(tile)
    except Exception as error:
        reason = (
            str(error)
            if isinstance(error, PaifuserError)
            else f"{type(error).__name__}: {first_line(error)}"
        )
        return Attempt(tile=dict(tile), failure=reason)
    if not 0 < ms < math.inf:
        return Attempt(tile=dict(tile), failure=f"its time is {ms} ms")
    return Attempt(tile=dict(tile), ms=ms)


def _reason_to_end(attempts: Sequence[Attempt], budget: int, is_late: bool) -> str:
    if len(attempts) >= budget:
        return "the budget is spent"
    if len(attempts) >= FAILURES_TO_STOP and all(
        one.failure for one in attempts[-FAILURES_TO_STOP:]
    ):
        last = attempts[-1].failure
        return f"{FAILURES_TO_STOP} tiles failed one after the other, the last because: {last}"
    return "no time was left" if is_late else ""


def finals(
    field: Sequence[Tile], in_turn: InTurn, *, rival: Tile, rounds: int = FINAL_ROUNDS
) -> tuple[Tile, float, float]:
    """The winner, its milliseconds and the rival's in the same rounds: the rival, the default tile,
    stays to the end unbeaten or not.
    """
    left = [tile for tile in field if tile != rival]
    while True:
        times = in_turn([*left, rival], rounds)
        ranked = sorted(range(len(left)), key=times.__getitem__)
        if len(left) <= 1:
            break
        left = [left[index] for index in ranked[: -(-len(left) // 2)]]
        rounds *= 2
    rival_ms = times[-1]
    return (
        (left[0], times[0], rival_ms)
        if left and times[0] < rival_ms
        else (rival, rival_ms, rival_ms)
    )

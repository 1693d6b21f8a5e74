"""The search for the best tile within a budget of measurements: a few by their bound and by chance,
then by the learned model.

The random part never ends: one in ten is drawn, so that a model that is sure of the wrong thing is
found out.
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
from .evolution import promising
from .model import CostModel, Known
from .record import INTERRUPTED, Attempt, Search
from .space import COUNTED, Cut, Space

Measure = Callable[[Tile], float]  # milliseconds; whatever it raises is noted, and the tile left

START = 18  # tiles measured before a model is learned of them
AT_ONCE = 6  # tiles measured before it is learned anew
BY_CHANCE = 0.1
HOPELESS = 25  # failures one after the other, after which a device is taken for broken


def search(
    tiles: Tiles,
    measure: Measure,
    *,
    budget: int,
    first: Sequence[Tile] = (),
    known: Known = lambda cut: (),
    seed: int = 0,
    seconds: float = math.inf,
    counted: int = COUNTED,
) -> Search:
    """Measure up to `budget` tiles, `first` of all those named; stopped by hand or by time it keeps
    what it has.
    """
    if budget < 1:
        raise KernelError(
            f"A search measures at least one tile, not {budget}; give it a larger budget."
        )
    space = Space(tiles, counted)
    attempts: dict[Cut, Attempt] = {}
    end = time.monotonic() + seconds
    ended_by = ""
    with progress("tiles", budget) as shown, keep_when_stopped() as ending:
        for cut in _proposed(
            space,
            attempts,
            [space.cut(tile) for tile in first if tile in tiles],
            known,
            random.Random(seed),
        ):
            attempts[cut] = _tried(space.tile(cut), measure)
            shown.advance(doing=str(attempts[cut]))
            ended_by = _reason_to_end(list(attempts.values()), budget, time.monotonic() > end)
            if ended_by:
                break
        else:
            ended_by = "every tile was tried"
    ended_by = INTERRUPTED if ending.is_stopped else ended_by
    return Search(attempts=tuple(attempts.values()), ended_by=ended_by)


def _proposed(
    space: Space,
    attempts: dict[Cut, Attempt],
    first: Sequence[Cut],
    known: Known,
    chance: random.Random,
) -> Iterator[Cut]:
    """What to try next, for ever, in the light of what was tried; it ends where nothing is left."""
    yield from dict.fromkeys(first)
    while len(attempts) < START or all(one.ms is None for one in attempts.values()):
        if (cut := space.drawn(chance, attempts)) is None:
            return
        yield cut
    while True:
        times = {cut: one.ms for cut, one in attempts.items()}
        best = sorted(
            (cut for cut, ms in times.items() if ms is not None), key=lambda cut: times[cut] or 0.0
        )
        waiting = promising(CostModel(times, known), space, best, attempts, chance)
        for _ in range(AT_ONCE):
            guessed = (
                next((cut for cut in waiting if cut not in attempts), None)
                if chance.random() >= BY_CHANCE
                else None
            )
            if (cut := guessed or space.drawn(chance, attempts)) is None:
                return
            yield cut


def _tried(tile: Tile, measure: Measure) -> Attempt:
    """A tile measured, or why not: what one raises, a driver's own errors among it, is no reason to
    leave the others.
    """
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
    if len(attempts) >= HOPELESS and all(one.failure for one in attempts[-HOPELESS:]):
        return (
            f"{HOPELESS} tiles failed one after the other, the last because: {attempts[-1].failure}"
        )
    return "no time was left" if is_late else ""

"""Tiles of one case against each other: each held to float64, then timed over inputs that the cache
cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from ...errors import KernelError
from ...kernels.runners import Runner
from ...kernels.tiles import Tile
from ...kernels.tuning.candidates import Prospects
from ...kernels.tuning.record import Winner, describe_tile
from ...kernels.tuning.search import finals, search
from .cases import Case, floor_bytes
from .checking import Inputs, error_of, exact
from .timing import Clock, Run, calls_of, sets_needed, timed_in_turn

FINALISTS = 8
BY_RANK = 12  # tiles tried because of their rank, before the model has learned anything
ROUNDS = 3  # of each tile in the search; the finals have more


@dataclass(frozen=True)
class Contest:
    """Who runs a case's launches, how they become one run, and who holds the clock."""

    case: Case
    sets: tuple[Inputs, ...]
    expected: Tensor
    run: Runner
    capture: Callable[[Sequence[Run]], Run]
    clock: Clock

    def measure(self, tile: Tile) -> float:
        """Milliseconds of a call, if its answer is right."""
        self._check(tile)
        return self.in_turn([tile], ROUNDS)[0]

    def in_turn(self, tiles: Sequence[Tile], rounds: int) -> list[float]:
        """Milliseconds of a call of each, the median of rounds in which everybody has a turn."""
        bound = [calls_of([partial(self._call, one, tile) for one in self.sets]) for tile in tiles]
        candidates = {
            str(index): (self.capture(calls), len(calls)) for index, calls in enumerate(bound)
        }
        return [us / 1e3 for us in timed_in_turn(candidates, self.clock, rounds).values()]

    def _call(self, inputs: Inputs, tile: Tile) -> Tensor:
        kernel = self.case.kernel
        out = kernel.empty(*inputs)
        self.run(kernel.plan(out, *inputs, tile=tile))
        return out

    def _check(self, tile: Tile) -> None:
        inputs, kernel = self.sets[0], self.case.kernel
        out = kernel.empty(*inputs).fill_(float("nan"))
        self.run(kernel.plan(out, *inputs, tile=tile))
        error = error_of(out, self.expected, self.case.allowed(inputs, self.expected))
        if not error <= 1:
            raise KernelError(f"its output is off by {error:.3g} times what is allowed")


def contest(
    case: Case,
    inputs: Inputs,
    run: Runner,
    capture: Callable[[Sequence[Run]], Run],
    clock: Clock,
    cache_bytes: int,
) -> Contest:
    """A contest with as many sets of inputs as it takes to get past the cache."""
    expected = exact(case.kernel, inputs)
    count = sets_needed(floor_bytes(inputs, case.kernel.empty(*inputs)), cache_bytes)
    sets = (inputs, *(case.make(expected.device) for _ in range(count - 1)))
    return Contest(case, sets, expected, run, capture, clock)


def winner(held: Contest, ranked: Prospects, *, budget: int, seconds: float) -> Winner:
    """Search among the tiles that can run, then the finals; the default tile takes part in both."""
    tiles = held.case.kernel.tiles
    known = {tuple(one.tile[name] for name in tiles.choices): one.known for one in ranked.kept}
    can_run = replace(
        tiles, is_sound=lambda tile: tuple(tile[name] for name in tiles.choices) in known
    )
    first = [tiles.default, *(one.tile for one in ranked.kept[:BY_RANK])]
    found = search(
        can_run, held.measure, budget=budget, first=first, known=known.__getitem__, seconds=seconds
    )
    if not any(one.tile == tiles.default for one in found.ranked):
        why = next(
            (one.failure for one in found.attempts if one.tile == tiles.default),
            "it cannot run on this device",
        )
        raise KernelError(
            f"{held.case.kernel.name} cannot be tuned, its default tile, "
            f"{describe_tile(dict(tiles.default))}, fails: {why}"
        )
    field: list[Tile] = [one.tile for one in found.ranked[:FINALISTS]]
    tile, ms, default_ms = finals(field, held.in_turn, rival=tiles.default)
    return Winner(tile=dict(tile), ms=ms, default_ms=default_ms, search=found)

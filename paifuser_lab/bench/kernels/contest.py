"""Compares the tiles of one case: each checked against float64, then timed over inputs larger than
the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from ...errors import KernelError
from ...kernels.runners import Runner
from ...kernels.tiles import Tile
from ...kernels.tuning.candidates import Candidates
from ...kernels.tuning.record import Winner, describe_tile
from ...kernels.tuning.search import finals, search
from .cases import Case, floor_bytes
from .checking import Inputs, error_of, exact
from .timing import Clock, Run, calls_of, sets_needed, timed_in_turn

FINALISTS = 8
BY_RANK = 12  # tiles tried for their rank, before the model is fitted
ROUNDS = 3  # of each tile in the search; the finals have more


@dataclass(frozen=True)
class Contest:
    """A case with its inputs, expected output, runner, graph capture and clock."""

    case: Case
    sets: tuple[Inputs, ...]
    expected: Tensor
    run: Runner
    capture: Callable[[Sequence[Run]], Run]
    clock: Clock

    def measure(self, tile: Tile) -> float:
        """Milliseconds per call; raises if the output is wrong."""
        self._check(tile)
        return self.in_turn([tile], ROUNDS)[0]

    def in_turn(self, tiles: Sequence[Tile], rounds: int) -> list[float]:
        """Milliseconds per call of each tile, the median of rounds in which each has a turn."""
        bound = [
            calls_of([partial(self._call, inputs, tile) for inputs in self.sets]) for tile in tiles
        ]
        runs = {str(index): (self.capture(calls), len(calls)) for index, calls in enumerate(bound)}
        return [us / 1e3 for us in timed_in_turn(runs, self.clock, rounds).values()]

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
            raise KernelError(f"its output is off by {error:.3g} times the allowed error")


def contest(
    case: Case,
    inputs: Inputs,
    run: Runner,
    capture: Callable[[Sequence[Run]], Run],
    clock: Clock,
    cache_bytes: int,
) -> Contest:
    """A contest with as many sets of inputs as exceed the cache."""
    expected = exact(case.kernel, inputs)
    count = sets_needed(floor_bytes(inputs, case.kernel.empty(*inputs)), cache_bytes)
    sets = (inputs, *(case.make(expected.device) for _ in range(count - 1)))
    return Contest(case, sets, expected, run, capture, clock)


def winner(field: Contest, candidates: Candidates, *, budget: int, seconds: float) -> Winner:
    """Search the tiles that can run, then run the finals; the default tile takes part in both."""
    tiles = field.case.kernel.tiles
    features = {
        tuple(candidate.tile[name] for name in tiles.choices): candidate.features
        for candidate in candidates.ranked
    }
    can_run = replace(
        tiles, is_valid=lambda tile: tuple(tile[name] for name in tiles.choices) in features
    )
    first = [tiles.default, *(candidate.tile for candidate in candidates.ranked[:BY_RANK])]
    result = search(
        can_run,
        field.measure,
        budget=budget,
        first=first,
        features=features.__getitem__,
        seconds=seconds,
    )
    if not any(attempt.tile == tiles.default for attempt in result.ranked):
        failures = (attempt.failure for attempt in result.attempts if attempt.tile == tiles.default)
        reason = next(failures, "it cannot run on this device")
        raise KernelError(
            f"{field.case.kernel.name} cannot be tuned, its default tile, "
            f"{describe_tile(dict(tiles.default))}, fails: {reason}"
        )
    finalists: list[Tile] = [attempt.tile for attempt in result.ranked[:FINALISTS]]
    tile, ms, default_ms = finals(finalists, field.in_turn, rival=tiles.default)
    return Winner(tile=dict(tile), ms=ms, default_ms=default_ms, search=result)

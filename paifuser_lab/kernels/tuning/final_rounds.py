"""The best few of a search measured again, in turn, until one is left: half of them leave, the
others get twice the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..tiles import Tile

InTurn = Callable[
    [Sequence[Tile], int], Sequence[float]
]  # milliseconds of each, over so many rounds in which each has a turn

ROUNDS = 5


def finals(
    field: Sequence[Tile], in_turn: InTurn, *, rival: Tile, rounds: int = ROUNDS
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

"""What a CUDA kernel is to the rest of the project: an operator of torch, the same in torch, and
how it is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from .launch import Launch
from .tiles import WHOLE, Tiles

BUDGETED_BY = (
    "13.5"  # the NVRTC that budgets are drawn for: another may well spend a few instructions more
)


class Budget(NamedTuple):
    """What one entry may cost, compiled for sm_90a, without spills anywhere."""

    registers: int
    instructions: int


@dataclass(frozen=True)
class Kernel:
    """One kernel. The functions take what the operator takes, by position.

    `compose` is the oracle of the tests, the answer on a CPU, the fallback on a GPU, and what a
    backward pass recomputes. `empty` checks that the inputs fit together and makes room for the
    answer; it is also what a compiler traces. `plan` says how the kernel is launched to fill that
    room, or raises DeclinedError; where there is more than one tile it takes one as `tile=`, and
    without it the one that was measured to be best for such inputs, or the default. `problem` says
    in a line what of the inputs decides which tile is best. Whole numbers have no gradient:
    `is_differentiable`.
    """

    name: str
    schema: str
    compose: Callable[..., Tensor]
    empty: Callable[..., Tensor]
    plan: Callable[..., Launch]
    budgets: Mapping[str, Budget]
    tiles: Tiles = WHOLE
    problem: Callable[..., str] = lambda *inputs: ""
    is_differentiable: bool = True

"""`Kernel`: declares a CUDA kernel as a torch operator, a composition in torch, and a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from .launch import Launch
from .tiles import NO_TILES, Tiles

BUDGETED_BY = "13.5"  # the NVRTC version of the budgets: others may need a few instructions more


class Budget(NamedTuple):
    """The most that one entry may use, compiled for sm_90a; spills are never allowed."""

    registers: int
    instructions: int


@dataclass(frozen=True)
class Kernel:
    """A CUDA kernel. The functions take the operator's arguments, by position.

    `compose` is the tests' reference, the result on a CPU, the fallback on a GPU, and what a
    backward pass recomputes. `empty` checks that the inputs fit together and allocates the output;
    compilers trace it for the output's shape. `plan` returns the launch that fills this output, or
    raises DeclinedError; where there is more than one tile it accepts one as `tile=`, and by
    default uses the one measured to be best for such inputs, or the default tile. `problem`
    describes in a line the properties of the inputs that decide which tile is best. A kernel on
    integers is not differentiable.
    """

    name: str
    schema: str
    compose: Callable[..., Tensor]
    empty: Callable[..., Tensor]
    plan: Callable[..., Launch]
    budgets: Mapping[str, Budget]
    tiles: Tiles = NO_TILES
    problem: Callable[..., str] = lambda *inputs: ""
    is_differentiable: bool = True

"""`Kernel`: the declaration of a CUDA kernel, as operator of torch, as composition in torch, and as
launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from .launch import Launch
from .tiles import WHOLE, Tiles

BUDGETED_BY = "13.5"  # the NVRTC version of the budgets: another may need a few instructions more


class Budget(NamedTuple):
    """What one entry may cost, compiled for sm_90a, without spills anywhere."""

    registers: int
    instructions: int


@dataclass(frozen=True)
class Kernel:
    """One kernel. The functions take the operator's arguments, by position.

    `compose` is the tests' reference, the result on a CPU, the fallback on a GPU, and what a
    backward pass recomputes. `empty` checks that the inputs fit together and allocates the output;
    it is also what a compiler traces. `plan` returns the launch that fills this output, or raises
    DeclinedError; where there is more than one tile it takes one as `tile=`, and without it the one
    measured to be best for such inputs, or the default. `problem` describes in a line what in the
    inputs decides which tile is best. Integers have no gradient: `is_differentiable`.
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

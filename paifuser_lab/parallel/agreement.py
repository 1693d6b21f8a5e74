"""What the ranks have to agree on before the first step: model, data, options. A difference is an
error on every rank that names who has what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch import nn

from ..errors import ParallelError
from .group import Group

MISSING = "nothing"


def agree(group: Group, facts: Mapping[str, Any]) -> None:
    """Raise on every rank unless all ranks have equal facts; values are compared as text."""
    if group.is_alone:
        return
    gathered: list[Any] = [None] * group.world
    dist.all_gather_object(gathered, {name: str(value) for name, value in facts.items()})
    problem = disagreement(gathered)
    if problem:
        raise ParallelError(problem)


def disagreement(by_rank: Sequence[Mapping[str, str]]) -> str:
    """The first difference between the ranks, as a sentence; empty if there is none."""
    first = by_rank[0]
    for rank, facts in enumerate(by_rank[1:], 1):
        for name in [*first, *(name for name in facts if name not in first)]:
            own, other = first.get(name, MISSING), facts.get(name, MISSING)
            if own != other:
                return (
                    f"The ranks disagree on {name}: rank 0 has {own}, and rank {rank} has {other}; "
                    "let all of them build the same. Nothing was trained."
                )
    return ""


def facts_of(model: nn.Module) -> dict[str, str]:
    """A model's weights and buffers: dtype, shape and whether they are trained."""
    facts = {"the model": type(model).__name__}
    for name, weight in model.named_parameters():
        kind = "" if weight.requires_grad else ", frozen"
        facts[f"the weight '{name}'"] = f"{weight.dtype} {tuple(weight.shape)}{kind}"
    for name, buffer in model.named_buffers():
        facts[f"the buffer '{name}'"] = f"{buffer.dtype} {tuple(buffer.shape)}"
    return facts

"""A copy of a model without values: its tensors are fake, its modules are copies."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from ...workload import Inputs


def fake_model(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """A deep copy whose parameters and buffers are fake; nothing of their size is allocated."""
    tensors = (*model.parameters(), *model.buffers())
    known: dict[int, Any] = {id(tensor): mode.from_tensor(tensor) for tensor in tensors}
    for tensor in tensors:
        if isinstance(tensor, nn.Parameter):
            known[id(tensor)].grad = None
    return copy.deepcopy(model, known)


def fake_inputs(inputs: Inputs, mode: FakeTensorMode) -> Inputs:
    """The inputs without values."""
    return inputs.map(mode.from_tensor)


def fake_target(target: Any, mode: FakeTensorMode) -> Any:
    """A target without values."""
    return pytree.tree_map_only(Tensor, mode.from_tensor, target)

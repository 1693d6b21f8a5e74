"""A copy of a model that can be changed: one that shares nothing with the model it was made from,
which is checked.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..errors import StepError


def copied(model: nn.Module) -> nn.Module:
    """A deep copy; where a module or its tensors are still the model's own, an error that names the
    module.
    """
    made = copy.deepcopy(model)
    _check_apart(model, made)
    return made


def _check_apart(model: nn.Module, made: nn.Module) -> None:
    modules = list(model.modules())
    own = {id(one) for one in modules}
    memory = {
        place
        for one in modules
        for _, tensor in _tensors(one)
        if (place := _memory(tensor)) is not None
    }
    for path, module in made.named_modules():
        named = (
            f"module '{path}' ({type(module).__name__})"
            if path
            else f"the model itself ({type(module).__name__})"
        )
        if id(module) in own:
            raise StepError(
                f"{named} is not copied but used again; let its __deepcopy__ make a new one"
            )
        for name, tensor in _tensors(module):
            if _memory(tensor) in memory:
                raise StepError(
                    f"the copy of {named} shares the memory of '{name}' with it; let its "
                    "__deepcopy__ copy that too"
                )


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers of a module itself."""
    yield from module.named_parameters(recurse=False)
    yield from module.named_buffers(recurse=False)


def _memory(tensor: Tensor) -> tuple[str, int] | None:
    """Where a tensor's values are; None where it has none, or an unknown place."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return None
    try:
        place = tensor.untyped_storage().data_ptr()
    except (
        NotImplementedError,
        RuntimeError,
    ):  # wrappers and opaque tensors have no memory of their own
        return None
    return (str(tensor.device), place) if place else None

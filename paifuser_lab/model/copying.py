"""Copy a model, and check that the copy shares no module and no memory with the original."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..errors import StepError


def copied(model: nn.Module) -> nn.Module:
    """A deep copy; raises an error that names a module that the copy shares with the model."""
    copy_of_model = copy.deepcopy(model)
    _check_independent(model, copy_of_model)
    return copy_of_model


def _check_independent(model: nn.Module, copy_of_model: nn.Module) -> None:
    modules = list(model.modules())
    own = {id(module) for module in modules}
    memory = {
        address
        for module in modules
        for _, tensor in _tensors(module)
        if (address := _memory(tensor)) is not None
    }
    for path, module in copy_of_model.named_modules():
        named = (
            f"module '{path}' ({type(module).__name__})"
            if path
            else f"the model itself ({type(module).__name__})"
        )
        if id(module) in own:
            raise StepError(
                f"{named} is reused instead of copied; let its __deepcopy__ return a new one"
            )
        for name, tensor in _tensors(module):
            if _memory(tensor) in memory:
                raise StepError(
                    f"the copy of {named} shares the memory of '{name}' with it; let its "
                    "__deepcopy__ copy it too"
                )


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers of the module itself, not of its children."""
    yield from module.named_parameters(recurse=False)
    yield from module.named_buffers(recurse=False)


def _memory(tensor: Tensor) -> tuple[str, int] | None:
    """The device and address of a tensor's storage; None where it has none or it is unknown."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return None
    try:
        address = tensor.untyped_storage().data_ptr()
    # wrappers and opaque tensors have no memory of their own
    except (NotImplementedError, RuntimeError):
        return None
    return (str(tensor.device), address) if address else None

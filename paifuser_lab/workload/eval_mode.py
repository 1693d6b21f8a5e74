"""A model run for a result: in eval mode, without gradients, with flags and buffers put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor, nn

# One thread runs models at a time: a workbench does so in the background while a cell may do the
# same, perhaps with the same model. Its flags and buffers, torch's profiler and its modes,
# exporting and compiling are the whole process's, and two timings would disturb each other.
QUIET = RLock()


@contextmanager
def running(model: nn.Module) -> Iterator[None]:
    """In eval mode and without gradients, while no other thread runs one; flags and buffers are put
    back whatever happens.
    """
    with QUIET:
        yield from _running(model)


def _running(model: nn.Module) -> Iterator[None]:
    before = [(module, module.training, dict(module._buffers)) for module in model.modules()]
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, flag, buffers in before:
            module.training = flag
            _put_buffers_back(module, buffers)
        with torch.no_grad():
            for buffer, value in values:
                if buffer.shape == value.shape and not is_equal(buffer, value):
                    buffer.copy_(value)


def _put_buffers_back(module: nn.Module, buffers: dict[str, Tensor | None]) -> None:
    """A forward may have put a new tensor, or a new name, in a buffer's place; compiled script
    cannot have new names.
    """
    if isinstance(module, torch.jit.ScriptModule):
        for name, buffer in buffers.items():
            setattr(module, name, buffer)
        return
    module._buffers.clear()
    module._buffers.update(buffers)


def is_equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same values, sparse ones too."""
    return (
        torch.equal(one, other)
        if one.layout is torch.strided
        else torch.equal(one.to_dense(), other.to_dense())
    )

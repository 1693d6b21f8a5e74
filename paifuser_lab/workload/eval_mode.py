"""Runs a model for its output: in eval mode, without gradients; flags and buffers are restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor, nn

# One thread runs models at a time: a workbench runs them in the background while a cell may do the
# same, perhaps with the same model. Its flags and buffers, torch's profiler and modes, export and
# compilation are global to the process, and concurrent timings would disturb each other.
QUIET = RLock()


@contextmanager
def running(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode without gradients, while no other thread runs one; flags and
    buffers are restored even after an error.
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
    """Restore buffers where a forward has replaced a tensor or added a name; a ScriptModule cannot
    have new names.
    """
    if isinstance(module, torch.jit.ScriptModule):
        for name, buffer in buffers.items():
            setattr(module, name, buffer)
        return
    module._buffers.clear()
    module._buffers.update(buffers)


def is_equal(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same values, sparse ones too."""
    return (
        torch.equal(first, second)
        if first.layout is torch.strided
        else torch.equal(first.to_dense(), second.to_dense())
    )

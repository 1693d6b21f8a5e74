"""Runs a model for its output: in eval mode, without gradients; flags and buffers are restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..machine.turns import QUIET

_is_evaluating = ContextVar("is_evaluating", default=False)


@contextmanager
def evaluating() -> Iterator[None]:
    """Only what the model outputs matters, not its time: test data are evaluated."""
    token = _is_evaluating.set(True)
    try:
        yield
    finally:
        _is_evaluating.reset(token)


def is_evaluating() -> bool:
    """Whether only what the model outputs matters."""
    return _is_evaluating.get()


@dataclass
class _Opened:
    """A model in eval mode, what restores it, and how many use it so."""

    restoring: ExitStack = field(default_factory=ExitStack)
    users: int = 0


_opened: dict[int, _Opened] = {}  # by the id of the model, which is alive meanwhile


@contextmanager
def running(*models: nn.Module) -> Iterator[None]:
    """Put models into eval mode without gradients, while no other thread runs one; flags and
    buffers are restored even after an error.
    """
    with QUIET, ExitStack() as restoring, torch.no_grad():
        for model in models:
            restoring.enter_context(_in_eval_mode(model))
        yield


@contextmanager
def running_in_turns(model: nn.Module) -> Iterator[None]:
    """The same for a measurement in rounds, which takes its turn for each: between them other
    threads run models, perhaps this one. The last thread that uses it so restores it.
    """
    with QUIET:
        opened = _opened.get(id(model)) or _Opened()
        if not opened.users:
            opened.restoring.enter_context(_in_eval_mode(model))
            _opened[id(model)] = opened  # not if that failed: the next one tries it again
        opened.users += 1
    try:
        with torch.no_grad():
            yield
    finally:
        with QUIET:
            opened.users -= 1
            if not opened.users:
                del _opened[id(model)]
                opened.restoring.close()


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    before = [(module, module.training, dict(module._buffers)) for module in model.modules()]
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    model.eval()
    try:
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

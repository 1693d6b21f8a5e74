"""Layers whose activations are not kept but computed again in the backward pass, with the same
random numbers and without moving a buffer twice. Built on torch.utils.checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..errors import StepError
from .precision import replaced_forward


@contextmanager
def recomputing(model: nn.Module, layers: Iterable[str]) -> Iterator[None]:
    """Checkpoint these layers' activations; the layers are as before on exit."""
    modules = dict(model.named_modules())
    with ExitStack() as stack:
        for layer in layers:
            if not layer or layer not in modules:
                raise StepError(
                    f"checkpointed: '{layer}' is no layer of this {type(model).__name__}; there "
                    f"are {', '.join(name for name in list(modules)[1:9])} …"
                )
            module: Any = modules[layer]
            again = partial(
                checkpoint,
                module.forward,
                use_reentrant=False,
                context_fn=partial(_contexts, module),
            )
            stack.enter_context(replaced_forward(module, again))
        yield


def _contexts(
    module: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Nothing around the forward pass; around its repetition, buffers are kept."""
    return nullcontext(), kept_buffers(module)


@contextmanager
def kept_buffers(module: nn.Module) -> Iterator[None]:
    """Restore a module's buffers on exit, such as the statistics of batch-norm."""
    restore = saved_buffers(module)
    try:
        yield
    finally:
        restore()


def saved_buffers(module: nn.Module) -> Any:
    """A function that restores the buffers as they are now."""
    saved = [
        (part, name, buffer, None if buffer is None else buffer.detach().clone())
        for part in module.modules()
        for name, buffer in part._buffers.items()
    ]

    def restore() -> None:
        with torch.no_grad():
            for part, name, buffer, value in saved:
                part._buffers[name] = buffer
                if buffer is not None and value is not None:
                    buffer.copy_(value)

    return restore

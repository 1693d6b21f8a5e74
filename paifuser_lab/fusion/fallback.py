"""When torch's own operators run instead of fused ones: under autograd, compilers and tracing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter
from torch.utils._python_dispatch import _get_current_dispatch_mode

PLAIN = (Tensor, Parameter)
_composing = ContextVar("composing", default=False)  # per thread


@contextmanager
def composing(is_on: bool = True) -> Iterator[None]:
    """Run everything unfused within this context; `composing(False)` inside runs it fused again."""
    before = _composing.set(is_on)
    try:
        yield
    finally:
        _composing.reset(before)


def is_composed() -> bool:
    """Whether a compiler, exporter, transform or tool needs to see the separate operators."""
    if torch.compiler.is_compiling() or torch._C._is_tracing() or torch.onnx.is_in_onnx_export():
        return True
    if forward_ad._current_level >= 0 or torch._C._functorch.maybe_current_level() is not None:
        return True
    return _composing.get() or bool(getattr(_get_current_dispatch_mode(), "wants_parts", False))


def wants_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd records operations on these tensors."""
    return torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in tensors
    )


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether all are plain tensors: no subclasses, which have arithmetic of their own."""
    return all(tensor is None or type(tensor) in PLAIN for tensor in tensors)

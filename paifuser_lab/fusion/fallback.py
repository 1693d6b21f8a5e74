"""When torch's own operators run instead of fused ones: under autograd, compilers and observers."""

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
_composing = ContextVar("composing", default=False)  # of the thread


@contextmanager
def composing(is_on: bool = True) -> Iterator[None]:
    """Within it everything runs as if nothing were fused, or, inside such, as it is."""
    before = _composing.set(is_on)
    try:
        yield
    finally:
        _composing.reset(before)


def is_composed() -> bool:
    """Whether a compiler, an exporter, a transform of the arithmetic or a tool that reads the
    structure is to see the parts.
    """
    if torch.compiler.is_compiling() or torch._C._is_tracing() or torch.onnx.is_in_onnx_export():
        return True
    if forward_ad._current_level >= 0 or torch._C._functorch.maybe_current_level() is not None:
        return True
    return _composing.get() or bool(getattr(_get_current_dispatch_mode(), "wants_parts", False))


def wants_gradient(*tensors: Tensor | None) -> bool:
    """Whether something will differentiate what is made of these."""
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors)


def is_plain(*tensors: Tensor | None) -> bool:
    """Tensors with nothing behind them: no subclass, whose own arithmetic counts."""
    return all(one is None or type(one) in PLAIN for one in tensors)

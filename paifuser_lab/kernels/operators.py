"""Kernels as torch operators: `torch.ops.paifuser.<name>`, with fake tensors, gradients, fallback.

Built on torch.library: `Library.define` and `impl` cost a quarter of what `custom_op` does at each
call. The backward pass recomputes the operator in torch and differentiates that: correct for every
input, also for second derivatives, and no faster than without the kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import Library
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import register_flop_formula

from ..errors import KernelError
from ..model.flops import counter
from .kernel import Kernel
from .runners import runner_of

NAMESPACE = "paifuser"
_library = Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]  # operators live as long as their library
_warned: set[tuple[str, str]] = set()


def register(kernel: Kernel) -> None:
    """Register a kernel with torch."""
    _library.define(f"{kernel.name}{kernel.schema}")  # type: ignore[no-untyped-call]
    for key in ("CPU", "CUDA"):
        _library.impl(kernel.name, _implementation(kernel), key)  # type: ignore[no-untyped-call]
    qualified = f"{NAMESPACE}::{kernel.name}"
    torch.library.register_fake(qualified, kernel.empty, lib=_library)
    register_flop_formula(getattr(getattr(torch.ops, NAMESPACE), kernel.name), get_raw=True)(
        _flop_formula(kernel)
    )
    rule = _recomputing_backward if kernel.is_differentiable else _raising_backward
    torch.library.register_autograd(
        qualified, rule(kernel), setup_context=_keep_inputs, lib=_library
    )


def _implementation(kernel: Kernel) -> Callable[..., Tensor]:
    def run(*inputs: Any) -> Tensor:
        out = kernel.empty(*inputs)
        runner = runner_of(out.device)
        if runner is None or out.numel() == 0:
            return kernel.compose(*inputs) if out.numel() else out
        try:
            runner(kernel.plan(out, *inputs))
        except KernelError as error:
            _warn_once(kernel.name, str(error))
            return kernel.compose(*inputs)
        return out

    return run


def _flop_formula(kernel: Kernel) -> Callable[..., int]:
    """Count the operations of the composition, since torch's counter would count none."""

    def formula(*inputs: Any, out_val: Any = None, **options: Any) -> int:
        # hidden from other counters and modes
        with _disable_current_modes(), torch.no_grad(), counter() as counted:
            kernel.compose(
                *pytree.tree_map_only(Tensor, lambda tensor: tensor.detach().to("meta"), inputs)
            )
        return int(counted.get_total_flops())

    return formula


def _warn_once(name: str, reason: str) -> None:
    if (name, reason) not in _warned:
        _warned.add((name, reason))
        warnings.warn(
            f"{name} runs in torch, not in its CUDA kernel: {reason.rstrip('.')}.", stacklevel=3
        )


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*(value for value in inputs if isinstance(value, Tensor)))
    ctx.others = [None if isinstance(value, Tensor) else (value,) for value in inputs]


def _raising_backward(kernel: Kernel) -> Callable[..., Any]:
    """The backward pass of a kernel that has none: an error."""

    def backward(ctx: Any, gradient: Tensor) -> None:
        raise KernelError(
            f"{kernel.name} computes on integers, which have no gradient; train the layer "
            "before it is quantized."
        )

    return backward


def _recomputing_backward(kernel: Kernel) -> Callable[..., Any]:
    """A backward pass that recomputes the output from the kept inputs."""

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved) if other is None else other[0] for other in ctx.others]
        needed = [index for index, needs in enumerate(ctx.needs_input_grad) if needs]
        differentiate = _gradients_with_graph if torch.is_grad_enabled() else _gradients
        gradients = differentiate(kernel.compose, inputs, needed, gradient)
        by_index = dict(zip(needed, gradients, strict=True))
        return tuple(by_index.get(index) for index in range(len(inputs)))

    return backward


def _gradients(
    compose: Callable[..., Tensor], inputs: list[Any], needed: list[int], gradient: Tensor
) -> tuple[Tensor, ...]:
    """The gradients with respect to the needed inputs, without a graph."""
    inputs = [value.detach() if isinstance(value, Tensor) else value for value in inputs]
    with torch.enable_grad():
        for index in needed:
            inputs[index].requires_grad_()
        return torch.autograd.grad(compose(*inputs), [inputs[index] for index in needed], gradient)


def _gradients_with_graph(
    compose: Callable[..., Tensor], inputs: list[Any], needed: list[int], gradient: Tensor
) -> tuple[Tensor, ...]:
    """The same gradients with their graph, to be differentiated again (`create_graph=True`).

    A view of each needed input keeps its gradient from flowing through another input that was
    computed from it. torch's fused attention has no second derivative; its plain composition has.
    """
    inputs = list(inputs)
    for index in needed:
        inputs[index] = inputs[index].view_as(inputs[index])
    with sdpa_kernel(SDPBackend.MATH):
        return torch.autograd.grad(
            compose(*inputs), [inputs[index] for index in needed], gradient, create_graph=True
        )

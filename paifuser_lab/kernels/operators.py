"""Kernels as operators of torch: `torch.ops.paifuser.<name>`, with fake tensors, gradients and
fallback.

Built on torch.library: `Library.define` and `impl` cost a quarter of what `custom_op` does at each
call. The backward pass recomputes the operator in torch and differentiates that: correct for every
input, twice if asked, and no faster than it was.
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
from ..measure.flops import counter
from .kernel import Kernel
from .runners import runner_of

NAMESPACE = "paifuser"
_library = Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]  # operators live as long as their library
_warned: set[tuple[str, str]] = set()


def register(kernel: Kernel) -> None:
    """Make a kernel known to torch."""
    _library.define(f"{kernel.name}{kernel.schema}")  # type: ignore[no-untyped-call]
    for key in ("CPU", "CUDA"):
        _library.impl(kernel.name, _implementation(kernel), key)  # type: ignore[no-untyped-call]
    qualified = f"{NAMESPACE}::{kernel.name}"
    torch.library.register_fake(qualified, _room(kernel), lib=_library)
    register_flop_formula(getattr(getattr(torch.ops, NAMESPACE), kernel.name), get_raw=True)(
        _arithmetic(kernel)
    )
    backward, keep = _by_recomputing(kernel) if kernel.is_differentiable else _by_refusing(kernel)
    torch.library.register_autograd(qualified, backward, setup_context=keep, lib=_library)


def _implementation(kernel: Kernel) -> Callable[..., Tensor]:
    room = _room(kernel)

    def run(*inputs: Any) -> Tensor:
        out = room(*inputs)
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


def _room(kernel: Kernel) -> Callable[..., Tensor]:
    """The output's allocation, after a check that the inputs are on one device and fit together."""

    def room(*inputs: Any) -> Tensor:
        if len({one.device for one in inputs if isinstance(one, Tensor)}) > 1:
            raise KernelError(_scattered(kernel, inputs))
        return kernel.empty(*inputs)

    return room


def _scattered(kernel: Kernel, inputs: tuple[Any, ...]) -> str:
    """The message about tensors on several devices, whose addresses mean nothing to one kernel."""
    arguments = torch._C.parse_schema(f"{kernel.name}{kernel.schema}").arguments
    by_device: dict[torch.device, list[str]] = {}
    for argument, one in zip(arguments, inputs, strict=False):
        if isinstance(one, Tensor):
            by_device.setdefault(one.device, []).append(argument.name)
    devices = ", ".join(f"{_together(names)} on {device}" for device, names in by_device.items())
    return (
        f"{kernel.name} takes all its tensors on one device, not {devices}; move them to one with "
        ".to(device)."
    )


def _together(names: list[str]) -> str:
    """x, weight and bias."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _arithmetic(kernel: Kernel) -> Callable[..., int]:
    """The operations of the composition, for torch's counter, which would count none."""

    def formula(*inputs: Any, out_val: Any = None, **options: Any) -> int:
        with (
            _disable_current_modes(),
            torch.no_grad(),
            counter() as counted,
        ):  # other counters and modes must not see it
            kernel.compose(
                *pytree.tree_map_only(Tensor, lambda one: one.detach().to("meta"), inputs)
            )
        return int(counted.get_total_flops())

    return formula


def _warn_once(name: str, reason: str) -> None:
    if (name, reason) not in _warned:
        _warned.add((name, reason))
        warnings.warn(
            f"{name} runs in torch, not in its CUDA kernel: {reason.rstrip('.')}.", stacklevel=3
        )


def _by_refusing(kernel: Kernel) -> tuple[Callable[..., Any], Callable[..., None]]:
    """The backward pass of a kernel without gradient: an error."""

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    def backward(ctx: Any, gradient: Tensor) -> None:
        raise KernelError(
            f"{kernel.name} computes on integers, which have no gradient; train the layer "
            "before it is quantized."
        )

    return backward, keep


def _by_recomputing(kernel: Kernel) -> tuple[Callable[..., Any], Callable[..., None]]:
    """The backward pass, and the function that saves its inputs."""

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*(one for one in inputs if isinstance(one, Tensor)))
        ctx.others = [None if isinstance(one, Tensor) else (one,) for one in inputs]

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved) if other is None else other[0] for other in ctx.others]
        wanted = [index for index, needs in enumerate(ctx.needs_input_grad) if needs]
        differentiate = _gradients_with_graph if torch.is_grad_enabled() else _gradients
        gradients = dict(
            zip(wanted, differentiate(kernel.compose, inputs, wanted, gradient), strict=True)
        )
        return tuple(gradients.get(index) for index in range(len(inputs)))

    return backward, keep


def _gradients(
    compose: Callable[..., Tensor], inputs: list[Any], wanted: list[int], gradient: Tensor
) -> tuple[Tensor, ...]:
    """The gradients in the wanted inputs, as plain numbers."""
    inputs = [one.detach() if isinstance(one, Tensor) else one for one in inputs]
    with torch.enable_grad():
        for index in wanted:
            inputs[index].requires_grad_()
        return torch.autograd.grad(compose(*inputs), [inputs[index] for index in wanted], gradient)


def _gradients_with_graph(
    compose: Callable[..., Tensor], inputs: list[Any], wanted: list[int], gradient: Tensor
) -> tuple[Tensor, ...]:
    """The same with their graph, so that they can be differentiated again (`create_graph=True`).

    A view of each wanted input keeps the gradient in one from going through another that was
    computed from it. torch's fused attention has no second derivative; its plain composition has.
    """
    inputs = list(inputs)
    for index in wanted:
        inputs[index] = inputs[index].view_as(inputs[index])
    with sdpa_kernel(SDPBackend.MATH):
        return torch.autograd.grad(
            compose(*inputs), [inputs[index] for index in wanted], gradient, create_graph=True
        )

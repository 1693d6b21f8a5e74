"""Marks for what a machine lacks, kernels in the emulator, and the check of an operator."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from paifuser_lab.errors import KernelError, MissingExtraError
from paifuser_lab.kernels import nvrtc, runners
from paifuser_lab.kernels.compile import shipped
from paifuser_lab.kernels.disassembly import disassembler
from paifuser_lab.kernels.kernel import Kernel, Launch
from paifuser_lab.model.flops import counter
from tests.support.cuda_on_cpu.emulator import Emulator, compiler

REQUIRED = os.environ.get("PAIFUSER_REQUIRE", "").split(",")
needs_compiler = pytest.mark.skipif(
    compiler() is None and "g++" not in REQUIRED, reason="g++ is not installed"
)
built = cache(Emulator)


@cache
def is_missing(load):
    try:
        load()
    except MissingExtraError:
        return True
    return False


needs_nvrtc = pytest.mark.skipif(
    is_missing(nvrtc.nvrtc) and "nvrtc" not in REQUIRED, reason="nvidia-cuda-nvrtc is not installed"
)
needs_disassembler = pytest.mark.skipif(
    is_missing(disassembler) and "nvrtc" not in REQUIRED, reason="nvdisasm is not installed"
)


def run_by(run: Callable[[Launch], None], device_type: str):
    """Use a runner for a type of device within the `with` block."""
    return patch.dict(runners._runners, {device_type: run})


@contextmanager
def emulator_for_cpu(kernel: Kernel, entries: tuple[str, ...]):
    """Run operators on the CPU in the emulated kernel, through the same checks as on a GPU; yields
    the list of launches.
    """
    ran: list[Launch] = []

    def run(launch: Launch) -> None:
        ran.append(launch)
        built(shipped(kernel.name), entries)(launch)

    with run_by(run, "cpu"):
        yield ran


def check_operator(kernel: Kernel, entries: tuple[str, ...], inputs: tuple[Any, ...]) -> None:
    """Check an operator by torch's opcheck, torch.compile, torch.export, its FLOPs, and its
    gradients against the composed ones, if it has any.
    """
    operator = getattr(torch.ops.paifuser, kernel.name).default
    leaves = tuple(
        value.requires_grad_() if kernel.is_differentiable and _has_gradient(value) else value
        for value in inputs
    )
    with emulator_for_cpu(kernel, entries) as ran:
        torch.library.opcheck(operator, leaves)
        output = operator(*leaves)
        compiled = torch.compile(
            lambda *args: operator(*args) * 2, fullgraph=True, backend="aot_eager"
        )
        torch.testing.assert_close(compiled(*leaves), output * 2, rtol=0, atol=0)
        program = torch.export.export(
            _Calling(operator, inputs),
            tuple(value for value in inputs if isinstance(value, Tensor)),
        )
        assert operator in [node.target for node in program.graph.nodes]
        assert ran
        assert arithmetic(operator, inputs) == arithmetic(kernel.compose, inputs) > 0
        if not kernel.is_differentiable:
            _check_refused(operator, inputs)
            return
        differentiable = [value for value in leaves if _has_gradient(value)]
        weight = torch.randn_like(output)
        gradients = torch.autograd.grad(output, differentiable, weight)
    composed = torch.autograd.grad(kernel.compose(*leaves), differentiable, weight)
    for value, other in zip(gradients, composed, strict=True):
        torch.testing.assert_close(value, other, rtol=0, atol=0)


def arithmetic(run: Callable[..., Any], inputs: tuple[Any, ...]) -> int:
    """The FLOPs by torch's counter."""
    with torch.no_grad(), counter() as counted:
        run(*inputs)
    return int(counted.get_total_flops())


def _check_refused(operator: Any, inputs: tuple[Any, ...]) -> None:
    """Check that a request for a gradient raises a KernelError."""
    output = operator(
        *(value.requires_grad_() if _has_gradient(value) else value for value in inputs)
    )
    if output.requires_grad:
        with pytest.raises(KernelError, match="integers, which have no gradient"):
            output.sum().backward()


def _has_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


class _Calling(torch.nn.Module):
    """A model of one operator with its constant arguments filled in."""

    def __init__(self, operator: Any, inputs: tuple[Any, ...]) -> None:
        super().__init__()
        self.operator = operator
        self.inputs = [None if isinstance(value, Tensor) else (value,) for value in inputs]

    def forward(self, *tensors: Tensor) -> Tensor:
        remaining = iter(tensors)
        return self.operator(
            *(next(remaining) if value is None else value[0] for value in self.inputs)
        )

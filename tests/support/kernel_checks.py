"""Checks shared by all kernels, so that each kernel's test file has only its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from paifuser_lab.errors import KernelError, MissingExtraError
from paifuser_lab.kernels import nvrtc
from paifuser_lab.kernels.disassembly import disassembler
from paifuser_lab.kernels.kernel import Kernel
from paifuser_lab.kernels.launch import Launch
from paifuser_lab.kernels.runners import run_by
from paifuser_lab.kernels.tiles import Tile
from paifuser_lab.measure.flops import counter
from tests.support.cuda_on_cpu.emulator import EmulationError, Emulator, compiler, source_of

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

_BATCH = 40  # entries compiled as one module: g++ needs a tenth of a second for each


def planned(kernel: Kernel, inputs: tuple[Any, ...], **how: Any) -> tuple[Tensor, Launch]:
    """A launch and its output tensor, filled with NaN, or with 99 if it holds integers."""
    out = kernel.empty(*inputs)
    out.fill_(float("nan") if out.is_floating_point() else 99)
    return out, kernel.plan(out, *inputs, **how)


def emulated(
    kernel: Kernel, entries: tuple[str, ...], inputs: tuple[Any, ...], **how: Any
) -> Tensor:
    """The kernel's output on the emulator."""
    out, launch = planned(kernel, inputs)
    built(source_of(kernel.name), entries, **how)(launch)
    return out


def exact(kernel: Kernel, inputs: tuple[Any, ...]) -> Tensor:
    """The kernel's expected output in float64."""
    return kernel.compose(*(value.double() if _has_gradient(value) else value for value in inputs))


def check_tiles(
    kernel: Kernel,
    inputs: tuple[Any, ...],
    tiles: Iterable[Tile],
    assert_exact: Callable[..., None],
) -> None:
    """Check that the output is right with every tile size; batches of tiles are compiled
    together.
    """
    tiles = list(tiles)
    for start in range(0, len(tiles), _BATCH):
        plans = [planned(kernel, inputs, tile=tile) for tile in tiles[start : start + _BATCH]]
        entries = tuple(launch.entry for _, launch in plans)
        assert len(set(entries)) == len(entries)
        for out, launch in plans:
            built(source_of(kernel.name), entries)(launch)
            assert_exact(out, inputs)


def check_clean(kernel: Kernel, inputs: tuple[Any, ...], check: str, **how: Any) -> None:
    """Check that a sanitizer finds no error in the kernel."""
    _, launch = planned(kernel, inputs, **how)
    built(source_of(kernel.name), (launch.entry,), check)(launch)


def check_caught(
    kernel: Kernel,
    inputs: tuple[Any, ...],
    check: str,
    text: str,
    planted: str,
    words: str,
    **how: Any,
) -> None:
    """Check that a planted error in the kernel is reported in these words."""
    source = source_of(kernel.name)
    assert text in source, f"{kernel.name} no longer has the line {text!r}"
    _, launch = planned(kernel, inputs, **how)
    with pytest.raises(EmulationError, match=words):
        built(source.replace(text, planted, 1), (launch.entry,), check)(launch)


@contextmanager
def emulator_for_cpu(kernel: Kernel, entries: tuple[str, ...]):
    """Run operators on the CPU in the emulated kernel, through the same checks as on a GPU; yields
    the list of launches.
    """
    ran: list[Launch] = []

    def run(launch: Launch) -> None:
        ran.append(launch)
        built(source_of(kernel.name), entries)(launch)

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
        self.operator, self.inputs = (
            operator,
            [None if isinstance(value, Tensor) else (value,) for value in inputs],
        )

    def forward(self, *tensors: Tensor) -> Tensor:
        remaining = iter(tensors)
        return self.operator(
            *(next(remaining) if value is None else value[0] for value in self.inputs)
        )

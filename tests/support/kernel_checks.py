"""What every kernel is held to, so that a kernel's own test file says only what is its own."""

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
def is_missing(door):
    try:
        door()
    except MissingExtraError:
        return True
    return False


needs_nvrtc = pytest.mark.skipif(
    is_missing(nvrtc.nvrtc) and "nvrtc" not in REQUIRED, reason="nvidia-cuda-nvrtc is not installed"
)
needs_disassembler = pytest.mark.skipif(
    is_missing(disassembler) and "nvrtc" not in REQUIRED, reason="nvdisasm is not installed"
)

_TOGETHER = 40  # entries of a module: g++ needs a tenth of a second for each


def planned(kernel: Kernel, inputs: tuple[Any, ...], **how: Any) -> tuple[Tensor, Launch]:
    """A launch, and the room that it is to fill, which holds NaN until then, or 99 where whole
    numbers go.
    """
    out = kernel.empty(*inputs)
    out.fill_(float("nan") if out.is_floating_point() else 99)
    return out, kernel.plan(out, *inputs, **how)


def emulated(
    kernel: Kernel, entries: tuple[str, ...], inputs: tuple[Any, ...], **how: Any
) -> Tensor:
    """What the kernel answers on the emulator."""
    out, launch = planned(kernel, inputs)
    built(source_of(kernel.name), entries, **how)(launch)
    return out


def exact(kernel: Kernel, inputs: tuple[Any, ...]) -> Tensor:
    """What the kernel should answer, in float64."""
    return kernel.compose(*(one.double() if _has_gradient(one) else one for one in inputs))


def check_tiles(
    kernel: Kernel,
    inputs: tuple[Any, ...],
    tiles: Iterable[Tile],
    assert_exact: Callable[..., None],
) -> None:
    """However the kernel is cut, its answer is right; what is cut alike is compiled together."""
    tiles = list(tiles)
    for start in range(0, len(tiles), _TOGETHER):
        plans = [planned(kernel, inputs, tile=tile) for tile in tiles[start : start + _TOGETHER]]
        entries = tuple(launch.entry for _, launch in plans)
        assert len(set(entries)) == len(entries)
        for out, launch in plans:
            built(source_of(kernel.name), entries)(launch)
            assert_exact(out, inputs)


def check_clean(kernel: Kernel, inputs: tuple[Any, ...], check: str, **how: Any) -> None:
    """A sanitizer has nothing to say about the kernel as it is."""
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
    """The same kernel with a mistake planted is found out, in these words."""
    source = source_of(kernel.name)
    assert text in source, f"{kernel.name} no longer has the line {text!r}"
    _, launch = planned(kernel, inputs, **how)
    with pytest.raises(EmulationError, match=words):
        built(source.replace(text, planted, 1), (launch.entry,), check)(launch)


@contextmanager
def emulator_for_cpu(kernel: Kernel, entries: tuple[str, ...]):
    """Operators on a CPU run in the emulated kernel, through all that stands before a GPU; what was
    launched is listed.
    """
    ran: list[Launch] = []

    def run(launch: Launch) -> None:
        ran.append(launch)
        built(source_of(kernel.name), entries)(launch)

    with run_by(run, "cpu"):
        yield ran


def check_operator(kernel: Kernel, entries: tuple[str, ...], inputs: tuple[Any, ...]) -> None:
    """torch's own checks of an operator, a full graph compiled, an export, its arithmetic, and the
    composed gradients', or none.
    """
    operator = getattr(torch.ops.paifuser, kernel.name).default
    leaves = tuple(
        one.requires_grad_() if kernel.is_differentiable and _has_gradient(one) else one
        for one in inputs
    )
    with emulator_for_cpu(kernel, entries) as ran:
        torch.library.opcheck(operator, leaves)
        made = operator(*leaves)
        compiled = torch.compile(
            lambda *given: operator(*given) * 2, fullgraph=True, backend="aot_eager"
        )
        torch.testing.assert_close(compiled(*leaves), made * 2, rtol=0, atol=0)
        program = torch.export.export(
            _Calling(operator, inputs), tuple(one for one in inputs if isinstance(one, Tensor))
        )
        assert operator in [node.target for node in program.graph.nodes]
        assert ran
        assert arithmetic(operator, inputs) == arithmetic(kernel.compose, inputs) > 0
        if not kernel.is_differentiable:
            _check_refused(operator, inputs)
            return
        wanted = [one for one in leaves if _has_gradient(one)]
        weight = torch.randn_like(made)
        found = torch.autograd.grad(made, wanted, weight)
    composed = torch.autograd.grad(kernel.compose(*leaves), wanted, weight)
    for one, other in zip(found, composed, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def arithmetic(run: Callable[..., Any], inputs: tuple[Any, ...]) -> int:
    """The floating-point operations that torch's counter finds."""
    with torch.no_grad(), counter() as counted:
        run(*inputs)
    return int(counted.get_total_flops())


def _check_refused(operator: Any, inputs: tuple[Any, ...]) -> None:
    """A gradient that somebody asks for is refused in a sentence."""
    made = operator(*(one.requires_grad_() if _has_gradient(one) else one for one in inputs))
    if made.requires_grad:
        with pytest.raises(KernelError, match="integers, which have no gradient"):
            made.sum().backward()


def _has_gradient(one: Any) -> bool:
    return isinstance(one, Tensor) and one.is_floating_point()


class _Calling(torch.nn.Module):
    """A model that is one operator, its numbers filled in."""

    def __init__(self, operator: Any, inputs: tuple[Any, ...]) -> None:
        super().__init__()
        self.operator, self.inputs = (
            operator,
            [None if isinstance(one, Tensor) else (one,) for one in inputs],
        )

    def forward(self, *tensors: Tensor) -> Tensor:
        given = iter(tensors)
        return self.operator(*(next(given) if one is None else one[0] for one in self.inputs))

"""Checks before anything is measured: the functions of common.cuh against PTX's tables, and whether
machine code loads.

The probes of those functions and the emulator that runs kernels on the CPU are only in a checkout.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import torch

from ..._files import PACKAGE
from ...errors import MeasureError, PaifuserError, first_line
from ...kernels import KERNELS
from ...kernels.compile import shipped
from ...kernels.runners import CupyRunner, Runner
from .record import KernelProbe

SUPPORT = PACKAGE.parent / "tests" / "support"


def probed(device_type: str) -> tuple[KernelProbe, ...]:
    """Probe every function, on a GPU or in the emulator."""
    try:
        probes = _module("kernel_probes.py")
        source = _file("cuda_on_cpu/probe.cu").read_text(encoding="utf-8")
        run = (
            CupyRunner(lambda kernel: source)
            if device_type == "cuda"
            else emulator().Emulator(source, probes.ENTRIES)
        )
    except PaifuserError as error:
        return (KernelProbe(name="functions of common.cuh", failure=str(error)),)
    functions = tuple(
        _probe(check.__doc__.strip().splitlines()[0].rstrip("."), partial(check, run, device_type))
        for check in probes.CHECKS
    )
    return (*functions, *loadable()) if device_type == "cuda" else functions


def loadable() -> Iterator[KernelProbe]:
    """Whether the machine code of every entry with a budget loads."""
    run, device = CupyRunner(), torch.cuda.current_device()
    for kernel in KERNELS.values():
        for entry in kernel.budgets:
            yield _probe(f"{entry} loads", partial(run.load, device, kernel.name, entry, 0))


def _probe(name: str, check: Callable[[], object]) -> KernelProbe:
    """A probe, with the message of the check where it fails in whichever way."""
    try:
        check()
    except Exception as error:
        return KernelProbe(name=name, failure=f"{type(error).__name__}: {first_line(error)}")
    return KernelProbe(name=name)


def emulated() -> Runner:
    """A runner of the shipped kernels on the CPU; each entry is built at its first launch."""
    built = cache(emulator().Emulator)
    return lambda launch: built(shipped(launch.kernel), (launch.entry,))(launch)


def emulator() -> ModuleType:
    """tests/support/cuda_on_cpu/emulator.py, where g++ is installed."""
    module = _module("cuda_on_cpu/emulator.py")
    if module.compiler() is None:
        raise MeasureError(
            "Kernels run on a CPU by g++, which is not installed; install it, or run the benchmark "
            "on a GPU."
        )
    return module


@cache
def _module(name: str) -> ModuleType:
    path = _file(name)
    qualified = f"paifuser_lab_checkout_{path.stem}"
    spec = importlib.util.spec_from_file_location(qualified, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[qualified] = module  # dataclasses need to find their own module
    spec.loader.exec_module(module)
    return module


def _file(name: str) -> Path:
    if not (SUPPORT / name).exists():
        raise MeasureError(
            f"{name} is only in a checkout of this project, not in an installed package; run the "
            "benchmark from a checkout."
        )
    return SUPPORT / name

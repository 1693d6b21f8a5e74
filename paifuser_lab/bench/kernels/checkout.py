"""What only a checkout has: the emulator that runs kernels on the CPU, and the probes that test
both it and a GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ..._files import PACKAGE
from ...errors import MeasureError
from ...kernels.launch import Launch
from ...kernels.runners import Runner

SUPPORT = PACKAGE.parent / "tests" / "support"


@cache
def probes() -> ModuleType:
    """tests/support/kernel_probes.py: the expected results of the functions of common.cuh."""
    return _module("kernel_probes.py")


@cache
def emulator() -> ModuleType:
    """tests/support/cuda_on_cpu/emulator.py, where g++ is installed."""
    module = _module("cuda_on_cpu/emulator.py")
    if module.compiler() is None:
        raise MeasureError(
            "Kernels run on a CPU by g++, which is not installed; install it, or run the benchmark "
            "on a GPU."
        )
    return module


def probe_source() -> str:
    """The kernels that probe one function of common.cuh each."""
    return _file("cuda_on_cpu/probe.cu").read_text(encoding="utf-8")


def emulated() -> Runner:
    """A runner of the shipped kernels on the CPU; each entry is built at its first launch."""
    module = emulator()
    built: dict[tuple[str, str], Any] = {}

    def run(launch: Launch) -> None:
        key = (launch.kernel, launch.entry)
        if key not in built:
            built[key] = module.Emulator(module.source_of(launch.kernel), (launch.entry,))
        built[key](launch)

    return run


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

"""The door to what is in a checkout alone: the emulator that stands in for a GPU, and the probes
that both are held to.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ..._assets import PACKAGE
from ...errors import MeasureError
from ...kernels.launch import Launch
from ...kernels.runners import Runner

SUPPORT = PACKAGE.parent / "tests" / "support"


@cache
def probes() -> ModuleType:
    """tests/support/kernel_probes.py: what the words of common.cuh mean."""
    return _module("kernel_probes.py")


@cache
def emulator() -> ModuleType:
    """tests/support/cuda_on_cpu/emulator.py, where g++ is installed."""
    module = _module("cuda_on_cpu/emulator.py")
    if module.compiler() is None:
        raise MeasureError(
            "Kernels run on a CPU by g++, which is not installed; install it, or run this on a GPU."
        )
    return module


def probe_source() -> str:
    """The kernels that probe one word each."""
    return _file("cuda_on_cpu/probe.cu").read_text(encoding="utf-8")


def emulated() -> Runner:
    """Runs launches of the shipped kernels on the CPU; each entry is built when it is first met."""
    found = emulator()
    built: dict[tuple[str, str], Any] = {}

    def run(launch: Launch) -> None:
        key = (launch.kernel, launch.entry)
        if key not in built:
            built[key] = found.Emulator(found.source_of(launch.kernel), (launch.entry,))
        built[key](launch)

    return run


def _module(name: str) -> ModuleType:
    path = _file(name)
    made = f"paifuser_lab_checkout_{path.stem}"
    spec = importlib.util.spec_from_file_location(made, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[made] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


def _file(name: str) -> Path:
    if not (SUPPORT / name).exists():
        raise MeasureError(
            f"{name} is in a checkout of this project alone, not in an installed package; run the "
            "bench from one."
        )
    return SUPPORT / name

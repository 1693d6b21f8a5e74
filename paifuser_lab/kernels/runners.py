"""The runner that launches kernels on a type of device: CuPy on a GPU, an emulator in tests, none
on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from .cupy_runner import CupyRunner
from .launch import Launch

Runner = Callable[[Launch], None]
_runners: dict[str, Runner] = {}


def runner_of(device: torch.device) -> Runner | None:
    """The runner of a device; None on a CPU, where torch computes the result."""
    if device.type == "cuda" and "cuda" not in _runners:
        _runners["cuda"] = CupyRunner()
    return _runners.get(device.type)


@contextmanager
def run_by(runner: Runner, device_type: str) -> Iterator[None]:
    """Use a runner for a type of device within the `with` block."""
    before = _runners.get(device_type)
    _runners[device_type] = runner
    try:
        yield
    finally:
        del _runners[device_type]
        if before is not None:
            _runners[device_type] = before

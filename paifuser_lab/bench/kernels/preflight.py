"""Checks before anything is measured: the functions of common.cuh against PTX's tables, and whether
machine code loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from ...errors import PaifuserError, first_line
from ...kernels import KERNELS
from ...kernels.compile import FLAGS, Program, headers_of
from ...kernels.cupy_runner import CupyRunner
from ...kernels.runners import Runner
from .checkout import emulator, probe_source, probes
from .record import KernelProbe


def probed(device_type: str) -> tuple[KernelProbe, ...]:
    """Probe every function, on a GPU or in the emulator."""
    try:
        checks, run = probes().CHECKS, _runner(device_type)
    except PaifuserError as error:
        return (KernelProbe(name="functions of common.cuh", failure=str(error)),)
    functions = tuple(
        KernelProbe(name=name, failure=_failure(partial(check, run, device_type)))
        for name, check in _named(checks)
    )
    return (*functions, *_loadable()) if device_type == "cuda" else functions


def _loadable() -> Iterator[KernelProbe]:
    """Whether the machine code of every entry with a budget loads."""
    run, device = CupyRunner(), torch.cuda.current_device()
    for kernel in KERNELS.values():
        for entry in kernel.budgets:
            yield KernelProbe(
                name=f"{entry} loads",
                failure=_failure(partial(run.load, device, kernel.name, entry, 0)),
            )


def _named(checks: tuple[Callable[..., None], ...]) -> Iterator[tuple[str, Callable[..., None]]]:
    for check in checks:
        yield (check.__doc__ or check.__name__).strip().splitlines()[0].rstrip("."), check


def _failure(check: Callable[[], object]) -> str:
    """The message of a check that fails in whichever way, or an empty string."""
    try:
        check()
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return ""


def _runner(device_type: str) -> Runner:
    if device_type == "cuda":
        return CupyRunner(_program)
    run: Runner = emulator().Emulator(probe_source(), probes().ENTRIES)
    return run


def _program(_: str, entry: str, architecture: str) -> Program:
    source = probe_source()
    return Program(source, headers_of(source), entry, (f"-arch={architecture}", *FLAGS))

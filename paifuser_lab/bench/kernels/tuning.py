"""Kernels tuned at the shapes of the bench: every tile compiled and ranked anywhere, the best one
searched on a GPU and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import torch

from ...errors import KernelError, MeasureError
from ...kernels.compile import LEAST, architecture_of
from ...kernels.nvrtc import nvrtc
from ...kernels.runners import runner_of
from ...kernels.tile_choice import forget_measured_tiles
from ...kernels.tuning.bound import Device, device_of
from ...kernels.tuning.candidates import Prospects, prospects
from ...kernels.tuning.record import Winner
from ...kernels.tuning.store import Best, keep
from ...machine.ceilings import cuda_accelerators, cuda_names
from ...machine.datasheets import DEVICES, find_device
from ...records import Accelerator
from .cases import Case, cases
from .checking import Inputs
from .contest import contest, winner
from .timing import captured, event_clock

NO_GPU = (
    "There is no GPU that torch can use, so that nothing can be timed; `--offline` compiles every "
    "tile for --device and ranks "
    "them, which is all that can be done without one."
)


def tunable(words: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases of kernels that can be cut in more than one way; `words` are parts of kernels' or
    cases' names.
    """
    known = [case for case in cases() if case.kernel.tiles.choices]
    found = tuple(
        case
        for case in known
        if not words or any(word in f"{case.kernel.name} {case.name}" for word in words)
    )
    if not found:
        raise MeasureError(
            f"No case to tune is called {' or '.join(words)}; there are "
            f"{', '.join(case.name for case in known)}."
        )
    return found


def published(name: str) -> Accelerator:
    """A published device that runs the kernels."""
    device = find_device(name).device
    if (device.compute_capability or (0, 0)) < LEAST:
        able = [
            key for key, (one, _) in DEVICES.items() if (one.compute_capability or (0, 0)) >= LEAST
        ]
        raise KernelError(
            f"{device.name} does not run these kernels; name one of {', '.join(able)}."
        )
    return device


def ranked_offline(case: Case, device: Accelerator) -> Prospects:
    """What each tile of a case is likely to take on a published device. Needs no GPU and makes no
    inputs.
    """
    capability = device.compute_capability or LEAST
    return _ranked(
        case,
        case.make(torch.device("meta")),
        architecture_of(capability, nvrtc()),
        device_of(device),
    )


def tune(case: Case, *, budget: int, seconds: float) -> Winner:
    """The best tile of a case on this machine's GPU, kept in the user's cache."""
    if not torch.cuda.is_available():
        raise MeasureError(NO_GPU)
    device = torch.device("cuda", torch.cuda.current_device())
    properties: Any = torch.cuda.get_device_properties(device)
    run = runner_of(device)
    assert run is not None
    architecture = architecture_of(torch.cuda.get_device_capability(device), nvrtc())
    with torch.no_grad():
        inputs = case.make(device)
        ranked = _ranked(case, inputs, architecture, device_of(_measured(properties.name)))
        held = contest(case, inputs, run, captured, event_clock, properties.L2_cache_size)
        found = winner(held, ranked, budget=budget, seconds=seconds)
    best = Best(
        tile=found.tile, ms=found.ms, default_ms=found.default_ms, when=_now(), versions=_versions()
    )
    torch.cuda.empty_cache()
    keep(properties.name, case.kernel.name, case.kernel.problem(*inputs), best)
    forget_measured_tiles()
    return found


def _ranked(case: Case, inputs: Inputs, architecture: str, device: Device) -> Prospects:
    kernel = case.kernel
    out = kernel.empty(*inputs)
    return prospects(
        kernel.tiles,
        lambda tile: kernel.plan(out, *inputs, tile=tile),
        case.operations,
        architecture=architecture,
        device=device,
    )


@cache
def _measured(name: str) -> Accelerator:
    """What the GPU of this name reaches here."""
    found, note = cuda_accelerators(cuda_names())
    here = next((one for one in found if one.name == name), None)
    if here is None:
        raise MeasureError(note or f"{name} is not among the devices that torch sees.")
    return here


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    return {"torch": torch.__version__, "nvrtc": nvrtc().version}

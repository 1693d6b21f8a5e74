"""Tunes kernels at the shapes of the benchmark: compiles and ranks every tile on any machine,
searches the best one on a GPU and stores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import torch

from ...errors import KernelError, MeasureError
from ...kernels.compile import MIN_CAPABILITY, architecture_of
from ...kernels.nvrtc import nvrtc
from ...kernels.runners import runner_of
from ...kernels.tile_choice import forget_measured_tiles
from ...kernels.tuning.bound import Device, device_of
from ...kernels.tuning.candidates import Candidates, compile_tiles
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
    "There is no GPU that torch can use, so nothing can be timed; `--offline` compiles and ranks "
    "every tile for --device, which needs no GPU."
)


def tunable(words: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases of kernels with more than one tile; `words` are parts of the names of kernels or
    cases.
    """
    known = [case for case in cases() if case.kernel.tiles.choices]
    chosen = tuple(
        case
        for case in known
        if not words or any(word in f"{case.kernel.name} {case.name}" for word in words)
    )
    if not chosen:
        raise MeasureError(
            f"No case to tune is called {' or '.join(words)}; there are "
            f"{', '.join(case.name for case in known)}."
        )
    return chosen


def published(name: str) -> Accelerator:
    """A device with published figures that runs the kernels."""
    device = find_device(name).device
    if (device.compute_capability or (0, 0)) < MIN_CAPABILITY:
        supported = [
            key
            for key, (known, _) in DEVICES.items()
            if (known.compute_capability or (0, 0)) >= MIN_CAPABILITY
        ]
        raise KernelError(
            f"{device.name} does not run these kernels; name one of {', '.join(supported)}."
        )
    return device


def ranked_offline(case: Case, device: Accelerator) -> Candidates:
    """The tiles of a case, ranked for a published device; needs no GPU and allocates no inputs."""
    capability = device.compute_capability or MIN_CAPABILITY
    return _ranked(
        case,
        case.make(torch.device("meta")),
        architecture_of(capability, nvrtc()),
        device_of(device),
    )


def tune(case: Case, *, budget: int, seconds: float) -> Winner:
    """The best tile of a case on this machine's GPU, stored in the user's cache."""
    if not torch.cuda.is_available():
        raise MeasureError(NO_GPU)
    device = torch.device("cuda", torch.cuda.current_device())
    properties: Any = torch.cuda.get_device_properties(device)
    run = runner_of(device)
    assert run is not None
    architecture = architecture_of(torch.cuda.get_device_capability(device), nvrtc())
    with torch.no_grad():
        inputs = case.make(device)
        candidates = _ranked(case, inputs, architecture, device_of(_measured(properties.name)))
        field = contest(case, inputs, run, captured, event_clock, properties.L2_cache_size)
        best = winner(field, candidates, budget=budget, seconds=seconds)
    stored = Best(
        tile=best.tile, ms=best.ms, default_ms=best.default_ms, when=_now(), versions=_versions()
    )
    torch.cuda.empty_cache()
    keep(properties.name, case.kernel.name, case.kernel.problem(*inputs), stored)
    forget_measured_tiles()
    return best


def _ranked(case: Case, inputs: Inputs, architecture: str, device: Device) -> Candidates:
    kernel = case.kernel
    out = kernel.empty(*inputs)
    return compile_tiles(
        kernel.tiles,
        lambda tile: kernel.plan(out, *inputs, tile=tile),
        case.operations,
        architecture=architecture,
        device=device,
    )


@cache
def _measured(name: str) -> Accelerator:
    """The measured figures of the GPU of this name."""
    accelerators, note = cuda_accelerators(cuda_names())
    accelerator = next((known for known in accelerators if known.name == name), None)
    if accelerator is None:
        raise MeasureError(note or f"{name} is not among the devices that torch sees.")
    return accelerator


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    return {"torch": torch.__version__, "nvrtc": nvrtc().version}

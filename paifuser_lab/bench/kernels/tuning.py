"""Tunes kernels at the shapes of the benchmark: compiles and ranks every tile on any machine,
searches the best one on a GPU and stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch import Tensor

from ...errors import KernelError, MeasureError
from ...kernels.compile import MIN_CAPABILITY, architecture_of
from ...kernels.nvrtc import nvrtc
from ...kernels.runners import Runner, runner_of
from ...kernels.tiles import Tile, describe_tile, forget_measured_tiles
from ...kernels.tuning.bound import Device, device_of
from ...kernels.tuning.candidates import Candidates, compile_tiles
from ...kernels.tuning.search import Winner, finals, search
from ...kernels.tuning.store import Best, keep
from ...machine.ceilings import cuda_accelerators, cuda_names
from ...machine.datasheets import DEVICES, find_device
from ...records import Accelerator
from .cases import Case, Inputs, cases, error_of, exact, named, unwritten
from .timing import Clock, Run, calls_of, captured, event_clock, timed_in_turn

FINALISTS = 8
BY_RANK = 12  # tiles tried for their rank, before the model is fitted
ROUNDS = 3  # of each tile in the search; the finals have more
NO_GPU = (
    "There is no GPU that torch can use, so nothing can be timed; `--offline` compiles and ranks "
    "every tile for --device, which needs no GPU."
)


def tunable(words: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases of kernels with more than one tile, by words in names of kernels or cases."""
    return named([case for case in cases() if case.kernel.tiles.choices], words)


def published(name: str) -> Accelerator:
    """A device with published figures that runs the kernels."""

    def runs_kernels(device: Accelerator) -> bool:
        return (device.compute_capability or (0, 0)) >= MIN_CAPABILITY

    device = find_device(name).device
    if not runs_kernels(device):
        supported = [key for key, (known, _) in DEVICES.items() if runs_kernels(known)]
        raise KernelError(
            f"{device.name} does not run these kernels; name one of {', '.join(supported)}."
        )
    return device


def ranked_offline(case: Case, device: Accelerator) -> Candidates:
    """The tiles of a case, ranked for a published device; needs no GPU and allocates no inputs."""
    capability = device.compute_capability or MIN_CAPABILITY
    return _ranked(case, case.make(torch.device("meta")), capability, device_of(device))


def tune(case: Case, *, budget: int, seconds: float) -> Winner:
    """The best tile of a case on this machine's GPU, stored in the user's cache."""
    if not torch.cuda.is_available():
        raise MeasureError(NO_GPU)
    device = torch.device("cuda", torch.cuda.current_device())
    properties: Any = torch.cuda.get_device_properties(device)
    run = runner_of(device)
    assert run is not None
    capability = torch.cuda.get_device_capability(device)
    with torch.no_grad():
        sets = case.sets(device, properties.L2_cache_size)
        candidates = _ranked(case, sets[0], capability, device_of(_measured(properties.name)))
        best = winner(Contest(case, sets, run), candidates, budget=budget, seconds=seconds)
    stored = Best(
        tile=best.tile,
        ms=best.ms,
        default_ms=best.default_ms,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"torch": torch.__version__, "nvrtc": nvrtc().version},
    )
    torch.cuda.empty_cache()
    keep(properties.name, case.kernel.name, case.kernel.problem(*sets[0]), stored)
    forget_measured_tiles()
    return best


def _ranked(case: Case, inputs: Inputs, capability: tuple[int, int], device: Device) -> Candidates:
    kernel = case.kernel
    out = kernel.empty(*inputs)
    return compile_tiles(
        kernel.tiles,
        lambda tile: kernel.plan(out, *inputs, tile=tile),
        case.operations,
        architecture=architecture_of(capability, nvrtc()),
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


@dataclass(frozen=True)
class Contest:
    """The tiles of a case, checked against float64 and timed over inputs larger than the cache."""

    case: Case
    sets: Sequence[Inputs]
    run: Runner
    capture: Callable[[Sequence[Run]], Run] = captured
    clock: Clock = event_clock

    def measure(self, tile: Tile) -> float:
        """Milliseconds per call; raises if the output is wrong."""
        inputs, kernel = self.sets[0], self.case.kernel
        out = unwritten(kernel, inputs)
        self.run(kernel.plan(out, *inputs, tile=tile))
        error = error_of(out, self._expected, self.case.subject.allowed(inputs, self._expected))
        if not error <= 1:
            raise KernelError(f"its output is off by {error:.3g} times the allowed error")
        return self.in_turn([tile], ROUNDS)[0]

    def in_turn(self, tiles: Sequence[Tile], rounds: int) -> list[float]:
        """Milliseconds per call of each tile, the median of rounds in which each has a turn."""
        bound = [
            calls_of([partial(self._call, inputs, tile) for inputs in self.sets]) for tile in tiles
        ]
        runs = {str(index): (self.capture(calls), len(calls)) for index, calls in enumerate(bound)}
        return [us / 1e3 for us in timed_in_turn(runs, self.clock, rounds).values()]

    @cached_property
    def _expected(self) -> Tensor:
        return exact(self.case.kernel, self.sets[0])

    def _call(self, inputs: Inputs, tile: Tile) -> Tensor:
        out = self.case.kernel.empty(*inputs)
        self.run(self.case.kernel.plan(out, *inputs, tile=tile))
        return out


def winner(contest: Contest, candidates: Candidates, *, budget: int, seconds: float) -> Winner:
    """Search the tiles that can run, then run the finals; the tile of launches that nobody has
    tuned takes part in both.
    """
    kernel = contest.case.kernel
    tiles = kernel.tiles
    default = kernel.default_tile(kernel.inputs(*contest.sets[0])) or tiles.default
    features = {tiles.numbers(one.tile): one.features for one in candidates.ranked}
    result = search(
        replace(tiles, is_valid=lambda tile: tiles.numbers(tile) in features),
        contest.measure,
        budget=budget,
        first=[default, *(one.tile for one in candidates.ranked[:BY_RANK])],
        features=features.__getitem__,
        seconds=seconds,
    )
    if not any(attempt.tile == default for attempt in result.ranked):
        failures = (attempt.failure for attempt in result.attempts if attempt.tile == default)
        reason = next(failures, "it cannot run on this device")
        raise KernelError(
            f"{kernel.name} cannot be tuned, its default tile, "
            f"{describe_tile(default)}, fails: {reason}"
        )
    finalists: list[Tile] = [attempt.tile for attempt in result.ranked[:FINALISTS]]
    tile, ms, default_ms = finals(finalists, contest.in_turn, rival=default)
    return Winner(tile=dict(tile), ms=ms, default_ms=default_ms, search=result)

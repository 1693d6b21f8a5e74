"""Time and memory of a training loop's steps, from outside."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from ..measure import peak_resident_bytes, restart_peak
from ..measure.pages import return_free_memory

COARSE_S = 1e-3


class Moment(NamedTuple):
    """A point in time: on the wall's clock, and in CPU time of this thread."""

    wall_s: float
    cpu_s: float

    def since(self, earlier: Moment) -> Moment:
        """The time between two moments."""
        return Moment(self.wall_s - earlier.wall_s, self.cpu_s - earlier.cpu_s)


class Meter:
    """The clocks and memory counters of this machine."""

    def now(self, device: torch.device, *, is_measuring: bool = False) -> Moment:
        """This moment; while measuring, after the device has done its work."""
        if is_measuring and device.type == "cuda":
            torch.cuda.synchronize(device)
        return Moment(time.perf_counter(), time.thread_time())

    @property
    def is_coarse(self) -> bool:
        """Whether the clock of CPU time ticks too rarely for a step, as on Windows."""
        return time.get_clock_info("thread_time").resolution > COARSE_S

    def restart_peak(self, device: torch.device) -> bool:
        """Let the peak of held memory begin again; False where there is no such counter."""
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return True
        return restart_peak()

    def trim(self, device: torch.device) -> None:
        """Give freed memory back, which would count as held."""
        if device.type == "cpu":
            return_free_memory()

    def peak_bytes(self, device: torch.device) -> int | None:
        """The most that was held since then: by tensors on a GPU, else by the process."""
        if device.type == "cuda":
            return torch.cuda.max_memory_allocated(device)
        return peak_resident_bytes()

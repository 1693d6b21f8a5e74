"""Everything measured of one workload, before it becomes the rows of a profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import ForwardError
from ..records import Alternative, Ceiling, Hardware
from ..workload import Workload
from .clock import Run
from .operators import Operators


@dataclass
class Observation:
    """Everything measured of one workload: times, operators, memory, kernels, gradients."""

    work: Workload
    threads: int
    machine: Hardware
    plain_ms: list[float] = field(default_factory=list)
    watched_ms: list[float] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    operators: Operators = field(default_factory=Operators)
    held: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, dict[str, tuple[int, float]]] = field(default_factory=dict)
    backward: list[dict[str, float]] = field(default_factory=list)
    alternatives: dict[str, tuple[Alternative, ...]] = field(default_factory=dict)
    failure: ForwardError | None = None
    is_interrupted: bool = False

    @property
    def ceiling(self) -> Ceiling:
        """The ceilings of the device that the workload ran on."""
        on_device = self.work.device.type == "cuda" and self.machine.accelerators
        return self.machine.target if on_device else self.machine.ceiling(self.threads)

    def fresh_call(self) -> Callable[[], Any]:
        """A call on its own copy of the inputs, made before the clock starts: a model may write
        into them.
        """
        inputs, model = self.work.inputs.clone(), self.work.model
        return lambda: inputs(model)

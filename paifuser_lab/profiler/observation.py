"""Everything measured of one workload, before it becomes the rows of a profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from torch import nn

from ..engines import Engine, EngineNode, NodeRecorder
from ..errors import ForwardError
from ..records import Alternative, Ceiling, Hardware, Quality
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
    quality: Quality | None = None
    failure: ForwardError | None = None
    is_interrupted: bool = False
    recorder: NodeRecorder | None = None  # of an engine that can be seen into

    @property
    def engine(self) -> Engine | None:
        """The engine that runs the workload, unless eager torch runs it itself."""
        return self.work.model if isinstance(self.work.model, Engine) else None

    @property
    def layered(self) -> nn.Module:
        """The model whose layers are the rows: inside an engine that can be seen into, its own."""
        return self.work.model.module if self.recorder else self.work.model  # type: ignore[return-value]

    @cached_property
    def nodes(self) -> list[EngineNode]:
        """The nodes that the engine ran, each at layers that have a row."""
        layers = ("", *self.operators.entered)
        return [node.without(self.recording_ms).renamed(layers) for node in self._recorded]

    @cached_property
    def recording_ms(self) -> float:
        """The cost of recording a node: its share of what all take beyond the whole call, and at
        most the time of the smallest; an excess beyond it is an error of the rows and stays.
        """
        node_ms = [median(node.ms) for node in self._recorded]
        excess = sum(node_ms) - median(self.plain_ms)
        smallest = min((ms for ms in node_ms if ms > 0), default=0.0)
        return float(min(max(excess, 0.0) / max(len(node_ms), 1), smallest))

    @cached_property
    def between_ms(self) -> float:
        """What a recorded call takes beyond its nodes, the writing of the record included."""
        in_nodes = [sum(run) for run in zip(*(node.ms for node in self._recorded), strict=True)]
        beyond = [call - nodes for call, nodes in zip(self.watched_ms, in_nodes, strict=False)]
        return max(0.0, float(median(beyond or self.watched_ms)))

    @cached_property
    def _recorded(self) -> list[EngineNode]:
        """The nodes as the engine gives them; ends the recording."""
        assert self.recorder is not None
        return self.recorder.nodes()

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

    def fresh_layered_call(self) -> Callable[[], Any]:
        """A call of the model with the layers, by eager torch."""
        inputs, model = self.work.inputs.clone(), self.layered
        return lambda: inputs(model)

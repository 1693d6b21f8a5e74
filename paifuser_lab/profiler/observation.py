"""Everything measured of one workload, and its layers as a tree of their paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from statistics import median
from typing import Any

from torch import Tensor, nn

from ..engines import Engine, EngineNode, NodeRecorder
from ..model.weights import parameter_count
from ..quantization import Int8Layer
from ..quantization.float_formats import dtype_inside
from ..records import Alternative, CallTimeline, Ceiling, Hardware, Quality
from ..workload import Workload
from .clock import Run
from .operators import Operators

VECTOR_WIDTHS = {"avx512f": 16, "avx2": 8, "neon": 4}  # fp32 numbers in one register
# 16-bit numbers: https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional
TENSOR_CORE_CHANNELS = 8


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
    timeline: CallTimeline = field(default_factory=CallTimeline)
    quality: Quality | None = None
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
        """The nodes as the engine gives them, without every other run, which is not counted; ends
        the recording.
        """
        assert self.recorder is not None
        return [replace(node, ms=node.ms[1::2]) for node in self.recorder.nodes()]

    @property
    def ceiling(self) -> Ceiling:
        """The ceilings of the device that the workload ran on."""
        on_device = self.work.device.type == "cuda" and self.machine.accelerators
        return self.machine.target if on_device else self.machine.ceiling(self.threads)

    @property
    def vector_width(self) -> int:
        """How many channels the hardware processes in one step."""
        if self.work.device.type == "cuda":
            return TENSOR_CORE_CHANNELS
        widths = (width for name, width in VECTOR_WIDTHS.items() if name in self.machine.isa)
        return next(widths, 1)

    def fresh_call(self) -> Callable[[], Any]:
        """A call on its own copy of the inputs, which a model may write into."""
        return partial(self.work.inputs.clone(), self.work.model)

    def fresh_layered_call(self) -> Callable[[], Any]:
        """A call of the model with the layers, by eager torch."""
        return partial(self.work.inputs.clone(), self.layered)


def in_tree_order(layers: Iterable[str]) -> list[str]:
    """The layers in the order of their first run, each after its containers."""
    names = dict.fromkeys(["", *(name for layer in layers for name in _path(layer))])
    index_of = {name: index for index, name in enumerate(names)}
    return sorted(names, key=lambda name: [index_of[above] for above in _path(name)])


def rolled_up(values: dict[str, Any]) -> dict[str, Any]:
    """Each layer's value added to every container above it."""
    total: dict[str, Any] = defaultdict(int)
    for layer, value in values.items():
        for above in ["", *_path(layer)]:
            total[above] = total[above] + value
    return total


def _path(layer: str) -> list[str]:
    """The containers of a layer inside the model, and itself: 'a.b' is in 'a'."""
    return list(accumulate(layer.split("."), "{}.{}".format)) if layer else []


def sums_of(
    selves: dict[str, dict[str, Any]], weights: dict[str, int]
) -> dict[str, dict[str, Any]]:
    """The fields of each row that are sums over the layer and all inside it."""
    ms, flops, macs, read, written = (
        rolled_up({name: row.get(key, 0) for name, row in selves.items()})
        for key in ("self_ms", "flops", "macs", "read_bytes", "written_bytes")
    )
    all_weights, whole = rolled_up(weights), ms[""] or 1.0
    return {
        name: {
            "total_ms": ms[name],
            "share": ms[name] / whole,
            "total_flops": flops[name],
            "total_macs": macs[name],
            "total_bytes": read[name] + written[name],
            "parameters": weights.get(name, 0),
            "total_parameters": all_weights.get(name, 0),
        }
        for name in selves
    }


def weights_by_layer(model: nn.Module) -> dict[str, int]:
    """The number of each layer's own weights; a shared one counts where it comes first."""
    counted: set[int] = set()
    return {
        name: parameter_count(module, own=True, counted=counted)
        for name, module in model.named_modules()
    }


def described(observation: Observation, layer: str, module: nn.Module) -> dict[str, Any]:
    """The fields of a row that name its layer, and say what it is and returns."""
    weight, recorded = getattr(module, "weight", None), observation.operators
    inside = dtype_inside(module)
    dtype = str(inside).removeprefix("torch.") if inside else recorded.dtypes.get(layer, "")
    return {
        "layer": layer,
        "kind": type(module).__name__,
        "detail": "" if any(module.children()) else module.extra_repr(),
        "output_shapes": recorded.output_shapes.get(layer, ()),
        "dtype": "int8" if isinstance(module, Int8Layer) else dtype,
        "weight_shape": tuple(weight.shape) if isinstance(weight, Tensor) else (),
    }


def roofline(
    observation: Observation, dtype: str, flops: int, moved_bytes: int, overhead_ms: float
) -> dict[str, Any]:
    """The time of a row's work at each limit of this machine, and the binding limit."""
    ceiling = observation.ceiling
    computing = flops / (ceiling.rate(dtype) or ceiling.fp32_gflops) / 1e6
    moving = moved_bytes / ceiling.bandwidth_gbs / 1e6
    limits = {"compute": computing, "memory": moving, "overhead": overhead_ms}
    return {
        "overhead_ms": overhead_ms,
        "roof_ms": max(computing, moving),
        "verdict": max(limits, key=lambda name: limits[name]),
    }

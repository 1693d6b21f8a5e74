"""What a search may change, axis by axis: the engine, the format, the width, the memory.

A `Point` has a value on each axis; a `Space` knows the values that are possible for a model on this
machine, and makes of a point a `Change`: steps with a name and a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

from torch import nn

from ..engines import available_engines
from ..errors import WorkloadError
from ..machine import thread_choices
from ..memory.pools import pool_gain
from ..memory.sole_readers import ACTIVATIONS
from ..model.fold import plan_fold
from ..model.graph import observe
from ..profiler.alternatives import half_format
from ..profiler.expected import KINDS
from ..records import Hardware, counted
from ..workload import Workload, running

Choice = dict[str, dict[str, Any]]
AS_IT_IS = "as it is"
IN_FLOAT = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class Point:
    """A value on each axis."""

    engine: str = AS_IT_IS
    format: str = "fp32"
    keep: float = 1.0  # of the channels
    is_trained: bool = False
    memory: str = AS_IT_IS
    threads: int = 0  # 0: as many as suit the unchanged model

    @property
    def values(self) -> dict[str, Any]:
        """The value on each axis, by its name."""
        return {axis.name: getattr(self, axis.name) for axis in fields(self)}


@dataclass(frozen=True)
class Change:
    """A candidate of a search: its steps, what they are for, and what they may cost."""

    label: str
    steps: tuple[Choice, ...]
    why: str
    point: Point = Point()

    @property
    def is_smaller(self) -> bool:
        """Whether it is meant to make the model smaller rather than faster."""
        point = self.point
        return point.keep < 1 or point.format != "fp32" or point.memory == "reuse"

    @property
    def is_slow(self) -> bool:
        """Whether it takes long to build: it trains, or compiles with a C++ compiler."""
        return self.point.is_trained or self.point.engine == "inductor"


@dataclass(frozen=True)
class Engine:
    """A way to run the whole model: its steps, its names alone and beside others, its reason."""

    steps: tuple[Choice, ...]
    label: str
    name: str
    why: str


SPINNING = "onnxruntime spinning"
FUSED = "activations are computed where the layer before writes"
WITHOUT_PYTHON = "no Python code of the model runs between its operators"
REPLAY: Choice = {"backend": {"name": "replay"}}
ENGINES = {
    "channels last": Engine(
        (KINDS["layout"].step,),
        "Channels last",
        "Channels last",
        "convolutions read neighbouring bytes",
    ),
    "channels last, joined": Engine(
        (KINDS["layout"].step, KINDS["fuse"].step),
        "Channels last, layers joined",
        "Channels last and layers joined",
        FUSED,
    ),
    "joined": Engine((KINDS["fuse"].step,), "Join layers", "Layers joined", FUSED),
    "replayed": Engine((REPLAY,), "Replay operators", "Operators replayed", WITHOUT_PYTHON),
    "channels last, joined, replayed": Engine(
        (KINDS["layout"].step, KINDS["fuse"].step, REPLAY),
        "Channels last, layers joined, operators replayed",
        "Channels last, layers joined and operators replayed",
        f"{FUSED}; {WITHOUT_PYTHON}",
    ),
    "joined, replayed": Engine(
        (KINDS["fuse"].step, REPLAY),
        "Join layers, replay operators",
        "Layers joined and operators replayed",
        f"{FUSED}; {WITHOUT_PYTHON}",
    ),
    "openvino": Engine(
        (KINDS["openvino"].step,),
        "Run on OpenVINO",
        "OpenVINO",
        "the whole graph as one call, layers joined where it can",
    ),
    "openvino in bf16": Engine(
        (KINDS["openvino in bf16"].step,),
        "Run on OpenVINO, in bf16",
        "OpenVINO, sums in bf16",
        "one call, and this processor computes faster in bf16",
    ),
    "onnxruntime": Engine(
        (KINDS["onnxruntime"].step,),
        "Run on ONNX Runtime",
        "ONNX Runtime",
        "the whole graph as one call, layers joined",
    ),
    SPINNING: Engine(
        ({"backend": {"name": "onnxruntime", "spin": True}},),
        "Run on ONNX Runtime, spinning",
        "ONNX Runtime, spinning",
        "its threads wait for the next operator without sleeping",
    ),
    "inductor": Engine(
        (KINDS["inductor"].step,),
        "Compile with Inductor",
        "Inductor",
        "joins what lies between the large operators; compiles",
    ),
}
IN_TORCH = ("channels last", "channels last, joined", "joined")  # layers stay torch's
IN_HALF = ("openvino", "inductor", "replayed")  # engines that compute in 16 bits


@dataclass(frozen=True)
class Space:
    """The values of each axis that are possible for a model on this machine."""

    axes: Mapping[str, tuple[Any, ...]]
    folding: str  # why batch-norms are folded; '' where there are none
    formats: Mapping[str, tuple[Choice, str]]  # its step, and why
    pool_why: str = ""
    is_cpu: bool = True

    @classmethod
    def of(
        cls,
        work: Workload,
        machine: Hardware,
        engines: tuple[str, ...],
        *,
        may_train: bool = False,
        is_exact: bool = False,
    ) -> Space:
        """Everything that could help; with `is_exact` only what keeps the output."""
        is_cpu = work.device.type == "cpu"
        formats = {} if is_exact else _formats(machine)
        gain = pool_gain(work)
        memory = [AS_IT_IS, *(["pool"] if gain is not None and gain.pays else [])]
        layers = list(work.model.modules())
        has_activations = any(type(layer) in ACTIVATIONS and not layer.inplace for layer in layers)
        if has_activations and not is_exact:
            memory.append("reuse")
        axes = {
            "engine": (AS_IT_IS, *_engines(work, machine, engines, is_exact=is_exact)),
            "format": ("fp32", *formats),
            "keep": (1.0,) if is_exact else (1.0, 0.75, 0.5),
            "is_trained": (False, True) if may_train else (False,),
            "memory": tuple(memory),
            "threads": (0, *thread_choices()) if is_cpu and len(thread_choices()) > 1 else (0,),
        }
        why = gain.sentence if gain is not None and gain.pays else ""
        return cls(axes, folding_of(work), formats, why, is_cpu)

    def points(self) -> Iterator[Point]:
        """All points whose recipes differ."""
        for values in product(*self.axes.values()):
            point = Point(**dict(zip(self.axes, values, strict=True)))
            if point != Point() and self.is_possible(point):
                yield point

    def is_possible(self, point: Point) -> bool:
        """Whether a recipe can do all of it at once, and no other point is the same recipe."""
        if point.is_trained and point.keep == 1:
            return False
        if point.engine == SPINNING and point.threads == 1:  # nobody to wait for
            return False
        if point.engine not in (AS_IT_IS, *IN_TORCH):
            in_half = point.format in IN_FLOAT[1:]
            if point.memory != AS_IT_IS or (in_half and point.engine not in IN_HALF):
                return False
        # layers are joined in fp32; in other formats each has a kernel of its own
        return "joined" not in point.engine or point.format == "fp32"

    def singles(self) -> list[Change]:
        """The changes of one axis, and each format in each engine of its own: what the others are
        made of.
        """
        folded = [Point()] if self.folding else []
        points = [*folded, *(point for point in self.points() if _is_single(point))]
        return [self.change(point) for point in points]

    def change(self, point: Point) -> Change:
        """The steps of a point, with a name and a reason."""
        labels, reasons = self._named(point)
        return Change(", ".join(labels), self.steps(point), "; ".join(reasons), point)

    def steps(self, point: Point) -> tuple[Choice, ...]:
        """The recipe's steps. Folding comes first wherever it is possible: it costs nothing."""
        steps: list[Choice] = [{"fold": {}}] if self.folding else []
        if point.keep < 1:
            steps.append({"prune": {"ratio": 1 - point.keep}})
        if point.is_trained:
            steps.append({"distill": {"epochs": 1}})
        if point.format != "fp32":
            steps.append(self.formats[point.format][0])
        steps += self._engine_steps(point)
        return tuple(steps)

    def _engine_steps(self, point: Point) -> list[Choice]:
        known = ENGINES.get(point.engine)
        steps = list(known.steps) if known is not None else []
        if known is None or point.engine in IN_TORCH:
            # reusing memory follows what changes layers
            steps += [{point.memory: {}}] if point.memory != AS_IT_IS else []
            count = {"backend": {"name": "eager", "threads": point.threads}}
            return [*steps, *([count] if point.threads else [])]
        *before, last = steps
        options = dict(last["backend"])
        if not self.is_cpu:
            options.pop("freeze", None)
        if point.threads:
            options["threads"] = point.threads
        return [*before, {"backend": options}]

    def _named(self, point: Point) -> tuple[list[str], list[str]]:
        """What each axis that is changed is called, and why it is tried."""
        labels, reasons = [], []
        if point.keep < 1:
            trained = ", trained" if point.is_trained else ""
            labels.append(f"Keep {point.keep:.0%} of the channels{trained}")
            made_up = "; trained by the original's outputs to make up for them"
            reasons.append("fewer channels: fewer products" + (made_up if point.is_trained else ""))
        if point.memory == "pool":
            labels.append("Keep freed memory")
            reasons.append(self.pool_why)
        if point.memory == "reuse":
            labels.append("Use memory again")
            reasons.append("activations write over their input where nobody else reads it")
        engine = ENGINES.get(point.engine)
        if point.format != "fp32":
            labels.append(
                f"{engine.name} in {point.format}" if engine else f"{point.format} everywhere"
            )
            reasons.append(self.formats[point.format][1])
        elif engine is not None:
            labels.append(engine.label)
        if engine is not None:
            reasons.append(engine.why)
        if point.threads:
            count = counted(point.threads, "thread")
            labels.append(f"with {count}" if labels else f"Run with {count}")
            reasons.append("the number of threads that the model runs with")
        if not labels:
            return ["Fold batch-norm"], [self.folding]
        return labels, reasons


def _is_single(point: Point) -> bool:
    """Whether it changes one axis, or the engine and the format, or prunes and trains."""
    changed = {axis for axis, value in point.values.items() if value != getattr(Point(), axis)}
    in_engine = changed == {"engine", "format"} and point.engine not in IN_TORCH
    return len(changed) == 1 or in_engine or changed == {"keep", "is_trained"}


def _engines(
    work: Workload, machine: Hardware, engines: tuple[str, ...], *, is_exact: bool
) -> list[str]:
    is_cpu = work.device.type == "cpu"
    others = "joined" if has_images(work) else "channels last"  # how names begin
    left_out = {name for name in ENGINES if name.startswith(others)}
    if is_exact or half_format(machine) != "bf16":
        left_out.add("openvino in bf16")
    if not is_cpu:
        left_out |= {"openvino", "openvino in bf16", "onnxruntime", SPINNING}
    return [
        name
        for name, engine in ENGINES.items()
        if name not in left_out
        and (name in IN_TORCH or engine.steps[-1]["backend"]["name"] in engines)
    ]


def _formats(machine: Hardware) -> dict[str, tuple[Choice, str]]:
    """The formats that this machine computes in, and that of weights alone."""
    target = machine.target
    rates = {"bf16": target.bf16_gflops, "fp16": target.fp16_gflops}
    if not machine.accelerators:
        rates["int8"] = target.int8_gops
    bytes_of = {
        "bf16": "half the bytes",
        "fp16": "half the bytes",
        "int8": "a quarter of the bytes",
    }
    formats = {}
    for name, rate in rates.items():
        if rate is None and name != "bf16":
            continue
        ratio = f", {rate / target.fp32_gflops:.1f} × the rate of fp32 here" if rate else ""
        formats[name] = _in_format(name), bytes_of[name] + ratio
    why = "weights take a quarter of the bytes; products stay in fp32"
    formats["int8-weights"] = _in_format("int8-weights"), why
    return formats


def _in_format(name: str) -> Choice:
    return {"precision": {"default": name}}


def has_images(work: Workload) -> bool:
    return any(tensor.ndim == 4 for tensor in work.inputs.tensors) and any(
        isinstance(module, nn.Conv2d) for module in work.model.modules()
    )


def folding_of(work: Workload) -> str:
    """Why batch-norms are folded, which is exact and costs nothing at run time; '' without any."""
    with running(work.model):
        pairs = plan_fold(
            work.model, observe(work.model, lambda: work.inputs.clone()(work.model))
        ).pairs
    if not pairs:
        return ""
    return (
        f"{len(pairs)} batch-norm layers follow a convolution or linear layer; folded, each costs "
        "nothing"
    )


def allowed_engines(engines: Iterable[str] | None) -> tuple[str, ...]:
    """The engines that may be used: all that are available, or those named."""
    available = available_engines()
    names = available if engines is None else tuple(engines)
    for name in names:
        if name not in available:
            raise WorkloadError(
                f"engine '{name}' is not available; choose from {', '.join(available)}."
            )
    return names

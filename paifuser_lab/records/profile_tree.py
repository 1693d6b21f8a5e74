"""The layers of a profile: their time, memory, bytes and operators, as a tree of their paths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field

from .call_timeline import CallTimeline
from .hardware import Ceiling
from .quality import Quality
from .record import AboutWorkload, Record
from .text import counted, in_figures, readable_ms, three_figures

Bound = Literal["compute", "memory", "overhead"]
# the last row of a model in an engine: its nodes without a layer, and what lies between its nodes
ENGINE_ROW = "engine itself"


class OperatorProfile(Record):
    """An operator that a layer ran itself, summed over its calls."""

    name: str
    calls: int
    ms: float
    flops: int = 0
    macs: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class Kernel(Record):
    """A kernel that ran on a device for a layer."""

    name: str
    calls: int
    ms: float


class Alternative(Record):
    """A layer alone on inputs of its shape, timed in turn as it is and after a step."""

    step: dict[str, dict[str, Any]]
    here_ms: float
    there_ms: float


class LayerProfile(Record):
    """One layer: `self_` covers its own operators, `total_` also those of its child layers."""

    layer: str
    kind: str
    detail: str = ""
    calls: int = 0
    self_ms: float = 0.0
    self_spread_ms: tuple[float, float] = (0.0, 0.0)
    total_ms: float = 0.0
    total_spread_ms: tuple[float, float] = (0.0, 0.0)
    share: float = 0.0
    backward_self_ms: float | None = None
    backward_total_ms: float | None = None
    flops: int = 0
    macs: int = 0
    total_flops: int = 0
    total_macs: int = 0
    parameters: int = 0
    total_parameters: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    total_bytes: int = 0
    peak_bytes: int | None = None
    output_shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    weight_shape: tuple[int, ...] = ()
    is_channels_last: bool = False
    overhead_ms: float = 0.0
    roof_ms: float = 0.0
    verdict: Bound | None = None
    reads_from: tuple[str, ...] = ()
    operators: tuple[OperatorProfile, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    runs_as: str = ""  # in an engine: the operators that its nodes run, joined by +
    joined_into: str | None = None  # in an engine: the layer in whose row this one's time is
    # why a figure is not known, by its name: self_ms, peak_bytes …
    unknown_why: dict[str, str] = {}

    def scaled(self, scale: float) -> LayerProfile:
        """The row with its times scaled; what the machine could do at best stays."""
        names = ("self_ms", "total_ms", "overhead_ms", "backward_self_ms", "backward_total_ms")
        times = {name: ms * scale for name in names if (ms := getattr(self, name)) is not None}
        spans = {
            name: tuple(ms * scale for ms in getattr(self, name))
            for name in ("self_spread_ms", "total_spread_ms")
        }
        parts = {
            name: tuple(part.model_copy(update={"ms": part.ms * scale}) for part in inside)
            for name, inside in (("operators", self.operators), ("kernels", self.kernels))
        }
        return self.model_copy(update={**times, **spans, **parts})

    @property
    def depth(self) -> int:
        """The depth in the module tree; 0 is the model itself."""
        return self.layer.count(".") + 1 if self.layer else 0

    @property
    def moved_bytes(self) -> int:
        """The bytes that its own operators read and write."""
        return self.read_bytes + self.written_bytes

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte moved."""
        return self.flops / self.moved_bytes if self.moved_bytes else None

    @property
    def gflops(self) -> float | None:
        """The GFLOP/s that it reached."""
        return self.flops / self.self_ms / 1e6 if self.self_ms and self.flops else None

    @property
    def gbs(self) -> float | None:
        """The GB/s that it reached."""
        return self.moved_bytes / self.self_ms / 1e6 if self.self_ms and self.moved_bytes else None

    @property
    def roof_share(self) -> float | None:
        """Its speed relative to its roof: 1 is the fastest that this machine can be."""
        return self.roof_ms / self.self_ms if self.self_ms and self.roof_ms else None


class ProfileTree(Record):
    """A model's layers in the order of their first call; the model itself ('') is first."""

    workload: AboutWorkload
    machine: str
    device: str = "cpu"
    # the steps that changed the model, by a recipe
    applied: tuple[dict[str, dict[str, Any]], ...] = ()
    engine: str = ""  # what ran the model, where it was not eager torch
    threads: int
    ceiling: Ceiling
    vector_width: int = 1
    latency_ms: float
    latency_spread_ms: tuple[float, float]
    rounds_ms: tuple[float, ...]
    slowdown_while_profiling: float  # profiled run ÷ unprofiled run − 1
    watching_us: float  # the overhead of profiling one call of a layer; subtracted from every row
    call_us: float
    operator_us: float
    layers: tuple[LayerProfile, ...] = Field(min_length=1)
    timeline: CallTimeline = CallTimeline()  # of the one call that was traced
    is_interrupted: bool = False
    quality: Quality | None = None  # how quiet the machine was; None if nobody recorded it
    # the sum of the rows over the latency, before both were scaled to another one
    rows_share: float | None = None

    def __getitem__(self, layer: str) -> LayerProfile:
        if layer not in self._by_name:
            raise KeyError(
                f"no layer {layer!r} ran; there are {', '.join(list(self._by_name)[1:6])}, …"
            )
        return self._by_name[layer]

    def get(self, layer: str) -> LayerProfile | None:
        """A layer's row, or None."""
        return self._by_name.get(layer)

    def __contains__(self, layer: str) -> bool:
        return layer in self._by_name

    def __iter__(self) -> Iterator[LayerProfile]:  # type: ignore[override]
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def _by_name(self) -> dict[str, LayerProfile]:
        return {row.layer: row for row in self.layers}

    @property
    def root(self) -> LayerProfile:
        """The model itself: its totals are the whole."""
        return self.layers[0]

    @property
    def total_ms(self) -> float:
        """The sum of all rows."""
        return self.root.total_ms

    @property
    def rows_to_latency(self) -> float:
        """The sum of all rows over the latency: 1 if nothing is lost or counted twice."""
        if self.rows_share is not None:
            return self.rows_share
        return self.total_ms / self.latency_ms if self.latency_ms else 1.0

    def taking(self, latency_ms: float) -> Self:
        """The profile scaled to a latency measured elsewhere; itself if it has that already."""
        if not self.total_ms or math.isclose(self.total_ms, latency_ms):
            return self
        rows, whole = latency_ms / self.total_ms, latency_ms / (self.latency_ms or latency_ms)
        low, high = self.latency_spread_ms
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(
            **fields
            | {
                "latency_ms": latency_ms,
                "latency_spread_ms": (low * whole, high * whole),
                "rounds_ms": tuple(ms * whole for ms in self.rounds_ms),
                "layers": tuple(row.scaled(rows) for row in self.layers),
                "rows_share": self.rows_to_latency,
            }
        )

    def costliest(self, count: int = 3) -> tuple[LayerProfile, ...]:
        """The layers with the largest self time."""
        return tuple(sorted(self.layers, key=lambda row: -row.self_ms)[:count])

    def children(self, layer: str) -> list[LayerProfile]:
        """The child layers of a layer; modules in between that never ran are skipped."""
        return self._children.get(layer, [])

    @cached_property
    def _children(self) -> dict[str, list[LayerProfile]]:
        children: dict[str, list[LayerProfile]] = {}
        for row in self.layers[1:]:
            children.setdefault(self.parent(row.layer), []).append(row)
        return children

    def parent(self, layer: str) -> str:
        """The nearest layer above that has a row."""
        above = layer.rpartition(".")[0]
        while above and above not in self._by_name:
            above = above.rpartition(".")[0]
        return above

    def walk(self, layer: str = "", depth: int = 0) -> Iterator[tuple[int, LayerProfile]]:
        """The tree from a layer down, each row with its depth in the tree."""
        yield depth, self[layer]
        for row in self.children(layer):
            yield from self.walk(row.layer, depth + 1)

    @property
    def title(self) -> str:
        """The workload, its latency and the machine, in a line."""
        stopped = " · stopped early" if self.is_interrupted else ""
        took = f"{self.workload} · {readable_ms(self.latency_ms)} ms"
        return f"{took} on {self.machine}, {self.threads_text}{stopped}"

    @property
    def threads_text(self) -> str:
        """The number of threads; of another device than a CPU its name."""
        return counted(self.threads, "thread") if self.device == "cpu" else self.device

    @property
    def accuracy(self) -> str:
        """The overhead of profiling, and how well the rows add up, as a sentence."""
        slower = (
            f"{abs(self.slowdown_while_profiling):.1%} "
            f"{'more' if self.slowdown_while_profiling >= 0 else 'less'}"
        )
        if self.engine and len(self.layers) > 1:
            return (
                f"{self._sum}; they are from {self.engine}'s own profile of a second "
                f"session, which took {slower}, and {three_figures(self.watching_us)} µs a node "
                f"were taken out{self._caution}"
            )
        return (
            f"{self._sum}; while profiling it took {slower}, and "
            f"{in_figures(self.watching_us, 2)} µs a call were taken out{self._caution}"
        )

    @property
    def _sum(self) -> str:
        """How well the rows add up; where they were scaled, to what."""
        took = f"{readable_ms(self.latency_ms)} ms"
        if self.rows_share is None:
            return f"rows add up to {self.rows_to_latency:.1%} of the untouched model's {took}"
        return (
            f"rows are shares of the {took} that were measured without watching "
            f"layers; as profiled they added up to {self.rows_share:.1%} of the untouched model"
        )

    @property
    def _caution(self) -> str:
        """Warnings: the machine was busy during the profile, or when its ceilings were measured."""
        ceilings, busy = self.ceiling.caution, self.quality.disturbances if self.quality else ()
        return "".join(
            [
                f"; meanwhile the machine was busy: {', '.join(busy)}" if busy else "",
                f'; the ceilings behind "bound by" were {ceilings}' if ceilings else "",
            ]
        )

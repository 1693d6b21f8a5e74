"""A layer's row of a profile: its time, memory and bytes, and the operators that it ran."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from .record import Record

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
    """A layer alone on inputs of its shape, timed in turn as it is (`here_ms`) and after a step
    (`there_ms`).
    """

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
    runs_as: str = Field(
        default="", description="in an engine: the operators that its nodes run, joined by +"
    )
    joined_into: str | None = Field(
        default=None, description="in an engine: the layer in whose row this one's time is"
    )
    unknown_why: dict[str, str] = Field(
        default={}, description="why a figure is not known, by its name: self_ms, peak_bytes …"
    )

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

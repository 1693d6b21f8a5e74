"""A layer's row of a profile: its time, memory and bytes, and the operators that it ran."""

from __future__ import annotations

from typing import Any, Literal

from .record import Record

Bound = Literal["compute", "memory", "overhead"]


class OperatorProfile(Record):
    """An operator that a layer ran itself, all of its calls together."""

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
    """The same layer, alone and on inputs of its shape, as it is and as a step would make it; timed
    in turn.
    """

    step: dict[str, dict[str, Any]]
    here_ms: float
    there_ms: float


class LayerProfile(Record):
    """One layer: `self_` is what it ran itself, `total_` what it and the layers under its path
    ran.
    """

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

    @property
    def depth(self) -> int:
        """How far below the model itself."""
        return self.layer.count(".") + 1 if self.layer else 0

    @property
    def moved_bytes(self) -> int:
        """What its own operators read and write."""
        return self.read_bytes + self.written_bytes

    @property
    def intensity(self) -> float | None:
        """Operations for each byte moved."""
        return self.flops / self.moved_bytes if self.moved_bytes else None

    @property
    def gflops(self) -> float | None:
        """Billion operations a second that it reached."""
        return self.flops / self.self_ms / 1e6 if self.self_ms and self.flops else None

    @property
    def gbs(self) -> float | None:
        """Billion bytes a second that it moved."""
        return self.moved_bytes / self.self_ms / 1e6 if self.self_ms and self.moved_bytes else None

    @property
    def roof_share(self) -> float | None:
        """How near it comes to the roof over it: 1 is as fast as this machine can."""
        return self.roof_ms / self.self_ms if self.self_ms and self.roof_ms else None

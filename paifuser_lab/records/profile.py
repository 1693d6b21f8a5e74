"""Where a model spends its time, memory and bytes, a row a layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from .hardware import Ceiling
from .profile_text import profile_html, profile_table, profile_text
from .record import Record

if TYPE_CHECKING:
    import pandas

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
    """The same layer, alone and on inputs of its shape, as it is and as a step would make it; timed in turn."""

    step: dict[str, dict[str, Any]]
    here_ms: float
    there_ms: float


class LayerProfile(Record):
    """One layer: `self_` is what it ran itself, `total_` what it and the layers under its path ran."""

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


class Profile(Record):
    """A model's layers in the order in which they first ran, the model itself ('') first."""

    workload: str
    machine: str
    device: str = "cpu"
    threads: int
    ceiling: Ceiling
    vector_width: int = 1
    latency_ms: float
    latency_spread_ms: tuple[float, float]
    rounds_ms: tuple[float, ...]
    slowdown_while_profiling: float = Field(description="watched run ÷ untouched run − 1")
    watching_us: float = Field(description="what watching one call of a layer costs; it is taken out of every row")
    call_us: float
    operator_us: float
    layers: tuple[LayerProfile, ...] = Field(min_length=1)
    is_interrupted: bool = False
    failure: str | None = None
    failed_layer: str | None = None

    def __getitem__(self, layer: str) -> LayerProfile:
        if layer not in self._by_name:
            raise KeyError(f"no layer {layer!r} ran; there are {', '.join(list(self._by_name)[1:6])}, …")
        return self._by_name[layer]

    def get(self, layer: str) -> LayerProfile | None:
        """A layer's row; None where it has none."""
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
        """The sum of all rows against the untouched model's latency: 1 where nothing is lost and nothing counted twice."""
        return self.total_ms / self.latency_ms if self.latency_ms else 1.0

    def costliest(self, count: int = 3) -> tuple[LayerProfile, ...]:
        """The layers that take most time themselves."""
        return tuple(sorted(self.layers, key=lambda row: -row.self_ms)[:count])

    def children(self, layer: str) -> list[LayerProfile]:
        """The layers right under a layer; a path in between that never ran itself is skipped."""
        return self._children.get(layer, [])

    @cached_property
    def _children(self) -> dict[str, list[LayerProfile]]:
        found: dict[str, list[LayerProfile]] = {}
        for row in self.layers[1:]:
            found.setdefault(self.parent(row.layer), []).append(row)
        return found

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
    def frame(self) -> pandas.DataFrame:
        """A row a layer, as plain numbers."""
        import pandas

        skipped = {"operators", "kernels", "alternatives"}
        derived = ("depth", "intensity", "gflops", "gbs", "roof_share")
        rows = [row.model_dump(exclude=skipped) | {name: getattr(row, name) for name in derived} for row in self.layers]
        return pandas.DataFrame(rows).set_index("layer")

    @property
    def operators(self) -> pandas.DataFrame:
        """A row for each operator that a layer ran itself, so that what happens between layers is not lost."""
        import pandas

        rows = [{"layer": row.layer, **one.model_dump()} for row in self.layers for one in row.operators]
        return pandas.DataFrame(rows, columns=["layer", *OperatorProfile.model_fields]).set_index(["layer", "name"])

    @property
    def roofline(self) -> Roofline:
        """Each layer on the roofs of this machine."""
        points = tuple(
            Point(layer=row.layer, kind=row.kind, intensity=row.intensity, gflops=row.gflops, ms=row.self_ms, bound=row.verdict)
            for row in self.layers
            if row.intensity and row.gflops
        )
        return Roofline(workload=self.workload, machine=self.machine, ceiling=self.ceiling, points=points)

    @property
    def title(self) -> str:
        """What was profiled, and where."""
        stopped = " · stopped early" if self.is_interrupted else ""
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}" if self.device == "cpu" else self.device
        return f"{self.workload} · {self.latency_ms:.3g} ms on {self.machine}, {threads}{stopped}"

    @property
    def accuracy(self) -> str:
        """What profiling cost, and how well the rows add up."""
        if not self.rounds_ms:
            return "the model never came to its end, so that these times are of one watched run and were held against nothing"
        slower = f"{abs(self.slowdown_while_profiling):.1%} {'more' if self.slowdown_while_profiling >= 0 else 'less'}"
        return (
            f"rows add up to {self.rows_to_latency:.1%} of the untouched model's {self.latency_ms:.3g} ms; while profiling it took "
            f"{slower}, and {self.watching_us:.2g} µs a call were taken out"
        )

    def table(self, depth: int | None = None) -> list[dict[str, str]]:
        """The tree as a person reads it, down to a depth."""
        return profile_table(self, depth)

    def __str__(self) -> str:
        return profile_text(self)

    def __repr__(self) -> str:
        return f"Profile({self.workload}: {len(self.layers)} layers)"

    def _repr_html_(self) -> str:
        return profile_html(self)


class Point(Record):
    """A layer on a roofline."""

    layer: str
    kind: str
    intensity: float
    gflops: float
    ms: float
    bound: Bound | None = None


class Roofline(Record):
    """Layers by operations a byte and operations a second, under what the machine can do."""

    workload: str
    machine: str
    ceiling: Ceiling
    points: tuple[Point, ...]

    def __repr__(self) -> str:
        return f"Roofline({self.workload}: {len(self.points)} layers)"

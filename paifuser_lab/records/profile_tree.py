"""The layers of a profile as a tree of their paths, and how they were measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self

from pydantic import Field

from .hardware import Ceiling
from .layer_profile import LayerProfile
from .quality import Quality
from .record import Record
from .workload_name import AboutWorkload


class ProfileTree(Record):
    """A model's layers in the order of their first call; the model itself ('') is first."""

    workload: AboutWorkload
    machine: str
    device: str = "cpu"
    applied: tuple[dict[str, dict[str, Any]], ...] = Field(
        default=(), description="the steps that changed the model, by a recipe"
    )
    engine: str = Field(default="", description="what ran the model, where it was not eager torch")
    threads: int
    ceiling: Ceiling
    vector_width: int = 1
    latency_ms: float
    latency_spread_ms: tuple[float, float]
    rounds_ms: tuple[float, ...]
    slowdown_while_profiling: float = Field(description="profiled run ÷ unprofiled run − 1")
    watching_us: float = Field(
        description="the overhead of profiling one call of a layer; subtracted from every row"
    )
    call_us: float
    operator_us: float
    layers: tuple[LayerProfile, ...] = Field(min_length=1)
    is_interrupted: bool = False
    quality: Quality | None = Field(
        default=None, description="how quiet the machine was; None if nobody recorded it"
    )
    failure: str | None = None
    failed_layer: str | None = None
    rows_share: float | None = Field(
        default=None,
        description="the sum of the rows over the latency, before both were scaled to another one",
    )

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
        """The sum of all rows over the unprofiled model's latency: 1 if nothing is lost or counted
        twice.
        """
        if self.rows_share is not None:
            return self.rows_share
        return self.total_ms / self.latency_ms if self.latency_ms else 1.0

    def taking(self, latency_ms: float) -> Self:
        """The profile of a latency that was measured elsewhere, such as by a comparison: each layer
        keeps its share of it. Itself if it has that latency already.
        """
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
        threads = (
            f"{self.threads} thread{'' if self.threads == 1 else 's'}"
            if self.device == "cpu"
            else self.device
        )
        return f"{self.workload} · {self.latency_ms:.3g} ms on {self.machine}, {threads}{stopped}"

    @property
    def accuracy(self) -> str:
        """The overhead of profiling, and how well the rows add up, as a sentence."""
        if not self.rounds_ms:
            return (
                "the model never came to its end, so that these times are of one watched run and "
                "were held against nothing"
            )
        slower = (
            f"{abs(self.slowdown_while_profiling):.1%} "
            f"{'more' if self.slowdown_while_profiling >= 0 else 'less'}"
        )
        if self.engine and len(self.layers) > 1:
            return (
                f"{self._sum}; they are from {self.engine}'s own profile of a second "
                f"session, which took {slower}, and {self.watching_us:.3g} µs a node were taken "
                f"out{self._caution}"
            )
        return (
            f"{self._sum}; while profiling it took {slower}, and {self.watching_us:.2g} µs a call "
            f"were taken out{self._caution}"
        )

    @property
    def _sum(self) -> str:
        """How well the rows add up; where they were scaled, to what."""
        if self.rows_share is None:
            of = f"{self.latency_ms:.3g} ms"
            return f"rows add up to {self.rows_to_latency:.1%} of the untouched model's {of}"
        return (
            f"rows are shares of the {self.latency_ms:.3g} ms that were measured without watching "
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

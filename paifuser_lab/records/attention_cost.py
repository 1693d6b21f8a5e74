"""Sparse attention: output error and latency by the share of keys, per layer and in all."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .record import AboutWorkload, Record, TableRecord
from .text import readable_ms

AttentionKind = Literal["window", "topk", "block"]


class AttentionLayer(Record):
    """One attention layer: its size, and its output's error at each share of keys."""

    layer: str
    heads: int
    queries: int
    keys: int
    is_causal: bool = False
    # relative L2 error of the attention's output, one for each share in `keeps`
    errors: tuple[float, ...]
    share: float | None = None  # of the model's time spent in its attention, if that was measured
    reason: str = ""  # why it cannot be sparse, if it cannot; it then has no errors


class AttentionCost(TableRecord):
    """Error, latency and metric with a share of the keys in every layer; each layer's error."""

    text_columns = ("keep", "worst layer")

    workload: AboutWorkload
    machine: str
    kind: AttentionKind
    # shares of the keys that are attended to, from the largest
    keeps: tuple[float, ...] = Field(min_length=1)
    layers: tuple[AttentionLayer, ...] = ()
    # relative L2 error of the model's output, one for each share in `keeps`
    errors: tuple[float, ...]
    # of the model, timed in turn with the original; empty if not timed
    latency_ms: tuple[float, ...] = ()
    dense_ms: float | None = None  # of the original, in the same turns
    metric: str = ""  # the metric's name; '' if the workload has none
    values: tuple[float, ...] = ()  # the metric, one for each share in `keeps`
    dense_value: float | None = None
    note: str = ""  # a caution for the reader, such as that attention is a small part of this model

    def speedup(self, index: int) -> float | None:
        """The speed-up of the model at one of the shares."""
        return self.dense_ms / self.latency_ms[index] if self.dense_ms and self.latency_ms else None

    @property
    def sparse_layers(self) -> tuple[AttentionLayer, ...]:
        """The layers that can be sparse."""
        return tuple(layer for layer in self.layers if not layer.reason)

    @property
    def remarks(self) -> tuple[str, ...]:
        return (self.note,) if self.note else ()

    def table(self) -> list[dict[str, str]]:
        """A row per share of keys."""
        rows = []
        for index, keep in enumerate(self.keeps):
            speedup = self.speedup(index)
            row = {"keep": f"{keep:.0%}", "output error": f"{self.errors[index]:.2g}"}
            row |= {"worst layer": self._worst(index)}
            row |= {"latency ms": readable_ms(self.latency_ms[index])} if self.latency_ms else {}
            row |= {"times as fast": f"{speedup:.2f} ×"} if speedup else {}
            row |= {self.metric: f"{self.values[index]:.4f}"} if self.metric and self.values else {}
            rows.append(row)
        return rows

    def _worst(self, index: int) -> str:
        errors = [(layer.errors[index], layer.layer) for layer in self.sparse_layers]
        return "{1} {0:.2g}".format(*max(errors)) if errors else "–"

    @property
    def title(self) -> str:
        return (
            f"{self.workload}: attention to a part of the keys ({self.kind}), "
            f"{len(self.sparse_layers)} of {len(self.layers)} layers"
        )

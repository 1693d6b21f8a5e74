"""What attention to a part of the keys costs in exactness and brings in time: for each layer, and
for the whole model.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from .record import Record
from .text import html_table, text_table
from .workload_name import AboutWorkload

AttentionKind = Literal["window", "topk", "block"]


class AttentionLayer(Record):
    """One layer that attends: its size, and how far its answer is from attention to all at each
    share that is kept.
    """

    layer: str
    heads: int
    queries: int
    keys: int
    is_causal: bool = False
    errors: tuple[float, ...] = Field(
        description="relative L2 distance of the attention's answer, a number a keep"
    )
    share: float | None = Field(
        default=None,
        description="of the model's time that its attention takes, where that was measured",
    )
    reason: str = Field(
        default="",
        description="why it cannot attend to a part, where it cannot; it then has no errors",
    )


class AttentionCost(Record):
    """The same shares kept in every layer: error, latency and the metric of the whole model, and
    the error of each layer.
    """

    workload: AboutWorkload
    machine: str
    kind: AttentionKind
    keeps: tuple[float, ...] = Field(
        min_length=1, description="shares of the keys that are attended to, from the largest"
    )
    layers: tuple[AttentionLayer, ...] = ()
    errors: tuple[float, ...] = Field(
        description="relative L2 distance of the model's answer, a number a keep"
    )
    latency_ms: tuple[float, ...] = Field(
        default=(),
        description="of the model, timed in turn with the original; empty where not timed",
    )
    dense_ms: float | None = Field(default=None, description="of the original, in the same turns")
    metric: str = Field(default="", description="the metric's name; '' where the workload has none")
    values: tuple[float, ...] = Field(default=(), description="the metric, a number a keep")
    dense_value: float | None = None
    note: str = Field(
        default="",
        description=(
            "a caution for the reader, such as that attention is a small part of this model"
        ),
    )

    @model_validator(mode="after")
    def _numbers_fit(self) -> AttentionCost:
        for name, numbers in (
            ("errors", self.errors),
            ("latency_ms", self.latency_ms),
            ("values", self.values),
        ):
            if numbers and len(numbers) != len(self.keeps):
                raise ValueError(f"{name} has {len(numbers)} numbers for {len(self.keeps)} keeps")
        return self

    def speedup(self, index: int) -> float | None:
        """How many times as fast the model is at one of the keeps."""
        return self.dense_ms / self.latency_ms[index] if self.dense_ms and self.latency_ms else None

    @property
    def sparse_layers(self) -> tuple[AttentionLayer, ...]:
        """Those that can attend to a part."""
        return tuple(one for one in self.layers if not one.reason)

    def table(self) -> list[dict[str, str]]:
        """A row a keep."""
        rows = []
        for index, keep in enumerate(self.keeps):
            speedup = self.speedup(index)
            row = {"keep": f"{keep:.0%}", "output error": f"{self.errors[index]:.2g}"}
            row |= {"worst layer": self._worst(index)}
            row |= {"latency ms": f"{self.latency_ms[index]:.3g}"} if self.latency_ms else {}
            row |= {"times as fast": f"{speedup:.2f} ×"} if speedup else {}
            row |= {self.metric: f"{self.values[index]:.4f}"} if self.metric and self.values else {}
            rows.append(row)
        return rows

    def _worst(self, index: int) -> str:
        able = self.sparse_layers
        if not able:
            return "–"
        worst = max(able, key=lambda one: one.errors[index])
        return f"{worst.layer} {worst.errors[index]:.2g}"

    def __str__(self) -> str:
        return "\n".join([self.title, *text_table(self.table(), ("keep", "worst layer"))])

    @property
    def title(self) -> str:
        """What it shows, in a line."""
        return (
            f"{self.workload}: attention to a part of the keys ({self.kind}), "
            f"{len(self.sparse_layers)} of {len(self.layers)} layers"
        )

    def __repr__(self) -> str:
        return f"AttentionCost({self.title})"

    def _repr_html_(self) -> str:
        return html_table((self.title,), self.table(), ("keep", "worst layer"), lambda row: False)

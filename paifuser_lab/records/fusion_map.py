"""Fusion of layers: which run fused, why others do not, and what it saves."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal

from pydantic import Field

from .record import AboutWorkload, Frame, Record, TableRecord, frame_of
from .table import Columns
from .text import counted, or_dash, readable_bytes

Standing = Literal["fused", "slower", "off", "apart"]
WORDS: dict[Standing, str] = {
    "fused": "runs as one",
    "slower": "would be slower as one, so it stays apart",
    "off": "switched off",
    "apart": "cannot be one",
}


class Fusion(Record):
    """Consecutive layers, and what runs in their place if they are fused."""

    # in the order in which they run; the first names the site: a layer, or a call in a
    # forward, such as 'matmul()'
    layers: tuple[str, ...] = Field(min_length=1)
    pattern: str  # what is fused, such as 'convolution + batch-norm + relu'
    runs: str = ""  # what runs instead, such as 'oneDNN' or 'CUDA pointwise'; '' for nothing
    standing: Standing = "fused"
    reason: str = ""  # why these layers, or those that follow, are not fused
    saved_bytes: int | None = None  # memory traffic saved at each call
    apart_ms: float | None = None  # a call of these layers unfused; None if it was not timed
    # a call of what runs in their place, timed in turn with the unfused layers
    fused_ms: float | None = None
    error: float | None = None  # relative L2 error of its output against that of the unfused layers

    @property
    def place(self) -> str:
        """The first layer, which names the fusion."""
        return self.layers[0]

    @property
    def speedup(self) -> float | None:
        """The speed-up of the fused layers, if both were timed."""
        return self.apart_ms / self.fused_ms if self.apart_ms and self.fused_ms else None

    @property
    def can_switch(self) -> bool:
        """Whether the user can turn it on or off."""
        return self.standing != "apart"


class FusionMap(TableRecord):
    """Every fusion site of a model in execution order, including those that cannot be fused."""

    columns: ClassVar[Columns] = {
        "layers": lambda fusion: " + ".join(fusion.layers),
        "pattern": "pattern",
        "runs": lambda fusion: fusion.runs or "–",
        "standing": lambda fusion: fusion.reason or WORDS[fusion.standing],
        "saves": lambda fusion: readable_bytes(fusion.saved_bytes),
        "times as fast": lambda fusion: or_dash(fusion.speedup, "{:.2f} ×"),
        "error": lambda fusion: or_dash(fusion.error, "{:.1e}"),
    }
    text_columns = ("layers", "pattern", "runs", "standing")
    row_field = "fusions"

    workload: AboutWorkload
    machine: str  # where the fusions were chosen and timed
    fusions: tuple[Fusion, ...] = ()
    notes: tuple[str, ...] = ()  # what is not fused, why, and which step fuses it
    apart_ms: float | None = None  # a call of the whole model without fusion
    # a call of the whole model with fusion, timed in turn with the unfused model
    fused_ms: float | None = None

    @property
    def fused(self) -> tuple[Fusion, ...]:
        """The fusions that are in effect."""
        return tuple(fusion for fusion in self.fusions if fusion.standing == "fused")

    def at(self, layer: str) -> Fusion | None:
        """The fusion that a layer belongs to."""
        return next((fusion for fusion in self.fusions if layer in fusion.layers), None)

    @property
    def summary(self) -> str:
        """How many groups of layers are fused, and how many are not, as text."""
        counts = Counter(fusion.standing for fusion in self.fusions)
        parts = [f"{counts['fused']} of {counted(len(self.fusions), 'place')} as one"]
        parts += [f"{counts[key]} {words}" for key, words in _SHORT.items() if counts[key]]
        return ", ".join(parts) + (f"; the whole {self.whole}." if self.whole else ".")

    @property
    def whole(self) -> str:
        """How fast the whole model is with fusion: '1.22 × as fast'; '' if it was not timed."""
        if self.apart_ms is None or self.fused_ms is None:
            return ""
        return f"{self.apart_ms / self.fused_ms:.2f} × as fast"

    @property
    def frame(self) -> Frame:
        names = ["place", *Fusion.model_fields, "speedup"]
        rows = [{name: getattr(fusion, name) for name in names} for fusion in self.fusions]
        return frame_of(rows, "place", names)

    @property
    def title(self) -> str:
        return f"{self.workload}: {self.summary}"

    @property
    def remarks(self) -> tuple[str, ...]:
        return self.notes

    def is_bold(self, row: dict[str, str]) -> bool:
        """Whether the row's layers run fused."""
        return row["layers"] in {" + ".join(fusion.layers) for fusion in self.fused}


_SHORT: dict[Standing, str] = {
    "slower": "apart as slower",
    "off": "switched off",
    "apart": "that cannot be fused",
}

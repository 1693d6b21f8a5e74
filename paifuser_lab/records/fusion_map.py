"""Which layers of a model can be fused, which were, why others were not, and what it saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from .record import Record
from .text import counted, html_table, readable_bytes, text_table
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas

Standing = Literal["fused", "slower", "off", "apart"]
WORDS: dict[Standing, str] = {
    "fused": "runs as one",
    "slower": "would be slower as one, so it stays apart",
    "off": "switched off",
    "apart": "cannot be one",
}


class Fusion(Record):
    """Layers that follow each other, and what runs instead of them where they are fused."""

    layers: tuple[str, ...] = Field(
        min_length=1,
        description=(
            "in the order in which they run; the first names the place: a layer, or a call in a "
            "forward, such as 'matmul()'"
        ),
    )
    pattern: str = Field(description="what is fused, such as 'convolution + batch-norm + relu'")
    runs: str = Field(
        default="",
        description="what runs instead, such as 'oneDNN' or 'CUDA pointwise'; '' for nothing",
    )
    standing: Standing = "fused"
    reason: str = Field(
        default="",
        description="why it stays apart, or why what follows does, where that is so",
    )
    saved_bytes: int | None = Field(
        default=None, description="what no longer goes through memory at each call"
    )
    apart_ms: float | None = Field(
        default=None, description="a call of these layers as they were; None where it was not timed"
    )
    fused_ms: float | None = Field(
        default=None,
        description="a call of what runs in their stead, timed in turn with the former",
    )
    error: float | None = Field(
        default=None, description="relative L2 distance of its answer from that of the layers apart"
    )

    @property
    def place(self) -> str:
        """The layer that names it."""
        return self.layers[0]

    @property
    def speedup(self) -> float | None:
        """The speed-up of the fused layers, where both were timed."""
        return self.apart_ms / self.fused_ms if self.apart_ms and self.fused_ms else None

    @property
    def can_switch(self) -> bool:
        """Whether a person can turn it on or off."""
        return self.standing != "apart"


class FusionMap(Record):
    """Every place of a model, those that cannot be fused too, in the order in which they run."""

    workload: AboutWorkload
    machine: str = Field(
        description="where the times were taken, and what what runs was chosen for"
    )
    fusions: tuple[Fusion, ...] = ()
    notes: tuple[str, ...] = Field(
        default=(), description="what is not fused, why, and what fuses it"
    )
    apart_ms: float | None = Field(
        default=None, description="a call of the whole model with every layer apart"
    )
    fused_ms: float | None = Field(
        default=None, description="one with the fused places as one, timed in turn with the former"
    )

    @property
    def saved_ms(self) -> float:
        """The milliseconds of a call that fusing saves, each fusion timed by itself."""
        return sum(
            one.apart_ms - one.fused_ms for one in self.fused if one.apart_ms and one.fused_ms
        )

    @property
    def fused(self) -> tuple[Fusion, ...]:
        """The fusions that are in effect."""
        return tuple(one for one in self.fusions if one.standing == "fused")

    def at(self, layer: str) -> Fusion | None:
        """The fusion that a layer belongs to."""
        return next((one for one in self.fusions if layer in one.layers), None)

    @property
    def summary(self) -> str:
        """How many groups of layers are fused, and how many are not, as text."""
        counts = {
            standing: sum(one.standing == standing for one in self.fusions) for standing in WORDS
        }
        parts = [f"{counts['fused']} of {counted(len(self.fusions), 'place')} as one"]
        parts += [
            f"{count} {words}" for standing, words in _SHORT.items() if (count := counts[standing])
        ]
        return ", ".join(parts) + (f"; the whole {whole}." if (whole := self.whole) else ".")

    @property
    def whole(self) -> str:
        """What it does for the whole model: "46.4 → 38.1 ms"; '' where that was not timed."""
        if self.apart_ms is None or self.fused_ms is None:
            return ""
        times = f"{self.apart_ms:.3g} → {self.fused_ms:.3g} ms"
        return times if self.fused_ms < self.apart_ms else f"{times}, which is no faster"

    @property
    def frame(self) -> pandas.DataFrame:
        """A row a fusion, as plain numbers."""
        import pandas

        names = [*Fusion.model_fields, "speedup"]
        rows = [{name: getattr(one, name) for name in names} for one in self.fusions]
        return pandas.DataFrame(
            rows,
            columns=names,
            index=pandas.Index([one.place for one in self.fusions], name="place"),
        )

    def table(self) -> list[dict[str, str]]:
        """A row a fusion."""
        return [
            {
                "layers": " + ".join(one.layers),
                "pattern": one.pattern,
                "runs": one.runs or "–",
                "standing": one.reason or WORDS[one.standing],
                "saves": "–" if one.saved_bytes is None else readable_bytes(one.saved_bytes),
                "times as fast": "–" if one.speedup is None else f"{one.speedup:.2f} ×",
                "error": "–" if one.error is None else f"{one.error:.1e}",
            }
            for one in self.fusions
        ]

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.workload}: {self.summary}", *text_table(self.table(), _TEXT), *self.notes]
        )

    def __repr__(self) -> str:
        return f"FusionMap({self.summary})"

    def _repr_html_(self) -> str:
        fused = {" + ".join(one.layers) for one in self.fused}
        return html_table(
            (f"{self.workload}: {self.summary}", *self.notes),
            self.table(),
            _TEXT,
            lambda row: row["layers"] in fused,
        )


_SHORT: dict[Standing, str] = {
    "slower": "apart as slower",
    "off": "switched off",
    "apart": "that cannot be fused",
}
_TEXT = ("layers", "pattern", "runs", "standing")

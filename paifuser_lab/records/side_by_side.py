"""The profiles of a baseline and a variant, with layers matched by path."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from .explanation import Reason
from .quality import readable_interval
from .record import Record
from .text import html_table, text_table

if TYPE_CHECKING:
    import pandas

MAX_ROWS = 15


class LayerPair(Record):
    """A layer before and after; None if it did not exist."""

    layer: str
    kind_before: str | None
    kind_after: str | None
    before_ms: float | None
    after_ms: float | None
    note: str = ""

    @property
    def saved_ms(self) -> float:
        """The self time saved; negative if it is slower."""
        return (self.before_ms or 0.0) - (self.after_ms or 0.0)


class SideBySide(Record):
    """Two profiles, layer by layer; the speed-up is known if both were timed in turn."""

    before: str
    after: str
    before_ms: float
    after_ms: float
    speedup: float | None = None
    speedup_interval: tuple[float, float] | None = None
    predicted: Reason | None = None
    rows: tuple[LayerPair, ...]

    @property
    def achieved_ms(self) -> float:
        """The latency saved."""
        return self.before_ms - self.after_ms

    @property
    def largest(self) -> tuple[LayerPair, ...]:
        """The layers that changed most."""
        return tuple(sorted(self.rows, key=lambda row: -abs(row.saved_ms)))

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per layer."""
        import pandas

        rows = [row.model_dump() | {"saved_ms": row.saved_ms} for row in self.rows]
        return pandas.DataFrame(rows).set_index("layer")

    @property
    def title(self) -> str:
        """Both latencies and the speed-up, in a line."""
        took = f"{self.before}: {self.before_ms:.3g} ms → {self.after}: {self.after_ms:.3g} ms"
        if self.speedup is None or self.speedup_interval is None:
            return took
        return f"{took}, {self.speedup:.2f} × ({readable_interval(self.speedup_interval)})"

    @property
    def promise(self) -> str:
        """The predicted and the achieved saving, as text."""
        if self.predicted is None or self.predicted.saves_ms is None:
            return ""
        return (
            f"predicted {_change(self.predicted.saves_ms)} ms ({self.predicted.known}), achieved "
            f"{_change(self.achieved_ms)} ms"
        )

    def table(self) -> list[dict[str, str]]:
        """The layers that changed most, as text."""
        return [
            {
                "layer": row.layer or self.before,
                "before ms": "–" if row.before_ms is None else f"{row.before_ms:.3f}",
                "after ms": "–" if row.after_ms is None else f"{row.after_ms:.3f}",
                "change ms": _change(row.saved_ms),
                "note": row.note,
            }
            for row in self.largest[:MAX_ROWS]
        ]

    def __str__(self) -> str:
        return "\n".join(
            [
                self.title,
                *([self.promise] if self.promise else []),
                *text_table(self.table(), _WORDS),
            ]
        )

    def __repr__(self) -> str:
        return f"SideBySide({self.before} | {self.after}: {len(self.rows)} layers)"

    def _repr_html_(self) -> str:
        promise = f"<p><b>{html.escape(self.promise)}</b></p>" if self.promise else ""
        return promise + html_table([self.title], self.table(), _WORDS)


_WORDS = ("layer", "note")


def _change(saved_ms: float) -> str:
    """Saved time as a signed change: −3.2 saves, +0.4 costs; 0 if it rounds to zero."""
    text = f"{abs(saved_ms):.3f}" if abs(saved_ms) < 10 else f"{abs(saved_ms):.1f}"
    return "0" if float(text) == 0 else f"{'−' if saved_ms > 0 else '+'}{text}"

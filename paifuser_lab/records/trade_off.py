"""The trade-off of metric against latency or size, and its Pareto frontier."""

from __future__ import annotations

from pydantic import Field

from .record import Record
from .text import html_table, readable_bytes, text_table


class Bargain(Record):
    """One variant: its latency, its size, and its metric or closeness (`worth`)."""

    name: str
    latency_ms: float
    size_bytes: int
    worth: float


class TradeOff(Record):
    """The rows of a comparison by latency, size and metric; without a metric, by the closeness of
    the output to the baseline's.
    """

    title: str
    unit: str = Field(
        description="what `worth` is: the metric's name, or closeness, 1 − the output error"
    )
    bargains: tuple[Bargain, ...] = Field(min_length=1)

    def unbeaten(self, axis: str) -> tuple[Bargain, ...]:
        """The Pareto frontier of worth against `latency_ms` or `size_bytes`, the cheapest first."""
        frontier: list[Bargain] = []
        for row in sorted(self.bargains, key=lambda row: (getattr(row, axis), -row.worth)):
            if not frontier or row.worth > frontier[-1].worth:
                frontier.append(row)
        return tuple(frontier)

    def table(self) -> list[dict[str, str]]:
        """A row per variant, in the order of the comparison."""
        best = {
            axis: {row.name for row in self.unbeaten(axis)} for axis in ("latency_ms", "size_bytes")
        }
        return [
            {
                "name": row.name,
                "latency ms": f"{row.latency_ms:.3g}",
                "weights": readable_bytes(row.size_bytes),
                self.unit: f"{row.worth:.4f}",
                "note": " and ".join(
                    f"unbeaten for its {unit}"
                    for axis, unit in (("latency_ms", "latency"), ("size_bytes", "size"))
                    if row.name in best[axis]
                ),
            }
            for row in self.bargains
        ]

    def __str__(self) -> str:
        return "\n".join([self.title, *text_table(self.table(), _WORDS)])

    def __repr__(self) -> str:
        return f"TradeOff({len(self.bargains)} variants)"

    def _repr_html_(self) -> str:
        return html_table((self.title,), self.table(), _WORDS, lambda row: bool(row["note"]))


_WORDS = ("name", "note")

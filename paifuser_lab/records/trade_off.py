"""What variants keep of the metric for what they take, and which of them nothing beats."""

from __future__ import annotations

from pydantic import Field

from .record import Record
from .text import html_table, readable_bytes, text_table


class Bargain(Record):
    """One variant: what it takes, and what it is worth."""

    name: str
    latency_ms: float
    size_bytes: int
    worth: float


class TradeOff(Record):
    """The rows of a comparison by latency, size and the metric; where there is none, by how near
    the answer is to the baseline's.
    """

    title: str
    unit: str = Field(
        description="what `worth` is: the metric's name, or closeness, 1 − the output error"
    )
    bargains: tuple[Bargain, ...] = Field(min_length=1)

    def unbeaten(self, axis: str) -> tuple[Bargain, ...]:
        """Those that nothing beats in worth that takes less of `latency_ms` or `size_bytes`, the
        cheapest first.
        """
        found: list[Bargain] = []
        for one in sorted(self.bargains, key=lambda one: (getattr(one, axis), -one.worth)):
            if not found or one.worth > found[-1].worth:
                found.append(one)
        return tuple(found)

    def table(self) -> list[dict[str, str]]:
        """A row a variant, in the order of the comparison."""
        best = {
            axis: {one.name for one in self.unbeaten(axis)} for axis in ("latency_ms", "size_bytes")
        }
        return [
            {
                "name": one.name,
                "latency ms": f"{one.latency_ms:.3g}",
                "weights": readable_bytes(one.size_bytes),
                self.unit: f"{one.worth:.4f}",
                "note": " and ".join(
                    f"unbeaten for its {what}"
                    for axis, what in (("latency_ms", "latency"), ("size_bytes", "size"))
                    if one.name in best[axis]
                ),
            }
            for one in self.bargains
        ]

    def __str__(self) -> str:
        return "\n".join([self.title, *text_table(self.table(), _WORDS)])

    def __repr__(self) -> str:
        return f"TradeOff({len(self.bargains)} variants)"

    def _repr_html_(self) -> str:
        return html_table((self.title,), self.table(), _WORDS, lambda row: bool(row["note"]))


_WORDS = ("name", "note")

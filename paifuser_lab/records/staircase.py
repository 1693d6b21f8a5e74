"""The latency of a layer by its number of channels on one machine: flat while the hardware's tiles
have room, with a rise where one more is needed.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from .record import Record
from .table import TableRecord
from .text import counted

RISE = 0.03  # of the latency; smaller differences are noise


class Staircase(TableRecord):
    """The latency of a layer by its input channels (`reads`) and output channels (`makes`)."""

    text_columns = ("side", "note")

    likeness: str = Field(
        description="the operator, its options and its input shape without channels"
    )
    machine: str
    threads: int
    torch_version: str
    reads: tuple[int, ...] = Field(
        min_length=1,
        description="rising; just one if the layer has as many input as output channels",
    )
    makes: tuple[int, ...] = Field(min_length=1, description="rising")
    ms: tuple[tuple[float, ...], ...] = Field(description="a row per number of input channels")

    @model_validator(mode="after")
    def _fits(self) -> Staircase:
        if len(self.ms) != len(self.reads) or any(len(row) != len(self.makes) for row in self.ms):
            raise ValueError("there should be a time for each pair of widths")
        return self

    @property
    def by_made(self) -> tuple[float, ...]:
        """The latencies by output channels, with all input channels."""
        return self.ms[-1]

    @property
    def by_read(self) -> tuple[float, ...]:
        """The latencies by input channels, with all output channels."""
        return tuple(row[-1] for row in self.ms)

    @property
    def worth_making(self) -> tuple[int, ...]:
        """The numbers of output channels just before a rise of the latency."""
        return _last_before_rises(self.makes, self.by_made)

    @property
    def worth_reading(self) -> tuple[int, ...]:
        """The numbers of input channels just before a rise of the latency."""
        return _last_before_rises(self.reads, self.by_read)

    @property
    def title(self) -> str:
        """The layer, the machine and the threads, in a line."""
        return f"{self.likeness} on {self.machine} · {counted(self.threads, 'thread')}"

    def table(self) -> list[dict[str, str]]:
        """A row per number of output channels, the fewest first, then one per number of input
        channels.
        """
        rows = [
            _row("makes", *step, self.worth_making, self.by_made[-1])
            for step in zip(self.makes, self.by_made, strict=True)
        ]
        if len(self.reads) > 1:
            rows += [
                _row("reads", *step, self.worth_reading, self.by_read[-1])
                for step in zip(self.reads, self.by_read, strict=True)
            ]
        return rows

    def is_bold(self, row: dict[str, str]) -> bool:
        """Whether the width has a note."""
        return bool(row["note"])

    def __repr__(self) -> str:
        return f"Staircase({self.likeness}: {counted(len(self.reads) * len(self.makes), 'width')})"


class WholeLatency(Record):
    """The latency of a whole model: the original, the current one, and one with every group at its
    narrowest.
    """

    likeness: str
    original_ms: float
    ms: float
    narrow_ms: float | None = Field(
        default=None, description="None if the narrow model does not run"
    )


class StaircaseTable(Record):
    """Staircases of one machine and number of threads, kept between runs."""

    machine: str
    threads: int
    torch_version: str
    rows: tuple[Staircase, ...] = ()
    wholes: tuple[WholeLatency, ...] = ()

    def find(self, likeness: str, reads: int, makes: int) -> Staircase | None:
        """The staircase of a layer with these widths, if it was measured."""
        key = likeness, reads, makes
        return next(
            (row for row in self.rows if (row.likeness, row.reads[-1], row.makes[-1]) == key),
            None,
        )

    def whole(self, likeness: str) -> WholeLatency | None:
        """The latency of a whole model, if it was measured."""
        return next((row for row in self.wholes if row.likeness == likeness), None)

    def joined(self, newer: StaircaseTable) -> StaircaseTable:
        """The table with newer rows replacing older ones."""
        rows = {
            (row.likeness, row.reads[-1], row.makes[-1]): row for row in (*self.rows, *newer.rows)
        }
        wholes = {row.likeness: row for row in (*self.wholes, *newer.wholes)}
        return self.model_copy(
            update={"rows": tuple(rows.values()), "wholes": tuple(wholes.values())}
        )


def _last_before_rises(widths: tuple[int, ...], times: tuple[float, ...]) -> tuple[int, ...]:
    """The widest, and each narrower width that is faster than all wider ones."""
    chosen, least = [widths[-1]], times[-1]
    for width, ms in zip(widths[-2::-1], times[-2::-1], strict=True):
        if ms < least * (1 - RISE):
            chosen.append(width)
            least = ms
    return tuple(reversed(chosen))


def _row(
    side: str, width: int, ms: float, worth: tuple[int, ...], full_ms: float
) -> dict[str, str]:
    return {
        "side": side,
        "channels": str(width),
        "ms": f"{ms:.3g}",
        "of the whole": f"{ms / full_ms:.0%}" if full_ms else "–",
        "note": "the last before a rise" if width in worth else "",
    }

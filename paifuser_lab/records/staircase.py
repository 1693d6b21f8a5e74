"""What a layer takes at each width, on one machine: flat where the hardware computes the same, with
a rise where it needs one more turn.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from .record import Record
from .text import counted, html_table, text_table

RISE = 0.03  # of the time: less is noise


class Staircase(Record):
    """The ms of a layer by how many channels it reads and how many it makes; those that go in pairs
    are measured together.
    """

    likeness: str = Field(
        description="the operator, its options and what it is given beside channels"
    )
    machine: str
    threads: int
    torch_version: str
    reads: tuple[int, ...] = Field(
        min_length=1, description="rising; just one where the layer reads as many as it makes"
    )
    makes: tuple[int, ...] = Field(min_length=1, description="rising")
    ms: tuple[tuple[float, ...], ...] = Field(description="a row for each width that is read")

    @model_validator(mode="after")
    def _fits(self) -> Staircase:
        if len(self.ms) != len(self.reads) or any(len(row) != len(self.makes) for row in self.ms):
            raise ValueError("there should be a time for each pair of widths")
        return self

    @property
    def by_made(self) -> tuple[float, ...]:
        """The times by the width that is made, where everything is read."""
        return self.ms[-1]

    @property
    def by_read(self) -> tuple[float, ...]:
        """The times by the width that is read, where everything is made."""
        return tuple(row[-1] for row in self.ms)

    @property
    def worth_making(self) -> tuple[int, ...]:
        """The widths to make that are the last before a rise: a narrower one would save, a wider
        one would cost.
        """
        return _last_before_rises(self.makes, self.by_made)

    @property
    def worth_reading(self) -> tuple[int, ...]:
        """The same of the widths that are read."""
        return _last_before_rises(self.reads, self.by_read)

    @property
    def title(self) -> str:
        """Which layer, and where it was measured."""
        return f"{self.likeness} on {self.machine} · {counted(self.threads, 'thread')}"

    def table(self) -> list[dict[str, str]]:
        """A row a width that is made, the narrowest first, and under them the widths that are
        read.
        """
        rows = [
            _row("makes", *one, self.worth_making, self.by_made[-1])
            for one in zip(self.makes, self.by_made, strict=True)
        ]
        if len(self.reads) > 1:
            rows += [
                _row("reads", *one, self.worth_reading, self.by_read[-1])
                for one in zip(self.reads, self.by_read, strict=True)
            ]
        return rows

    def __str__(self) -> str:
        return "\n".join([self.title, *text_table(self.table(), _WORDS)])

    def __repr__(self) -> str:
        return f"Staircase({self.likeness}: {counted(len(self.reads) * len(self.makes), 'width')})"

    def _repr_html_(self) -> str:
        return html_table((self.title,), self.table(), _WORDS, lambda row: bool(row["note"]))


class WholeLatency(Record):
    """What a whole model takes: as it was at first, as it is, and with every group as narrow as it
    may get.
    """

    likeness: str
    original_ms: float
    ms: float
    narrow_ms: float | None = Field(
        default=None, description="None where the narrow model does not run"
    )


class StaircaseTable(Record):
    """What was measured on one machine with one number of threads; kept between runs."""

    machine: str
    threads: int
    torch_version: str
    rows: tuple[Staircase, ...] = ()
    wholes: tuple[WholeLatency, ...] = ()

    def find(self, likeness: str, reads: int, makes: int) -> Staircase | None:
        """The staircase of a layer as wide as this, if it was measured."""
        wanted = likeness, reads, makes
        return next(
            (row for row in self.rows if (row.likeness, row.reads[-1], row.makes[-1]) == wanted),
            None,
        )

    def whole(self, likeness: str) -> WholeLatency | None:
        """What a whole model took, if it was measured."""
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


_WORDS = ("side", "note")


def _last_before_rises(widths: tuple[int, ...], times: tuple[float, ...]) -> tuple[int, ...]:
    """The widest always; below it each that saves, against every wider one."""
    found, least = [widths[-1]], times[-1]
    for width, ms in zip(widths[-2::-1], times[-2::-1], strict=True):
        if ms < least * (1 - RISE):
            found.append(width)
            least = ms
    return tuple(reversed(found))


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

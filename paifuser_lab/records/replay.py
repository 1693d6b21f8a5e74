"""Recorded requests under other allocator settings, and why memory ran out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .record import Record
from .table import TableRecord
from .text import counted, readable_bytes, readable_ratio, readable_share

if TYPE_CHECKING:
    import pandas


class ReplayRow(Record):
    """The simulated allocator under one set of settings."""

    settings: str
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    device_calls: int  # segments taken from and given back to the device, or pages mapped
    refused: int = 0  # requests that did not fit under the limit

    @property
    def overhead(self) -> float:
        """The share of the peak of reserved memory that was not allocated at the most."""
        reserved = self.peak_reserved_bytes
        return 1 - self.peak_allocated_bytes / reserved if reserved else 0.0


class Replay(TableRecord):
    """The recorded requests of a snapshot under several settings; the first are its own."""

    text_columns = ("settings", "what", "outcome")

    snapshot: str
    device: int
    requests: int
    recorded_peak_reserved_bytes: int
    limit_bytes: int | None = None
    rows: tuple[ReplayRow, ...]

    @property
    def agreement(self) -> float | None:
        """The simulated peak under the snapshot's own settings, relative to the recorded one."""
        if not self.rows or not self.recorded_peak_reserved_bytes:
            return None
        return self.rows[0].peak_reserved_bytes / self.recorded_peak_reserved_bytes

    @property
    def best(self) -> ReplayRow | None:
        """The settings that reserve least and refuse nothing more than others."""
        return min(self.rows, key=lambda row: (row.refused, row.peak_reserved_bytes), default=None)

    @property
    def title(self) -> str:
        """The snapshot, the device and the number of requests, in a line."""
        return (
            f"{self.snapshot}, device {self.device} · {counted(self.requests, 'request')} replayed"
            f" · {readable_bytes(self.recorded_peak_reserved_bytes)} reserved at the peak"
        )

    @property
    def sentence(self) -> str:
        """How near the simulator is, and which settings reserve least."""
        if self.agreement is None or self.best is None:
            return "The snapshot holds no request to replay."
        own, best = self.rows[0], self.best
        near = (
            f"Under its own settings the simulator reserves {readable_ratio(self.agreement)} "
            "times what was recorded."
        )
        if (best.refused, best.peak_reserved_bytes) >= (own.refused, own.peak_reserved_bytes):
            return f"{near} No other settings reserve less."
        less = 1 - best.peak_reserved_bytes / max(1, own.peak_reserved_bytes)
        if less > 0:
            return f"{near} Least is reserved with {best.settings}: {readable_share(less)} less."
        return f"{near} Fewest requests are refused with {best.settings}."

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per set of settings."""
        import pandas

        return pandas.DataFrame([row.model_dump() | {"overhead": row.overhead}
                                 for row in self.rows])  # fmt: skip

    def table(self) -> list[dict[str, str]]:
        """The rows as text."""
        return [
            {
                "settings": row.settings,
                "reserved": readable_bytes(row.peak_reserved_bytes),
                "allocated": readable_bytes(row.peak_allocated_bytes),
                "not allocated": readable_share(row.overhead),
                "device calls": str(row.device_calls),
                "refused": str(row.refused),
            }
            for row in self.rows
        ]

    @property
    def captions(self) -> tuple[str, ...]:
        """The title, and what the record says."""
        return (self.title, self.sentence)


class Remedy(Record):
    """Something that might have made a refused request fit."""

    what: str
    fits: bool
    outcome: str


class OutOfMemory(TableRecord):
    """A request that the device refused, what memory was like, and what would have helped."""

    text_columns = ("settings", "what", "outcome")

    time_ms: float
    requested_bytes: int
    site: str
    free_on_device_bytes: int
    reserved_bytes: int
    allocated_bytes: int
    largest_free_bytes: int
    remedies: tuple[Remedy, ...] = ()

    @property
    def free_in_segments_bytes(self) -> int:
        """Free memory that the allocator held and could not use for the request."""
        return max(0, self.reserved_bytes - self.allocated_bytes)

    @property
    def sentence(self) -> str:
        """What was asked for, what there was, and what would have helped."""
        helped = [remedy.what for remedy in self.remedies if remedy.fits]
        helps = f" It would have fitted {'; or '.join(helped)}." if helped else (
            " None of the remedies tried here would have made it fit."
        )  # fmt: skip
        return (
            f"Out of memory at {self.time_ms:.4g} ms: {self.site} asked for "
            f"{readable_bytes(self.requested_bytes)}. The device had "
            f"{readable_bytes(self.free_on_device_bytes)} left; of the "
            f"{readable_bytes(self.reserved_bytes)} that torch held, "
            f"{readable_bytes(self.free_in_segments_bytes)} were free, the largest piece "
            f"{readable_bytes(self.largest_free_bytes)}.{helps}"
        )

    def table(self) -> list[dict[str, str]]:
        """The remedies as text."""
        return [
            {"what": remedy.what, "fits": "yes" if remedy.fits else "no", "outcome": remedy.outcome}
            for remedy in self.remedies
        ]

    @property
    def title(self) -> str:
        """The request that was refused."""
        return self.sentence

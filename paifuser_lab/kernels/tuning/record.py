"""The attempts of a search and its winner."""

from __future__ import annotations

from ...records import Record

INTERRUPTED = "it was interrupted"


class Attempt(Record):
    """A measured tile: its time, or why it has none."""

    tile: dict[str, int]
    ms: float | None = None
    failure: str = ""

    def __str__(self) -> str:
        return f"{describe_tile(self.tile)}: {self.failure or f'{self.ms:.4g} ms'}"


class Search(Record):
    """Every attempt, in order."""

    attempts: tuple[Attempt, ...]
    ended_by: str

    @property
    def ranked(self) -> tuple[Attempt, ...]:
        """The successful attempts, fastest first."""
        measured = (attempt for attempt in self.attempts if attempt.ms is not None)
        return tuple(sorted(measured, key=lambda attempt: attempt.ms or 0.0))

    @property
    def best(self) -> Attempt | None:
        """The fastest, if any was measured."""
        return self.ranked[0] if self.ranked else None

    def after(self, count: int) -> Search:
        """The search as it was after that many attempts."""
        return Search(attempts=self.attempts[:count], ended_by=f"{count} attempts")


class Winner(Record):
    """The winner of the finals, and the default's time in the same rounds."""

    tile: dict[str, int]
    ms: float
    default_ms: float
    search: Search

    def __str__(self) -> str:
        tried = len(self.search.attempts)
        gain = (
            f"{self.default_ms / self.ms:.2f} times as fast as the default"
            if self.ms < self.default_ms
            else "the default"
        )
        return (
            f"{describe_tile(self.tile)}: {self.ms * 1e3:.1f} µs, {gain}; {tried} tiles tried, "
            f"then {self.search.ended_by}"
        )


def describe_tile(tile: dict[str, int]) -> str:
    """A tile's names and numbers as text."""
    return ", ".join(f"{name} {number}" for name, number in tile.items()) or "one tile"

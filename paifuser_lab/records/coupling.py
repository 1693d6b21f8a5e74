"""Coupled channels: which dimensions of which weights are pruned together, and which cannot be."""

from __future__ import annotations

from typing import Literal

from .record import Record
from .text import counted, html_table
from .workload_name import AboutWorkload


class Member(Record):
    """One dimension of one weight: rows produce the channels, columns read them, a buffer holds one
    value for each.
    """

    layer: str
    parameter: str
    dimension: int
    kind: Literal["rows", "columns", "buffer"]

    @property
    def weight(self) -> str:
        """The weight's dotted path."""
        return f"{self.layer}.{self.parameter}" if self.layer else self.parameter


class ChannelGroup(Record):
    """Units that are pruned one by one, each from all members at once; a unit is one channel, or
    the channels of an attention head.
    """

    name: str
    width: int
    unit: int
    members: tuple[Member, ...]
    pinned: str | None = None

    @property
    def channels(self) -> int:
        """The number of channels of all units."""
        return self.width * self.unit

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that produce the channels."""
        return tuple(
            dict.fromkeys(member.layer for member in self.members if member.kind == "rows")
        )

    def __str__(self) -> str:
        of = f" of {counted(self.unit, 'channel')}" if self.unit > 1 else ""
        state = f" · stays: {self.pinned}" if self.pinned else ""
        return (
            f"{self.name}: {counted(self.width, 'unit')}{of} in "
            f"{counted(len(self.members), 'weight')}{state}"
        )


class Coupling(Record):
    """Every group of channels of a model."""

    workload: AboutWorkload
    groups: tuple[ChannelGroup, ...]

    @property
    def title(self) -> str:
        """The workload and its number of groups, in a line."""
        free = sum(group.pinned is None for group in self.groups)
        return (
            f"{self.workload}: {counted(len(self.groups), 'group')} of channels, {free} of which "
            "can lose some"
        )

    def table(self) -> list[dict[str, str]]:
        """A row per group."""
        rows = [
            {
                "layer": group.name,
                "units": str(group.width),
                "channels": str(group.channels),
                "weights": str(len(group.members)),
                "note": group.pinned or "",
            }
            for group in self.groups
        ]
        return rows or [{"layer": "nothing is coupled"}]

    def __str__(self) -> str:
        return "\n".join([self.title, *map(str, self.groups)])

    def __repr__(self) -> str:
        return f"Coupling({self.title})"

    def _repr_html_(self) -> str:
        return html_table((self.title,), self.table(), ("layer", "note"))

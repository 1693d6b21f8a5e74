"""Channels that are pruned together, and what fewer of them cost: predicted, and measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor, inf, prod
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from .record import AboutWorkload, Record, TableRecord
from .table import Columns
from .text import counted, readable_count, three_figures


class Member(Record):
    """A dimension of a weight: rows make the channels, columns read them, a buffer goes along."""

    layer: str
    parameter: str
    dimension: int
    kind: Literal["rows", "columns", "buffer"]

    @property
    def weight(self) -> str:
        """The weight's dotted path."""
        return f"{self.layer}.{self.parameter}" if self.layer else self.parameter


class ChannelGroup(Record):
    """Units pruned one by one from all members: channels, or those of an attention head."""

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


class Coupling(TableRecord):
    """Every group of channels of a model."""

    columns: ClassVar[Columns] = {
        "layer": "name",
        "units": "width",
        "channels": "channels",
        "weights": lambda group: str(len(group.members)),
        "note": lambda group: group.pinned or "",
    }
    text_columns = ("layer", "note")
    row_field = "groups"

    workload: AboutWorkload
    groups: tuple[ChannelGroup, ...]

    @property
    def title(self) -> str:
        free = sum(group.pinned is None for group in self.groups)
        return (
            f"{self.workload}: {counted(len(self.groups), 'group')} of channels, {free} of which "
            "can lose some"
        )

    def table(self) -> list[dict[str, str]]:
        return super().table() or [{"layer": "nothing is coupled"}]


Widths = Sequence[int]  # the number of units kept in each group


class Length(Record):
    """A dimension's length: a fixed part, and for some groups so many elements a kept unit."""

    fixed: int
    terms: tuple[tuple[int, int], ...]  # group, elements per unit

    def at(self, widths: Widths) -> int:
        """The length with these numbers of kept units."""
        return self.fixed + sum(elements * widths[group] for group, elements in self.terms)


class CutWeights(Record):
    """Weights of the same shape: `times` the product of some lengths."""

    times: int
    lengths: tuple[int, ...]


class CutLayer(Record):
    """A layer whose work is proportional to the product of some lengths.

    `stairs` are measured latencies, if there are any: (the first length, ms), the shortest first,
    interpolated linearly.
    """

    layer: str
    flops: int
    ms: float
    lengths: tuple[int, ...]
    stairs: tuple[tuple[float, float], ...] = ()


class Foretold(NamedTuple):
    """The predicted parameters, FLOPs and latency of a model."""

    parameters: int
    flops: float
    latency_ms: float


class CutCost(Record):
    """A cost model by the number of units kept of each group of channels.

    Parameters and the FLOPs of layers with weights are exact. A layer's `ms` follow its measured
    stairs if there are any, else its FLOPs; the rest of `latency_ms`, such as the overhead of
    calling layers, stays constant.
    """

    workload: AboutWorkload
    groups: tuple[ChannelGroup, ...]
    lengths: tuple[Length, ...]
    weights: tuple[CutWeights, ...]
    layers: tuple[CutLayer, ...]
    other_parameters: int
    other_flops: int
    latency_ms: float

    @property
    def full(self) -> tuple[int, ...]:
        """The widths with every unit kept."""
        return tuple(group.width for group in self.groups)

    def widths(self, removed: Mapping[str, float]) -> tuple[int, ...]:
        """The widths that `prune` keeps for these ratios; the last layer of a group counts."""
        kept = list(self.full)
        for layer, ratio in removed.items():
            for index, group in enumerate(self.groups):
                if group.pinned is None and layer in group.layers:
                    kept[index] = min(group.width, max(1, floor(group.width * (1 - ratio) + 0.5)))
        return tuple(kept)

    def predict(self, widths: Widths) -> Foretold:
        """Parameters, FLOPs and latency with these numbers of kept units."""
        now, full = self._lengths(widths), self._lengths(self.full)
        parameters = self.other_parameters + sum(
            weight.times * prod(now[length] for length in weight.lengths) for weight in self.weights
        )
        flops = self.other_flops + sum(
            layer.flops * _share(layer.lengths, now, full) for layer in self.layers
        )
        saved = sum(layer.ms - _ms(layer, now, full) for layer in self.layers)
        return Foretold(parameters, flops, max(0.0, self.latency_ms - saved))

    def with_stairs(self, stairs: Mapping[str, Sequence[tuple[float, float]]]) -> CutCost:
        """A copy with measured latencies for some layers: (output length, ms) each."""
        layers = (
            row.model_copy(update={"stairs": tuple(sorted(stairs.get(row.layer, row.stairs)))})
            for row in self.layers
        )
        return self.model_copy(update={"layers": tuple(layers)})

    @property
    def title(self) -> str:
        """The unpruned model's cost and number of groups, in a line."""
        whole = self.predict(self.full)
        return (
            f"{self.workload}: {readable_count(whole.parameters)} parameters, "
            f"{readable_count(round(whole.flops))} FLOPs, "
            f"{three_figures(whole.latency_ms)} ms by the width of {len(self.groups)} groups of "
            "channels"
        )

    def _lengths(self, widths: Widths) -> tuple[int, ...]:
        return tuple(length.at(widths) for length in self.lengths)


def _share(lengths: Iterable[int], now: Sequence[int], full: Sequence[int]) -> float:
    return prod(now[length] / full[length] for length in lengths)


def _ms(layer: CutLayer, now: Sequence[int], full: Sequence[int]) -> float:
    """A layer's latency: by its stairs for the first length, proportional for the others."""
    if not layer.stairs or not layer.lengths:
        return layer.ms * _share(layer.lengths, now, full)
    first, *others = layer.lengths
    whole = _interpolated(layer.stairs, full[first])
    step = _interpolated(layer.stairs, now[first]) / whole if whole > 0 else 1.0
    return layer.ms * step * _share(others, now, full)


def _interpolated(stairs: Sequence[tuple[float, float]], length: float) -> float:
    """The latency at a length, interpolated linearly; constant beyond the ends."""
    below_at, below_ms = -inf, stairs[0][1]
    for above, ms in stairs:
        if length <= above:
            return (
                ms
                if below_at == -inf
                else below_ms + (ms - below_ms) * (length - below_at) / (above - below_at)
            )
        below_at, below_ms = above, ms
    return below_ms


RISE = 0.03  # of the latency; smaller differences are noise


class Staircase(TableRecord):
    """The latency of a layer by its input channels (`reads`) and output channels (`makes`)."""

    text_columns = ("side", "note")

    likeness: str  # the operator, its options and its input shape without channels
    machine: str
    threads: int
    torch_version: str
    # rising; just one if the layer has as many input as output channels
    reads: tuple[int, ...] = Field(min_length=1)
    makes: tuple[int, ...] = Field(min_length=1)  # rising
    ms: tuple[tuple[float, ...], ...]  # a row per number of input channels

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
        return f"{self.likeness} on {self.machine} · {counted(self.threads, 'thread')}"

    def table(self) -> list[dict[str, str]]:
        """A row per number of output channels, the fewest first, then of input channels."""
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
        return bool(row["note"])


class WholeLatency(Record):
    """A whole model's latency: original, current, and with every group at its narrowest."""

    likeness: str
    original_ms: float
    ms: float
    narrow_ms: float | None = None  # None if the narrow model does not run


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
        "ms": three_figures(ms),
        "of the whole": f"{ms / full_ms:.0%}" if full_ms else "–",
        "note": "the last before a rise" if width in worth else "",
    }

"""The memory that one call holds over time, by layer, and its buffers packed into one arena."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Literal, Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from .record import AboutWorkload, Frame, Record, TableRecord, frame_of_columns
from .text import counted, readable_bytes, three_figures

HeldKind = Literal["weights", "activations", "workspace"]
MAX_ROWS = 15


class Held(Record):
    """The memory that one layer holds, by kind; an operator frees its workspace before it ends."""

    layer: str
    kind: HeldKind
    held_bytes: int


class MemoryTimeline(TableRecord):
    """Every allocation of one call, as columns: time, bytes (negative when freed), index in
    `layers`, and kind.

    Weights are allocated before the call and throughout it: `weights_bytes` has them by layer, and
    no event does.
    """

    text_columns = ("layer", "kind")

    workload: AboutWorkload
    machine: str
    device: str
    duration_ms: float
    layers: tuple[str, ...]
    weights_bytes: tuple[int, ...]
    time_ms: tuple[float, ...]
    change_bytes: tuple[int, ...]
    layer_index: tuple[int, ...]
    is_workspace: tuple[bool, ...]
    note: str = ""

    @cached_property
    def alive_bytes(self) -> tuple[int, ...]:
        """The bytes allocated after each event, without the weights."""
        return tuple(accumulate(self.change_bytes))

    @cached_property
    def peak_event(self) -> int:
        """The event with the peak after it; -1 if the call allocates nothing."""
        alive = self.alive_bytes
        return max(range(len(alive)), key=lambda event: alive[event], default=-1)

    @property
    def peak_bytes(self) -> int:
        """The peak memory of the call, without the weights."""
        return self.alive_bytes[self.peak_event] if self.time_ms else 0

    @property
    def peak_ms(self) -> float:
        """The time of the peak."""
        return self.time_ms[self.peak_event] if self.time_ms else 0.0

    @property
    def total_weights_bytes(self) -> int:
        """The bytes of all parameters and buffers."""
        return sum(self.weights_bytes)

    @cached_property
    def at_peak(self) -> tuple[Held, ...]:
        """What is allocated at the peak."""
        return self.held_at(self.peak_event)

    def held_at(self, event: int) -> tuple[Held, ...]:
        """What is allocated after an event, including weights, the largest first."""
        held: dict[tuple[int, HeldKind], int] = defaultdict(int)
        for index, count in enumerate(self.weights_bytes):
            held[index, "weights"] = count
        for index in range(event + 1):
            held[self.layer_index[index], self._kind(index)] += self.change_bytes[index]
        rows = [
            Held(layer=self.layers[index], kind=kind, held_bytes=count)
            for (index, kind), count in held.items()
            if count
        ]
        return tuple(sorted(rows, key=lambda row: -row.held_bytes))

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The few groups of layers that allocate most, and the index of each layer's group."""
        allocated = list(self.weights_bytes)
        for index, count in zip(self.layer_index, self.change_bytes, strict=True):
            allocated[index] += max(0, count)
        return layer_groups(self.layers, allocated)

    @property
    def title(self) -> str:
        return (
            f"{self.workload} on {self.machine} · {readable_bytes(self.peak_bytes)} at the peak"
            f" + {readable_bytes(self.total_weights_bytes)} of weights"
        )

    @property
    def sentence(self) -> str:
        weights = f"The weights take {readable_bytes(self.total_weights_bytes)} all the time."
        own = [row for row in self.at_peak if row.kind != "weights"]
        if not own:
            return f"The call itself takes nothing that torch gave out. {weights}"
        largest, workspace = own[0], sum(row.held_bytes for row in own if row.kind == "workspace")
        owners = counted(len({row.layer for row in own}), "layer")
        spaces = (
            f", {readable_bytes(workspace)} of it workspace inside operators" if workspace else ""
        )
        return (
            f"Most is alive {three_figures(self.peak_ms)} of "
            f"{three_figures(self.duration_ms)} ms into the call: "
            f"{readable_bytes(self.peak_bytes)} "
            f"of {owners}{spaces}. The largest part is {_owner(largest)}, "
            f"{readable_bytes(largest.held_bytes)} "
            f"({largest.held_bytes / self.peak_bytes:.0%}). {weights}"
        )

    @property
    def frame(self) -> Frame:
        """A row per event."""
        return frame_of_columns(
            {
                "time_ms": self.time_ms,
                "change_bytes": self.change_bytes,
                "alive_bytes": self.alive_bytes,
                "layer": [self.layers[index] for index in self.layer_index],
                "kind": [self._kind(event) for event in range(len(self.time_ms))],
            }
        )

    def table(self) -> list[dict[str, str]]:
        """What is allocated at the peak, as text."""
        whole = self.peak_bytes + self.total_weights_bytes
        return [
            {
                "layer": row.layer or self.workload,
                "kind": row.kind,
                "held": readable_bytes(row.held_bytes),
                "share": f"{row.held_bytes / whole:.1%}",
            }
            for row in self.at_peak[:MAX_ROWS]
        ] or [{"layer": self.workload, "kind": "nothing", "held": readable_bytes(0), "share": "–"}]

    def _kind(self, event: int) -> HeldKind:
        return "workspace" if self.is_workspace[event] else "activations"


def _owner(row: Held) -> str:
    return f"the {row.kind} of {row.layer or 'the model itself'}"


# Many layers as a few groups: branches of the module tree, split where most is allocated; small
# ones are merged.

MAX_GROUPS = 7
OTHERS = "other layers"


def layer_groups(
    layers: Sequence[str], sizes: Sequence[float], most: int = MAX_GROUPS
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """A few groups in the layers' order, small ones merged last; each layer's group's index."""
    depths = _group_depths([layer.split(".") for layer in layers], sizes, most)
    heads = [
        ".".join(layer.split(".")[:depth]) for layer, depth in zip(layers, depths, strict=True)
    ]
    total: dict[str, float] = defaultdict(float)
    for head, size in zip(heads, sizes, strict=True):
        total[head] += size
    kept = set(sorted(total, key=lambda head: -total[head])[: most - (len(total) > most)])
    names = [head for head in dict.fromkeys(heads) if head in kept] + [OTHERS] * (
        len(total) > len(kept)
    )
    return tuple(names), tuple(names.index(head) if head in kept else len(kept) for head in heads)


def _group_depths(paths: list[list[str]], sizes: Sequence[float], most: int) -> list[int]:
    """How many parts of a path name its group: the largest branch is split while few are."""
    depths = [1] * len(paths)
    closed: set[tuple[str, ...]] = set()
    while True:
        groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for index, path in enumerate(paths):
            groups[tuple(path[: depths[index]])].append(index)
        divisible = [
            (sum(sizes[index] for index in members), head)
            for head, members in groups.items()
            if head not in closed and any(len(paths[index]) > len(head) for index in members)
        ]
        if not divisible or len(groups) >= most:
            return depths
        _, head = max(divisible)
        parts = {tuple(paths[index][: len(head) + 1]) for index in groups[head]}
        if len(groups) - 1 + len(parts) > most:
            closed.add(head)
            continue
        for index in groups[head]:
            depths[index] = min(len(paths[index]), len(head) + 1)


PackingMethod = Literal["best fit by size", "best fit by lifetime", "integer program"]


class PackedBuffer(Record):
    """A buffer: who makes it, its first and last operator, and its address in the arena."""

    layer: str
    operator: str
    size_bytes: PositiveInt
    begin: NonNegativeInt
    end: NonNegativeInt
    offset_bytes: NonNegativeInt

    @property
    def top_bytes(self) -> int:
        """The address after its last byte."""
        return self.offset_bytes + self.size_bytes


class MemoryPlan(TableRecord):
    """Where each buffer of one call lies in one arena; operators are counted from 0."""

    text_columns = ("layer", "operator")
    row_field = "buffers"

    workload: AboutWorkload
    machine: str
    device: str
    operators: NonNegativeInt
    buffers: tuple[PackedBuffer, ...]
    method: PackingMethod  # how the arena was packed
    best_fit_bytes: NonNegativeInt  # the arena by the better best fit alone
    is_optimal: bool  # whether no smaller arena exists, which is proven
    referenced_bytes: NonNegativeInt  # the largest sum of buffers that the model refers to at once
    # the peak of torch's allocator in a call, with workspace inside operators
    held_bytes: NonNegativeInt
    note: str = ""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for buffer in self.buffers:
            if not buffer.begin <= buffer.end < self.operators:
                raise ValueError(
                    f"the buffer of '{buffer.layer}' is alive from operator {buffer.begin} to "
                    f"{buffer.end}, of {self.operators}"
                )
        if pair := overlapping(self.buffers):
            first, second = pair
            raise ValueError(
                f"the buffers of '{first.layer}' and '{second.layer}' share memory while both are "
                "alive"
            )
        return self

    @cached_property
    def alive_bytes(self) -> tuple[int, ...]:
        """The sum of the buffers alive at each operator."""
        changes = [0] * (self.operators + 1)
        for buffer in self.buffers:
            changes[buffer.begin] += buffer.size_bytes
            changes[buffer.end + 1] -= buffer.size_bytes
        return tuple(accumulate(changes))[: self.operators]

    @cached_property
    def fullest(self) -> int:
        """The operator at which most is alive."""
        return max(range(self.operators), key=lambda index: self.alive_bytes[index], default=0)

    @property
    def bound_bytes(self) -> int:
        """The largest sum of buffers alive at once: no arena is smaller."""
        return self.alive_bytes[self.fullest] if self.operators else 0

    @cached_property
    def packed_bytes(self) -> int:
        """The size of the arena."""
        return max((buffer.top_bytes for buffer in self.buffers), default=0)

    @property
    def at_fullest(self) -> tuple[PackedBuffer, ...]:
        """The buffers alive where most is alive, the largest first."""
        alive = (buffer for buffer in self.buffers if buffer.begin <= self.fullest <= buffer.end)
        return tuple(sorted(alive, key=lambda buffer: -buffer.size_bytes))

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The few groups of layers whose buffers are largest, and the index of each buffer's."""
        sizes: dict[str, int] = {}
        for buffer in self.buffers:
            sizes[buffer.layer] = sizes.get(buffer.layer, 0) + buffer.size_bytes
        names, group_of = layer_groups(list(sizes), list(sizes.values()))
        index_of = dict(zip(sizes, group_of, strict=True))
        return names, tuple(index_of[buffer.layer] for buffer in self.buffers)

    @property
    def title(self) -> str:
        return (
            f"{self.workload} on {self.machine} · {counted(len(self.buffers), 'buffer')} in "
            f"{readable_bytes(self.packed_bytes)} · torch held {readable_bytes(self.held_bytes)}"
        )

    @property
    def sentence(self) -> str:
        if not self.buffers:
            return "The call makes no buffer that torch's operators return."
        proof = ", and no arena is smaller" if self.is_optimal else ""
        ratio = (
            f", {self.held_bytes / self.packed_bytes:.2f} × the arena" if self.packed_bytes else ""
        )
        return (
            f"At least {readable_bytes(self.bound_bytes)} are alive at once, at operator "
            f"{self.fullest + 1} of {self.operators}; an arena of "
            f"{readable_bytes(self.packed_bytes)} holds every buffer ({self.method}{proof}). The "
            f"model refers to {readable_bytes(self.referenced_bytes)} at once, and torch's "
            f"allocator held {readable_bytes(self.held_bytes)}{ratio}."
        )

    def table(self) -> list[dict[str, str]]:
        """The buffers alive where most is alive, as text."""
        return [
            {
                "layer": buffer.layer or self.workload,
                "operator": buffer.operator,
                "size": readable_bytes(buffer.size_bytes),
                "from": str(buffer.begin + 1),
                "to": str(buffer.end + 1),
                "address": readable_bytes(buffer.offset_bytes),
            }
            for buffer in self.at_fullest[:MAX_ROWS]
        ]


def overlapping(
    buffers: Sequence[PackedBuffer],
) -> tuple[PackedBuffer, PackedBuffer] | None:
    """Two buffers that share an address while both are alive; None if there are none."""
    alive: list[PackedBuffer] = []
    for buffer in sorted(buffers, key=lambda buffer: buffer.begin):
        alive = [other for other in alive if other.end >= buffer.begin]
        for other in alive:
            if other.offset_bytes < buffer.top_bytes and buffer.offset_bytes < other.top_bytes:
                return other, buffer
        alive.append(buffer)
    return None

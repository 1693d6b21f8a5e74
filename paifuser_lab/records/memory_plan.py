"""The buffers of one call packed into one arena, the least that they need, and what torch held."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from .memory import layer_groups
from .record import Record
from .table import TableRecord
from .text import counted, readable_bytes
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas

PackingMethod = Literal["best fit by size", "best fit by lifetime", "integer program"]
MAX_ROWS = 15


class PackedBuffer(Record):
    """A buffer of the call: the layer and operator that make it, the operators between which it is
    alive, both included, and its address in the arena.
    """

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

    workload: AboutWorkload
    machine: str
    device: str
    operators: NonNegativeInt
    buffers: tuple[PackedBuffer, ...]
    method: PackingMethod = Field(description="how the arena was packed")
    best_fit_bytes: NonNegativeInt = Field(description="the arena by the better best fit alone")
    is_optimal: bool = Field(description="whether no smaller arena exists, which is proven")
    referenced_bytes: NonNegativeInt = Field(
        description="the largest sum of buffers that the model refers to at once"
    )
    held_bytes: NonNegativeInt = Field(
        description="the peak of torch's allocator in a call, with workspace inside operators"
    )
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
        """The workload, the machine, the arena and what torch held, in a line."""
        return (
            f"{self.workload} on {self.machine} · {counted(len(self.buffers), 'buffer')} in "
            f"{readable_bytes(self.packed_bytes)} · torch held {readable_bytes(self.held_bytes)}"
        )

    @property
    def sentence(self) -> str:
        """A sentence on the arena against the lower bound and what torch held."""
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

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per buffer."""
        import pandas

        names = list(PackedBuffer.model_fields)
        rows = [{name: getattr(buffer, name) for name in names} for buffer in self.buffers]
        return pandas.DataFrame(rows, columns=names)

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

    @property
    def captions(self) -> tuple[str, ...]:
        """The title, and what the record says."""
        return (self.title, self.sentence)

    def __repr__(self) -> str:
        return f"MemoryPlan({self.workload}: {readable_bytes(self.packed_bytes)})"


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

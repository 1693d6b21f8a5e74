"""What one call holds in memory over its time, which layer took it, and what is alive when it is
most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from .record import Record
from .text import counted, html_table, readable_bytes, text_table
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas

HeldKind = Literal["weights", "activations", "workspace"]
MOST_ROWS = 15


class Held(Record):
    """What one layer has alive of one kind; a workspace is what an operator gives back before it
    ends.
    """

    layer: str
    kind: HeldKind
    held_bytes: int


_WORDS = ("layer", "kind")


class MemoryTimeline(Record):
    """Every allocation of one call, as columns: when, how many bytes (less than 0 gives back),
    whose of `layers`, and what for.

    Weights lie there before the call and all through it: `weights_bytes` has them layer by layer,
    and no event does.
    """

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

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.layers) != len(self.weights_bytes):
            raise ValueError(
                f"{len(self.layers)} layers have {len(self.weights_bytes)} figures of weights"
            )
        if (
            len(
                {
                    len(one)
                    for one in (
                        self.time_ms,
                        self.change_bytes,
                        self.layer_index,
                        self.is_workspace,
                    )
                }
            )
            != 1
        ):
            raise ValueError("the columns of its events differ in length")
        if not all(0 <= index < len(self.layers) for index in self.layer_index):
            raise ValueError("an event belongs to a layer that is not listed")
        return self

    @cached_property
    def alive_bytes(self) -> tuple[int, ...]:
        """What the call has alive after each event, beyond the weights."""
        return tuple(accumulate(self.change_bytes))

    @cached_property
    def peak_event(self) -> int:
        """The event after which most is alive; -1 where the call takes nothing."""
        alive = self.alive_bytes
        return max(range(len(alive)), key=lambda event: alive[event], default=-1)

    @property
    def peak_bytes(self) -> int:
        """The most that the call has alive at once, beyond the weights."""
        return self.alive_bytes[self.peak_event] if self.time_ms else 0

    @property
    def peak_ms(self) -> float:
        """When that is."""
        return self.time_ms[self.peak_event] if self.time_ms else 0.0

    @property
    def total_weights_bytes(self) -> int:
        """Parameters and buffers."""
        return sum(self.weights_bytes)

    @cached_property
    def at_peak(self) -> tuple[Held, ...]:
        """The map: what is alive at the peak."""
        return self.held_at(self.peak_event)

    def held_at(self, event: int) -> tuple[Held, ...]:
        """What is alive after an event, the weights too, the largest first."""
        held: dict[tuple[int, HeldKind], int] = defaultdict(int)
        for index, count in enumerate(self.weights_bytes):
            held[index, "weights"] = count
        for place in range(event + 1):
            held[self.layer_index[place], self._kind(place)] += self.change_bytes[place]
        rows = [
            Held(layer=self.layers[index], kind=kind, held_bytes=count)
            for (index, kind), count in held.items()
            if count
        ]
        return tuple(sorted(rows, key=lambda row: -row.held_bytes))

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """A few groups of layers that take most, and each layer's place among them."""
        taken = list(self.weights_bytes)
        for index, count in zip(self.layer_index, self.change_bytes, strict=True):
            taken[index] += max(0, count)
        return layer_groups(self.layers, taken)

    @property
    def title(self) -> str:
        """What was watched, where, and how much it took."""
        return (
            f"{self.workload} on {self.machine} · {readable_bytes(self.peak_bytes)} at the peak"
            f" + {readable_bytes(self.total_weights_bytes)} of weights"
        )

    @property
    def sentence(self) -> str:
        """What dominates."""
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
            f"Most is alive {self.peak_ms:.3g} of {self.duration_ms:.3g} ms into the call: "
            f"{readable_bytes(self.peak_bytes)} "
            f"of {owners}{spaces}. The largest part is {_whose(largest)}, "
            f"{readable_bytes(largest.held_bytes)} "
            f"({largest.held_bytes / self.peak_bytes:.0%}). {weights}"
        )

    @property
    def frame(self) -> pandas.DataFrame:
        """A row an event."""
        import pandas

        columns = {
            "time_ms": self.time_ms,
            "change_bytes": self.change_bytes,
            "alive_bytes": self.alive_bytes,
            "layer": [self.layers[index] for index in self.layer_index],
            "kind": [self._kind(place) for place in range(len(self.time_ms))],
        }
        return pandas.DataFrame(columns)

    def table(self) -> list[dict[str, str]]:
        """What is alive at the peak, as a person reads it."""
        whole = self.peak_bytes + self.total_weights_bytes
        return [
            {
                "layer": row.layer or self.workload,
                "kind": row.kind,
                "held": readable_bytes(row.held_bytes),
                "share": f"{row.held_bytes / whole:.1%}",
            }
            for row in self.at_peak[:MOST_ROWS]
        ] or [{"layer": self.workload, "kind": "nothing", "held": readable_bytes(0), "share": "–"}]

    def __str__(self) -> str:
        return "\n".join([self.title, self.sentence, *text_table(self.table(), _WORDS)])

    def __repr__(self) -> str:
        return f"MemoryTimeline({self.workload}: {readable_bytes(self.peak_bytes)} at the peak)"

    def _repr_html_(self) -> str:
        return html_table((self.title, self.sentence), self.table(), _WORDS)

    def _kind(self, event: int) -> HeldKind:
        return "workspace" if self.is_workspace[event] else "activations"


def _whose(row: Held) -> str:
    return f"the {row.kind} of {row.layer or 'the model itself'}"


# Many layers as a few groups: branches of the tree, opened where most is; the small ones together.

MOST_GROUPS = 7
OTHERS = "other layers"


def layer_groups(
    layers: Sequence[str], sizes: Sequence[float]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The groups in the order in which the layers come, the small ones last, and each layer's place
    among them; `sizes` says what matters.
    """
    depths = _opened([layer.split(".") for layer in layers], sizes)
    heads = [
        ".".join(layer.split(".")[:depth]) for layer, depth in zip(layers, depths, strict=True)
    ]
    total: dict[str, float] = defaultdict(float)
    for head, size in zip(heads, sizes, strict=True):
        total[head] += size
    kept = set(
        sorted(total, key=lambda head: -total[head])[: MOST_GROUPS - (len(total) > MOST_GROUPS)]
    )
    names = [head for head in dict.fromkeys(heads) if head in kept] + [OTHERS] * (
        len(total) > len(kept)
    )
    return tuple(names), tuple(names.index(head) if head in kept else len(kept) for head in heads)


def _opened(paths: list[list[str]], sizes: Sequence[float]) -> list[int]:
    """How many parts of each layer's path name its group: the largest branch is opened while the
    groups stay few.
    """
    depths = [1] * len(paths)
    closed: set[tuple[str, ...]] = set()
    while True:
        groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for place, path in enumerate(paths):
            groups[tuple(path[: depths[place]])].append(place)
        openable = [
            (sum(sizes[place] for place in places), head)
            for head, places in groups.items()
            if head not in closed and any(len(paths[place]) > len(head) for place in places)
        ]
        if not openable or len(groups) >= MOST_GROUPS:
            return depths
        _, head = max(openable)
        parts = {tuple(paths[place][: len(head) + 1]) for place in groups[head]}
        if len(groups) - 1 + len(parts) > MOST_GROUPS:
            closed.add(head)
            continue
        for place in groups[head]:
            depths[place] = min(len(paths[place]), len(head) + 1)

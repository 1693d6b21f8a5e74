"""What ran when in one call of a model: its layers and operators along time, thread by thread."""

from __future__ import annotations

from collections import defaultdict
from typing import Self

from .record import AboutWorkload, Frame, TableRecord, frame_of_columns
from .text import counted, three_figures

MAX_ROWS = 15


class CallTimeline(TableRecord):
    """The events of one call that torch's profiler traced, as columns in the order of their starts:
    lane, layer and operator by their index, and when they began and ended.

    An event without an operator is a call of its layer. Events of a lane nest: one that begins
    within another ends within it. One without events says why.
    """

    text_columns = ("operator", "layer", "lane")

    workload: AboutWorkload = ""
    machine: str = ""
    latency_ms: float = 0.0  # of a call that is not traced
    duration_ms: float = 0.0  # of the traced one
    lanes: tuple[str, ...] = ()  # threads of the host, the calling one first; streams of a device
    layers: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()  # "" of layers
    lane_index: tuple[int, ...] = ()
    layer_index: tuple[int, ...] = ()
    operator_index: tuple[int, ...] = ()
    start_ms: tuple[float, ...] = ()
    end_ms: tuple[float, ...] = ()
    operators_ms: float = 0.0  # of the calling thread's, without those inside others
    left_out: int = 0  # the shortest, where they were too many

    def __len__(self) -> int:
        return len(self.start_ms)

    def within(self, layer: str) -> Self:
        """The calls of a layer, and what ran inside them; all of it for the model itself."""
        if not layer:
            return self
        inside = {
            index
            for index, name in enumerate(self.layers)
            if name == layer or name.startswith(f"{layer}.")
        }
        kept = [event for event, index in enumerate(self.layer_index) if index in inside]
        names = ("lane_index", "layer_index", "operator_index", "start_ms", "end_ms")
        columns = {name: tuple(getattr(self, name)[event] for event in kept) for name in names}
        return self.model_copy(update=columns)

    @property
    def operator_ms(self) -> dict[tuple[str, str], float]:
        """The time of each operator of each layer, with what is inside it."""
        spent = defaultdict[tuple[str, str], float](float)
        for layer, operator, start, end in zip(
            self.layer_index, self.operator_index, self.start_ms, self.end_ms, strict=True
        ):
            spent[self.layers[layer], self.operators[operator]] += end - start
        return dict(spent)

    @property
    def title(self) -> str:
        if not len(self):
            return "One call along time"
        return (
            f"{self.workload} on {self.machine} · one call along time, "
            f"{three_figures(self.duration_ms)} ms while traced"
        )

    @property
    def sentence(self) -> str:
        """How much of the call is outside of operators; or why there are no events."""
        if not len(self):
            return (
                "No event of a call is known: an engine tells only durations, and an earlier "
                "version kept none. Profile the model again, without its engine."
            )
        between = max(0.0, 1 - self.operators_ms / (self.duration_ms or 1.0))
        return (
            f"{between:.0%} of the call lies outside of operators on the thread that called: "
            "Python, the calls of layers, and tracing itself."
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        if not len(self):
            return ()
        slower = f"tracing slows a call: untraced it takes {three_figures(self.latency_ms)} ms"
        short = f"{counted(self.left_out, 'shorter event')} left out"
        return (f"{slower}; {short}" if self.left_out else slower,)

    @property
    def frame(self) -> Frame:
        """A row per event; the operator of a layer's call is ''."""
        return frame_of_columns(
            {
                "lane": [self.lanes[index] for index in self.lane_index],
                "layer": [self.layers[index] for index in self.layer_index],
                "operator": [self.operators[index] for index in self.operator_index],
                "start_ms": self.start_ms,
                "end_ms": self.end_ms,
            }
        )

    def table(self) -> list[dict[str, str]]:
        """The longest operators, in the order of their starts."""
        known = (event for event, index in enumerate(self.operator_index) if self.operators[index])
        longest = sorted(known, key=lambda event: self.start_ms[event] - self.end_ms[event])
        return [
            {
                "operator": self.operators[self.operator_index[event]],
                "layer": self.layers[self.layer_index[event]] or self.workload,
                "lane": self.lanes[self.lane_index[event]],
                "start ms": f"{self.start_ms[event]:.3f}",
                "ms": f"{self.end_ms[event] - self.start_ms[event]:.3f}",
            }
            for event in sorted(longest[:MAX_ROWS])
        ]

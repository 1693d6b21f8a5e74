"""A pipeline: which layers each stage has, and when it computes which microbatch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from pydantic import Field

from .record import Record
from .table import TableRecord
from .text import readable_bytes
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas


class PipelineSlot(Record):
    """One microbatch's forward or backward pass in a stage."""

    stage: int
    microbatch: int
    is_backward: bool
    begin_ms: float
    end_ms: float


class PipelineStageLayers(Record):
    """The layers of one stage, and what a microbatch costs there."""

    first_layer: str
    last_layer: str
    forward_ms: float
    backward_ms: float
    parameter_bytes: int = 0
    input_bytes: int = Field(default=0, description="of a microbatch, from the stage before")
    kept_microbatches: int = Field(
        default=0, description="whose activations are kept at most at once"
    )


class PipelineSchedule(TableRecord):
    """A step of a pipeline: predicted from the stages' times and, where it ran, measured."""

    text_columns = ("layers",)

    workload: AboutWorkload
    machine: str = ""
    schedule: str
    split: str = Field(description="what the stages were chosen by: profile, FLOPs, equal, given")
    microbatches: int
    stages: tuple[PipelineStageLayers, ...]
    predicted: tuple[PipelineSlot, ...]
    measured: tuple[PipelineSlot, ...] = ()
    cores: int | None = Field(
        default=None, description="stages that can compute at once; None if each has its own cores"
    )
    core_wait_ms: tuple[float, ...] = Field(
        default=(), description="of each stage in the measured step: ready, and without a core"
    )
    explained_bubble: float | None = Field(
        default=None,
        description="by the schedule, from the measured times of the passes and hand-overs",
    )

    @property
    def core_wait_share(self) -> float | None:
        """The share of the stages' time in which they were ready and had no core, because others
        on the machine used it; None where that was not counted.
        """
        span = (self.measured_ms or 0.0) * len(self.core_wait_ms)
        return min(1.0, sum(self.core_wait_ms) / span) if span else None

    @property
    def predicted_bubble(self) -> float:
        """The share of the stages' time in which they would wait."""
        return bubble(self.predicted, len(self.stages))

    @property
    def measured_bubble(self) -> float | None:
        """The share of the stages' time in which they waited."""
        return bubble(self.measured, len(self.stages)) if self.measured else None

    @property
    def predicted_ms(self) -> float:
        """The predicted time of a step."""
        return span_ms(self.predicted)

    @property
    def measured_ms(self) -> float | None:
        """The measured time of a step."""
        return span_ms(self.measured) if self.measured else None

    @property
    def hand_over_ms(self) -> float | None:
        """The middle time from the end of a pass to the begin of the one in the next stage that
        waits for it: transfer, launches and the wait for a core, which the prediction leaves out.
        """
        ends = {(slot.stage, slot.microbatch, slot.is_backward): slot.end_ms
                for slot in self.measured}  # fmt: skip
        free: dict[int, float] = {}
        waits = []
        for slot in sorted(self.measured, key=lambda slot: slot.begin_ms):
            before = slot.stage + (1 if slot.is_backward else -1)
            ready = ends.get((before, slot.microbatch, slot.is_backward))
            if ready is not None and ready >= free.get(slot.stage, 0.0):
                waits.append(max(0.0, slot.begin_ms - ready))
            free[slot.stage] = slot.end_ms
        return median(waits) if waits else None

    @property
    def title(self) -> str:
        """The workload, the schedule and the bubble, in a line."""
        measured = self.measured_bubble
        waits = f"bubble {self.predicted_bubble:.0%} predicted"
        if self.cores is not None and self.cores < len(self.stages):
            waits += f" with {self.cores} of {len(self.stages)} stages computing at once"
        waits += "" if measured is None else f", {measured:.0%} measured"
        if self.hand_over_ms is not None:
            waits += f", {self.hand_over_ms:.2g} ms to hand over, not in the prediction"
        if self.core_wait_share is not None:
            waits += f"; stages waited for a core in {self.core_wait_share:.0%} of the time"
        if self.explained_bubble is not None:
            waits += f"; with passes and hand-overs as measured, {self.explained_bubble:.0%}"
        return (
            f"{self.workload} in {len(self.stages)} stages by {self.split} · {self.schedule}, "
            f"{self.microbatches} microbatches · {waits}"
        )

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per stage, as plain numbers."""
        import pandas

        return pandas.DataFrame([stage.model_dump() for stage in self.stages])

    def table(self) -> list[dict[str, str]]:
        """A row per stage."""
        return [
            {
                "stage": str(index),
                "layers": f"{stage.first_layer} … {stage.last_layer}",
                "forward ms": f"{stage.forward_ms:.3g}",
                "backward ms": f"{stage.backward_ms:.3g}",
                "parameters": readable_bytes(stage.parameter_bytes),
                "input": readable_bytes(stage.input_bytes),
                "microbatches kept": str(stage.kept_microbatches),
            }
            for index, stage in enumerate(self.stages)
        ]


def span_ms(slots: Sequence[PipelineSlot]) -> float:
    """From the first begin to the last end."""
    begin = min((slot.begin_ms for slot in slots), default=0.0)
    return max((slot.end_ms for slot in slots), default=0.0) - begin


def bubble(slots: Sequence[PipelineSlot], stages: int) -> float:
    """The share of the stages' time, from the first begin to the last end, that no slot covers."""
    span = span_ms(slots) * stages
    return 1 - sum(slot.end_ms - slot.begin_ms for slot in slots) / span if span else 0.0

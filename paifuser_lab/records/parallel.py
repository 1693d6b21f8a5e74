"""A training on several processes: the ways to share it, a rank, a pipeline, divided blocks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import ClassVar

from pydantic import Field

from .record import AboutWorkload, Frame, Record, TableRecord, frame_of_columns, row_of
from .table import Columns
from .text import (
    counted,
    in_figures,
    known,
    or_dash,
    readable_bytes,
    readable_count,
    readable_share,
    three_figures,
)


class Link(Record):
    """What connects two processes: the time until a message arrives, and bits a second."""

    latency_us: float = Field(ge=0)  # of an empty message
    gbit_per_s: float = Field(gt=0)  # 10^9 bits a second in one direction
    source: str = "given"  # given, or measured between which processes

    def transfer_s(self, size_bytes: float) -> float:
        """Seconds until a message of this size has arrived."""
        return self.latency_us * 1e-6 + size_bytes * 8e-9 / self.gbit_per_s

    def ring_s(self, size_bytes: float, processes: int, passes: int = 2) -> float:
        """Seconds of a collective around a ring: an all-reduce has two passes, a gather one."""
        return passes * (processes - 1) * self.transfer_s(size_bytes / processes)

    def __str__(self) -> str:
        return (
            f"{three_figures(self.gbit_per_s)} Gbit/s, {three_figures(self.latency_us)} µs "
            f"({self.source})"
        )


class ParallelOption(Record):
    """One strategy: the predicted time of a step over the same examples, and where it goes."""

    strategy: str
    step_ms: float | None = None
    compute_ms: float = 0.0
    wait_ms: float = 0.0
    sent_bytes: float = 0.0  # by each process in a step
    state_bytes: int = 0  # weights, gradients, optimizer, a process
    reason: str = ""

    @property
    def is_possible(self) -> bool:
        """Whether the model can be trained so."""
        return self.step_ms is not None


class ParallelPlan(TableRecord):
    """The strategies by predicted time of a step; one process is among them."""

    columns: ClassVar[Columns] = {
        "strategy": "strategy",
        "step ms": lambda option: or_dash(option.step_ms),
        "compute ms": lambda option: or_dash(option.compute_ms if option.is_possible else None),
        "waits ms": lambda option: or_dash(option.wait_ms if option.is_possible else None),
        "sent": lambda option: readable_bytes(
            round(option.sent_bytes) if option.is_possible else None
        ),
        "state": lambda option: readable_bytes(option.state_bytes if option.is_possible else None),
        "why": "reason",
    }
    text_columns = ("strategy", "why")
    row_field = "options"
    row_key = "strategy"

    workload: AboutWorkload
    machine: str
    processes: int
    threads: int  # of one process; each of several has a share of them
    slowdown: float = 1.0  # of a process while the others compute on the same machine
    link: Link
    options: tuple[ParallelOption, ...]

    def __getitem__(self, strategy: str) -> ParallelOption:
        return row_of(self.options, "strategy", strategy, "strategy")

    @property
    def fastest(self) -> ParallelOption:
        """The possible strategy with the least time of a step."""
        possible = [option for option in self.options if option.is_possible]
        return min(possible, key=lambda option: option.step_ms or 0.0)

    @property
    def title(self) -> str:
        return f"{self.workload} on {self.processes} processes · {self.link}"

    @property
    def sentence(self) -> str:
        best = self.fastest
        took = f"{best.strategy}, {or_dash(best.step_ms)} ms a step"
        return f"Fastest here: {took}: {best.reason}."

    def is_bold(self, row: dict[str, str]) -> bool:
        return row["strategy"] == self.fastest.strategy


class ParallelReport(TableRecord):
    """One rank of a parallel training. Columns have a value for each step.

    Bytes are those that the exchange's algorithm sends from this rank: a mean of N bytes over W
    ranks is 2 (W − 1) / W · N.
    """

    text_columns = ("what",)

    strategy: str
    rank: int = Field(default=0, ge=0)
    world: int = Field(default=1, ge=1)
    start_bytes: int = 0  # sent before the first step
    end_bytes: int = 0  # sent after the last step
    sent_bytes: tuple[int, ...] = ()
    waited_ms: tuple[float, ...] = ()
    computed_ms: tuple[float, ...] = ()
    exchanges: int = 0  # how often weights or gradients were averaged
    weights_bytes: int = 0
    optimizer_bytes: int = 0  # of this rank's optimizer state
    mapped_bytes: int = 0  # of batches read in shared memory
    copied_bytes: int = 0  # of batches copied out of shared memory
    notes: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """All that this rank has sent."""
        return self.start_bytes + sum(self.sent_bytes) + self.end_bytes

    @property
    def wait_share(self) -> float | None:
        """The share of the time in which it waited for the others."""
        total = sum(self.waited_ms) + sum(self.computed_ms)
        return sum(self.waited_ms) / total if total > 0 else None

    @property
    def step_bytes(self) -> float:
        """What it sends in a step, on average."""
        return sum(self.sent_bytes) / max(1, len(self.sent_bytes))

    @property
    def row(self) -> dict[str, str]:
        """What this rank did, as a row of text."""
        return {
            "rank": str(self.rank),
            "steps": str(len(self.sent_bytes)),
            "sent": readable_bytes(self.total_bytes),
            "sent a step": readable_bytes(round(self.step_bytes)),
            "computes, ms a step": _middle(self.computed_ms),
            "waits, ms a step": _middle(self.waited_ms),
            "waited": readable_share(self.wait_share),
        }

    @property
    def title(self) -> str:
        return (
            f"{self.strategy} · rank {self.rank} of {self.world} · "
            f"{counted(len(self.sent_bytes), 'step')} · {readable_bytes(self.total_bytes)} sent"
        )

    @property
    def frame(self) -> Frame:
        """A row per step."""
        names = ("sent_bytes", "waited_ms", "computed_ms")
        return frame_of_columns({name: getattr(self, name) for name in names}).rename_axis("step")

    def table(self) -> list[dict[str, str]]:
        figures = {
            "sent a step": readable_bytes(round(self.step_bytes)),
            "averaged": f"{self.exchanges} times",
            "computed a step": f"{_middle(self.computed_ms)} ms" if self.computed_ms else "",
            "waited": readable_share(self.wait_share),
            "weights": readable_bytes(self.weights_bytes),
            "optimizer's state here": readable_bytes(self.optimizer_bytes),
            "batches in shared memory": readable_bytes(self.mapped_bytes or None),
            "copied out of it": readable_bytes(self.copied_bytes if self.mapped_bytes else None),
        }
        return [{"what": name, "value": value} for name, value in known(figures).items()]

    @property
    def remarks(self) -> tuple[str, ...]:
        return self.notes


def _middle(times: Sequence[float]) -> str:
    return or_dash(median(times) if times else None)


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
    input_bytes: int = 0  # of a microbatch, from the stage before
    kept_microbatches: int = 0  # whose activations are kept at most at once


class PipelineSchedule(TableRecord):
    """A step of a pipeline: predicted from the stages' times and, where it ran, measured."""

    text_columns = ("layers",)
    row_field = "stages"

    workload: AboutWorkload
    machine: str = ""
    schedule: str
    split: str  # what the stages were chosen by: profile, FLOPs, equal, given
    microbatches: int
    stages: tuple[PipelineStageLayers, ...]
    predicted: tuple[PipelineSlot, ...]
    measured: tuple[PipelineSlot, ...] = ()
    cores: int | None = None  # stages that can compute at once; None if each has its own cores
    # of each stage in the measured step: ready, and without a core
    core_wait_ms: tuple[float, ...] = ()
    # by the schedule, from the measured times of the passes and hand-overs
    explained_bubble: float | None = None

    @property
    def core_wait_share(self) -> float | None:
        """The share of time in which stages were ready without a core; None where not counted."""
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
        measured = self.measured_bubble
        waits = f"bubble {self.predicted_bubble:.0%} predicted"
        if self.cores is not None and self.cores < len(self.stages):
            waits += f" with {self.cores} of {len(self.stages)} stages computing at once"
        waits += "" if measured is None else f", {measured:.0%} measured"
        if self.hand_over_ms is not None:
            waits += f", {in_figures(self.hand_over_ms, 2)} ms to hand over, not in the prediction"
        if self.core_wait_share is not None:
            waits += f"; stages waited for a core in {self.core_wait_share:.0%} of the time"
        if self.explained_bubble is not None:
            waits += f"; with passes and hand-overs as measured, {self.explained_bubble:.0%}"
        return (
            f"{self.workload} in {len(self.stages)} stages by {self.split} · {self.schedule}, "
            f"{self.microbatches} microbatches · {waits}"
        )

    def table(self) -> list[dict[str, str]]:
        return [
            {
                "stage": str(index),
                "layers": f"{stage.first_layer} … {stage.last_layer}",
                "forward ms": three_figures(stage.forward_ms),
                "backward ms": three_figures(stage.backward_ms),
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


class TensorBlock(Record):
    """An attention or MLP block: its linear layers, the bytes of each sum, why it stays whole."""

    kind: str
    layers: tuple[str, ...]
    parameters: int
    exchanged_bytes: tuple[int, ...] = ()
    reason: str = ""


class TensorPlan(TableRecord):
    """The blocks of a model that tensor parallelism divides among processes."""

    columns: ClassVar[Columns] = {
        "block": "kind",
        "layers": lambda block: ", ".join(block.layers),
        "parameters": lambda block: readable_count(block.parameters),
        "divided": lambda block: f"no: {block.reason}" if block.reason else "yes",
    }
    text_columns = ("block", "layers", "divided")
    row_field = "blocks"

    workload: AboutWorkload
    processes: int
    parameters: int
    blocks: tuple[TensorBlock, ...] = ()

    @property
    def divided(self) -> tuple[TensorBlock, ...]:
        """The blocks that are divided."""
        return tuple(block for block in self.blocks if not block.reason)

    @property
    def share(self) -> float:
        """The share of the parameters in divided blocks."""
        return sum(block.parameters for block in self.divided) / max(self.parameters, 1)

    @property
    def own_parameters(self) -> int:
        """The parameters that each process has."""
        divided = sum(block.parameters for block in self.divided)
        return self.parameters - divided + -(-divided // self.processes)

    @property
    def reason(self) -> str:
        """Why blocks stay whole, once each."""
        reasons = dict.fromkeys(block.reason for block in self.blocks if block.reason)
        return "; ".join(reasons) or "no linear layers lie between two others of their block"

    @property
    def title(self) -> str:
        return (
            f"{self.workload} on {self.processes} processes · {len(self.divided)} of "
            f"{counted(len(self.blocks), 'block')} divided, "
            f"{self.share:.0%} of the parameters"
        )

    def is_bold(self, row: dict[str, str]) -> bool:
        return row["divided"] == "yes"

"""A training: its planned formats and checkpoints, and what it did step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any, ClassVar

from pydantic import Field

from .parallel import ParallelReport
from .quality import readable_interval
from .record import AboutWorkload, Frame, Record, TableRecord, frame_of_columns
from .table import Columns, Table
from .text import (
    counted,
    known,
    or_dash,
    readable_bytes,
    readable_rate,
    readable_share,
    three_figures,
)


class LayerTrainingFormat(Record):
    """A layer's format in training: what it adds to the loss, its ms in each format."""

    layer: str
    kind: str
    format: str = "fp32"
    rises: dict[str, float] = {}  # format → predicted rise of the loss
    ms: dict[str, float] = {}  # format → ms of its calls in a step
    # powers of two between which its gradient lay
    gradient_exponents: tuple[int, int] | None = None
    note: str = ""


class TrainingStepTime(Record):
    """A step of training in one way: how many times faster than fp32, and the loss it adds."""

    way: str
    ms: float
    ratio: float
    interval: tuple[float, float]
    rise: float


class TrainingFormats(TableRecord):
    """A format for each layer of a training, within a budget of loss.

    `default` and `formats` are the options `precision` and `formats` of `lab.train`; `steps` are
    the ways that were raced, of which `way` was chosen.
    """

    text_columns = ("layer", "kind", "note", "block")

    workload: AboutWorkload
    machine: str
    budget: float = Field(ge=0)
    loss: float  # in fp32, of the batches that were looked at
    way: str = ""
    default: str = "fp32"
    formats: dict[str, str] = {}
    predicted_rise: float = 0.0
    measured_rise: float | None = None
    loss_scale: float = 1.0  # at which no gradient overflows in fp16
    steps: tuple[TrainingStepTime, ...] = ()
    rows: tuple[LayerTrainingFormat, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        lower = [row for row in self.rows if row.format != "fp32"]
        times = "".join(
            f", a step {_times(step)} as fast" for step in self.steps if step.way == self.way
        )
        measured = "" if self.measured_rise is None else f", measured {self.measured_rise:+.2g}"
        return (
            f"{self.workload} on {self.machine}: {len(lower)} of "
            f"{counted(len(self.rows), 'layer')} in lower precision{times}; loss {self.loss:.4g}, "
            f"predicted {self.predicted_rise:+.2g}{measured}, allowed {self.budget:.2g}"
        )

    def table(self) -> list[dict[str, str]]:
        names = list(dict.fromkeys(name for row in self.rows for name in row.ms))
        lower = [name for name in names if name != "fp32"]
        return [
            {"layer": row.layer, "kind": row.kind, "format": row.format}
            | {f"{name} ms": or_dash(row.ms.get(name)) for name in names}
            | {f"{name} loss": or_dash(row.rises.get(name), "{:+.1e}") for name in lower}
            | {"gradient": _powers(row.gradient_exponents), "note": row.note}
            for row in self.rows
        ]

    @property
    def remarks(self) -> tuple[str, ...]:
        """The ways that were raced, and the notes."""
        raced = [
            f"{step.way}: a step {_times(step)} as fast as in fp32, loss {step.rise:+.2g}"
            + (", past the budget" if step.rise > self.budget else "")
            + (" (chosen)" if step.way == self.way else "")
            for step in self.steps[1:]
        ]
        is_plain = len(self.steps) > 1 and self.way == self.steps[0].way
        none = "no way within the budget is certainly faster than fp32 here, which stays"
        return (*raced, *([none] if is_plain else []), *self.notes)


def _times(step: TrainingStepTime) -> str:
    return f"{step.ratio:.2f} × ({readable_interval(step.interval)})"


def _powers(exponents: tuple[int, int] | None) -> str:
    return "–" if exponents is None else "2^{} … 2^{}".format(*exponents)


class CheckpointedBlock(Record):
    """A block: the bytes that it keeps, those of its inputs, the ms to compute it again."""

    block: str
    kept_bytes: int = Field(ge=0)
    input_bytes: int = Field(ge=0)
    ms: float = Field(ge=0)
    is_checkpointed: bool = False


class CheckpointPlan(TableRecord):
    """The blocks whose activations are computed again, so that a step of training stays within a
    memory limit in the least time.

    `layers` is the option `checkpointed` of `lab.train`. `plain_bytes` and `predicted_bytes` are
    the predicted peaks without and with it, the measured ones are what torch's allocator gave out.
    `longer` is measured with the blocks checkpointed, `more_ms` is their predicted time.
    """

    columns: ClassVar[Columns] = {
        "block": "block",
        "kept": lambda row: readable_bytes(row.kept_bytes),
        "inputs": lambda row: readable_bytes(row.input_bytes),
        "ms again": lambda row: three_figures(row.ms),
        "checkpointed": lambda row: "yes" if row.is_checkpointed else "no",
    }
    text_columns = ("block",)
    row_field = "blocks"

    workload: AboutWorkload
    machine: str
    limit_bytes: int = Field(ge=1)
    plain_bytes: int
    predicted_bytes: int
    measured_plain_bytes: int | None = None
    measured_bytes: int | None = None
    step_ms: float = 0.0  # of a step without checkpointing
    longer: float | None = None  # times as long a step takes with it, timed in turn
    longer_interval: tuple[float, float] | None = None
    is_proven: bool = True
    blocks: tuple[CheckpointedBlock, ...] = ()

    @property
    def layers(self) -> tuple[str, ...]:
        """The checkpointed blocks."""
        return tuple(row.block for row in self.blocks if row.is_checkpointed)

    @property
    def more_ms(self) -> float:
        """The predicted ms that a step takes longer."""
        return sum(row.ms for row in self.blocks if row.is_checkpointed)

    @property
    def is_within(self) -> bool:
        """Whether the predicted peak is within the limit."""
        return self.predicted_bytes <= self.limit_bytes

    @property
    def title(self) -> str:
        measured = ""
        if self.measured_bytes is not None and self.measured_plain_bytes is not None:
            measured = (
                f", measured {readable_bytes(self.measured_plain_bytes)} → "
                f"{readable_bytes(self.measured_bytes)}"
            )
        longer = f" ({readable_share(self.more_ms / self.step_ms)})" if self.step_ms else ""
        if self.longer is not None and self.longer_interval is not None:
            likely = readable_interval(self.longer_interval)
            longer += f", measured {self.longer:.2f} × as long ({likely})"
        return (
            f"{self.workload}: {len(self.layers)} of {counted(len(self.blocks), 'block')} "
            f"checkpointed, peak predicted {readable_bytes(self.plain_bytes)} → "
            f"{readable_bytes(self.predicted_bytes)}{measured}, limit "
            f"{readable_bytes(self.limit_bytes)}; {three_figures(self.more_ms)} ms longer{longer}"
        )

    def is_bold(self, row: dict[str, str]) -> bool:
        return row["checkpointed"] == "yes"


# bins of a gradient's sizes: powers of two, two to a bin; the first and last take what is beyond
LOWEST_EXPONENT, RANGE_WIDTH, RANGE_BINS = -40, 2, 24


class TrainingEvent(Record):
    """What was switched after so many steps, and why."""

    step: int = Field(ge=0)
    what: str


class GradientRange(Record):
    """A gradient's sizes in a step: per layer how many elements are zero, then in each bin."""

    step: int = Field(ge=0)
    counts: tuple[tuple[int, ...], ...]


class RateCurve(TableRecord):
    """The loss while the learning rate rises, and the rate to train with."""

    workload: AboutWorkload
    optimizer: str
    rates: tuple[float, ...] = Field(min_length=1)
    losses: tuple[float, ...] = Field(min_length=1)
    smooth: tuple[float, ...] = Field(min_length=1)
    suggested: float = Field(gt=0)
    reason: str

    @property
    def title(self) -> str:
        return f"{self.workload} with {self.optimizer}: learning rate {self.suggested:.2g}"

    def table(self) -> list[dict[str, str]]:
        every = max(1, len(self.rates) // 10)
        rows = list(zip(self.rates, self.losses, self.smooth, strict=True))[::every]
        return [
            {"rate": f"{rate:.2g}", "loss": f"{loss:.4g}", "smoothed": f"{mean:.4g}"}
            for rate, loss, mean in rows
        ]

    @property
    def remarks(self) -> tuple[str, ...]:
        return (self.reason,)


class TrainingRun(TableRecord):
    """A training, step by step. Columns have a value for each step; a skipped step's loss may be
    NaN.

    `rates` are learning rates, `scales` what the loss was multiplied by (1 where it is not scaled).
    `overflow_shares` and `underflow_shares` are of the scaled gradient's elements: those that are
    not finite, and those that are zero or too small for fp16's normal numbers.
    """

    text_columns = ("precision", "what was switched")

    workload: AboutWorkload
    machine: str
    options: dict[str, Any] = {}
    losses: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    overflow_shares: tuple[float, ...] = ()
    underflow_shares: tuple[float, ...] = ()
    gradient_norms: tuple[float, ...] = ()
    step_ms: tuple[float, ...] = ()
    wait_ms: tuple[float, ...] = ()
    is_lower: tuple[bool, ...] = ()
    is_skipped: tuple[bool, ...] = ()
    epoch_ends: tuple[int, ...] = ()  # steps done at each epoch's end
    metrics: tuple[float, ...] = ()  # after each epoch, where it stops early on the metric
    steps: int = Field(default=0, ge=0)  # of the whole training, as it was planned
    layers: tuple[str, ...] = ()  # those of `ranges`
    ranges: tuple[GradientRange, ...] = ()
    events: tuple[TrainingEvent, ...] = ()
    examples: int = 0
    seconds: float = 0.0
    peak_bytes: int | None = None  # how far the process's memory rose; None if not
    metric_name: str | None = None
    metric_before: float | None = None
    metric: float | None = None
    began_at: int = 0  # steps that an earlier run had done
    notes: tuple[str, ...] = ()
    is_running: bool = False
    # what each process sent and waited for, where there were several
    ranks: tuple[ParallelReport, ...] = ()

    @property
    def precision(self) -> str:
        """The lower format of the plan."""
        if self.options.get("formats"):
            return "by layer"
        is_bf16 = self.options.get("weights") == "bf16"
        return "bf16" if is_bf16 else str(self.options.get("precision", "fp32"))

    @property
    def first_loss(self) -> float:
        """The mean loss over the first tenth of the steps."""
        return _mean(self.losses[: max(1, len(self.losses) // 10)])

    @property
    def last_loss(self) -> float:
        """The mean loss over the last tenth of the steps."""
        return _mean(self.losses[-max(1, len(self.losses) // 10) :])

    @property
    def throughput_per_s(self) -> float | None:
        """Examples a second, of this and earlier runs together."""
        return self.examples / self.seconds if self.seconds > 0 and self.examples else None

    @property
    def wait_share(self) -> float | None:
        """The share of the time in which it waited for data."""
        total = sum(self.step_ms) + sum(self.wait_ms)
        return sum(self.wait_ms) / total if total > 0 else None

    @property
    def dead_layers(self) -> tuple[str, ...]:
        """Layers whose gradient was zero in every step that was watched, and so learned nothing."""
        return tuple(
            layer
            for index, layer in enumerate(self.layers)
            if self.ranges and not any(any(row.counts[index][1:]) for row in self.ranges)
        )

    @property
    def title(self) -> str:
        done = f"{len(self.losses)} of {counted(self.steps, 'step')}"
        loss = f" · loss {self.first_loss:.4g} → {self.last_loss:.4g}" if self.losses else ""
        return f"{self.workload} on {self.machine} · {done}{loss}"

    @property
    def facts(self) -> dict[str, str]:
        """Figures of the whole training, as text."""
        metric = "" if self.metric is None else f"{self.metric:.4f}"
        if metric and self.metric_before is not None:
            metric = f"{self.metric_before:.4f} → {metric}"
        facts = {
            "examples a second": readable_rate(self.throughput_per_s),
            "waited for data": readable_share(self.wait_share),
            "peak memory": readable_bytes(self.peak_bytes),
            "skipped steps": str(sum(self.is_skipped) or ""),
            "layers without gradient": ", ".join(self.dead_layers),
            self.metric_name or "metric": metric,
        }
        return known(facts)

    @property
    def remarks(self) -> tuple[str, ...]:
        facts = " · ".join(f"{name} {value}" for name, value in self.facts.items())
        return (*([facts] if facts else []), *self.notes)

    @property
    def frame(self) -> Frame:
        """A row per step."""
        names = (
            *("losses", "rates", "scales", "overflow_shares", "underflow_shares"),
            *("gradient_norms", "step_ms", "wait_ms", "is_lower", "is_skipped"),
        )
        return frame_of_columns({name: getattr(self, name) for name in names}).rename_axis("step")

    def table(self) -> list[dict[str, str]]:
        """A row per epoch, as text, the unfinished one included."""
        ends = [*self.epoch_ends]
        if len(self.losses) > (ends[-1] if ends else 0):
            ends.append(len(self.losses))
        return [
            self._epoch(number, start, end)
            for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False), 1)
        ]

    def _epoch(self, number: int, start: int, end: int) -> dict[str, str]:
        steps = slice(start, end)
        lower, skipped = self.is_lower[steps], sum(self.is_skipped[steps])
        return {
            "epoch": str(number),
            "steps": str(end - start),
            "mean loss": f"{_mean(self.losses[steps]):.4g}",
            "rate": f"{self.rates[end - 1]:.3g}",
            "gradient": or_dash(_finite_median(self.gradient_norms[steps]), "{:.3g}"),
            "scale": f"{self.scales[end - 1]:g}",
            "ms a step": three_figures(median(self.step_ms[steps])),
            "precision": _precision(lower, self.precision),
            "skipped": str(skipped or "–"),
            "what was switched": "; ".join(
                event.what for event in self.events if start < event.step <= end
            ),
        }

    @property
    def sections(self) -> list[Table]:
        if not self.ranks:
            return []
        title = f"{counted(len(self.ranks), 'rank')} · {self.ranks[0].strategy}"
        return [Table((title,), [rank.row for rank in self.ranks])]


def _precision(lower: Sequence[bool], name: str) -> str:
    if not any(lower):
        return "fp32"
    return name if all(lower) else f"fp32, {name}"


def _finite_median(norms: Sequence[float]) -> float | None:
    finite = [norm for norm in norms if math.isfinite(norm)]
    return median(finite) if finite else None


def _mean(losses: Sequence[float]) -> float:
    finite = [loss for loss in losses if math.isfinite(loss)]
    return fmean(finite) if finite else math.nan

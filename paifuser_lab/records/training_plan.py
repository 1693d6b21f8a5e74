"""Plans of a training: a format for each layer, and the blocks whose activations are computed
again.
"""

from __future__ import annotations

from pydantic import Field

from .quality import readable_interval
from .record import Record
from .table import TableRecord
from .text import counted, readable_bytes, readable_share
from .workload_name import AboutWorkload


class LayerTrainingFormat(Record):
    """A layer's format in training: what it adds to the loss, and its ms forward and backward in
    each format.
    """

    layer: str
    kind: str
    format: str = "fp32"
    rises: dict[str, float] = Field(default={}, description="format → predicted rise of the loss")
    ms: dict[str, float] = Field(default={}, description="format → ms of its calls in a step")
    gradient_exponents: tuple[int, int] | None = Field(
        default=None, description="powers of two between which its gradient lay"
    )
    note: str = ""


class TrainingStepTime(Record):
    """A whole step of training in one way: how many times faster than in fp32, timed in turn, and
    what the way adds to the loss.
    """

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
    loss: float = Field(description="in fp32, of the batches that were looked at")
    way: str = ""
    default: str = "fp32"
    formats: dict[str, str] = {}
    predicted_rise: float = 0.0
    measured_rise: float | None = None
    loss_scale: float = Field(default=1.0, description="at which no gradient overflows in fp16")
    steps: tuple[TrainingStepTime, ...] = ()
    rows: tuple[LayerTrainingFormat, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """How many layers leave fp32, and what it costs, in a line."""
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
        """A row per layer, as text."""
        names = list(dict.fromkeys(name for row in self.rows for name in row.ms))
        return [
            {"layer": row.layer, "kind": row.kind, "format": row.format}
            | {f"{name} ms": f"{row.ms[name]:.3g}" if name in row.ms else "–" for name in names}
            | {
                f"{name} loss": f"{row.rises[name]:+.1e}" if name in row.rises else "–"
                for name in names
                if name != "fp32"
            }
            | {
                "gradient": "–"
                if row.gradient_exponents is None
                else "2^{} … 2^{}".format(*row.gradient_exponents),
                "note": row.note,
            }
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


class CheckpointedBlock(Record):
    """A block: the bytes that it keeps for the backward pass, those of its inputs, and the ms that
    computing it again takes.
    """

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

    text_columns = ("layer", "kind", "note", "block")

    workload: AboutWorkload
    machine: str
    limit_bytes: int = Field(ge=1)
    plain_bytes: int
    predicted_bytes: int
    measured_plain_bytes: int | None = None
    measured_bytes: int | None = None
    step_ms: float = Field(default=0.0, description="of a step without checkpointing")
    longer: float | None = Field(
        default=None, description="times as long a step takes with it, timed in turn"
    )
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
        """The blocks and the peaks, in a line."""
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
            f"{readable_bytes(self.limit_bytes)}; {self.more_ms:.3g} ms longer{longer}"
        )

    def table(self) -> list[dict[str, str]]:
        """A row per block, as text."""
        return [
            {
                "block": row.block,
                "kept": readable_bytes(row.kept_bytes),
                "inputs": readable_bytes(row.input_bytes),
                "ms again": f"{row.ms:.3g}",
                "checkpointed": "yes" if row.is_checkpointed else "no",
            }
            for row in self.blocks
        ]

    def is_bold(self, row: dict[str, str]) -> bool:
        """Whether the block is checkpointed."""
        return row["checkpointed"] == "yes"

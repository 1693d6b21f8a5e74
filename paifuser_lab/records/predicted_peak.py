"""The predicted peak memory of a call or a training step by category, against a limit."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .memory import Held
from .record import AboutWorkload, Frame, Record, TableRecord
from .table import Table
from .text import counted, readable_bytes, readable_share

Category = Literal["weights", "gradients", "optimizer state", "activations", "workspace", "inputs"]
MAX_LAYERS = 10
# what a process on a CPU took at the most beyond a prediction: docs/measured/memory_peak.json
RESIDENT_RATIO, RESIDENT_MORE_BYTES = 1.42, 100_000_000
_WORDS = ("category", "what it is", "change", "how", "layer")
ABOUT: dict[str, str] = {
    "weights": "parameters and buffers",
    "gradients": "of the weights",
    "optimizer state": "what the optimizer keeps for each weight",
    "activations": "outputs of operators, and their gradients",
    "workspace": "what operators and the optimizer free before they end",
    "inputs": "example inputs and targets",
}


def resident_bound(peak_bytes: int) -> int:
    """What a process on a CPU takes at the most, where torch allocates this much."""
    return int(RESIDENT_RATIO * peak_bytes) + RESIDENT_MORE_BYTES


class StepOptions(Record):
    """What the memory of a call or of a training step depends on, beside model and batch.

    `implementation` is the optimizer's, in torch's words; None is torch's choice for the device.
    `precision` is a format of the weights and inputs, or autocast (`amp-bf16`). `checkpoint` has
    the layers whose activations are computed again in the backward pass.
    """

    train: bool = False
    precision: Literal["fp32", "bf16", "amp-bf16"] = "fp32"
    optimizer: Literal["adamw", "sgd"] = "adamw"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    implementation: Literal["for-loop", "foreach", "fused"] | None = None
    checkpoint: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts: list[str] = [] if self.precision == "fp32" else [self.precision]
        if not self.train:
            return ", ".join(["inference", *parts])
        parts.insert(0, f"{self.implementation or ''} {self.optimizer}".strip())
        if self.checkpoint:
            parts.append(f"{counted(len(self.checkpoint), 'layer')} checkpointed")
        return ", ".join(["training", *parts])


class PeakBytes(Record):
    """The bytes held at the peak by each category."""

    weights_bytes: int = Field(default=0, ge=0)
    gradients_bytes: int = Field(default=0, ge=0)
    optimizer_state_bytes: int = Field(default=0, ge=0)
    activations_bytes: int = Field(default=0, ge=0)
    workspace_bytes: int = Field(default=0, ge=0)
    inputs_bytes: int = Field(default=0, ge=0)

    @property
    def by_category(self) -> dict[str, int]:
        """The bytes of each category by its name."""
        return {
            name.removesuffix("_bytes").replace("_", " "): count
            for name, count in self.model_dump().items()
        }

    @property
    def total_bytes(self) -> int:
        """The sum over all categories."""
        return sum(self.by_category.values())


class PredictedPeak(TableRecord):
    """The peak of one call, or of one training step, before it is run."""

    text_columns = _WORDS

    workload: AboutWorkload
    device: str
    batch: int = Field(ge=1)
    options: StepOptions
    held: PeakBytes
    moment: str
    layers: tuple[Held, ...] = ()
    note: str = ""

    @property
    def peak_bytes(self) -> int:
        """The bytes at the peak: everything that torch allocates, weights and inputs included."""
        return self.held.total_bytes

    @property
    def resident_bytes(self) -> int | None:
        """The most that a process may take for it, as measured on a CPU; None for other devices."""
        if self.device != "cpu":
            return None
        return resident_bound(self.peak_bytes)

    @property
    def title(self) -> str:
        return (
            f"{self.workload}, {self.options}, batch {self.batch} on {self.device}: "
            f"{readable_bytes(self.peak_bytes)} at the peak, predicted"
        )

    @property
    def sentence(self) -> str:
        name, count = max(self.held.by_category.items(), key=lambda item: item[1])
        most = self.layers[0] if self.layers else None
        where = (
            f"; of the activations, the largest part is of {most.layer or 'the model itself'}, "
            f"{readable_bytes(most.held_bytes)}"
            if most and most.held_bytes
            else ""
        )
        share = readable_share(count / self.peak_bytes) if self.peak_bytes else "0%"
        return f"The peak is in {self.moment}: {share} of it is {name}{where}."

    @property
    def frame(self) -> Frame:
        """A row per category."""
        import pandas

        return pandas.DataFrame(
            {"held_bytes": self.held.by_category.values()}, index=list(self.held.by_category)
        )

    def table(self) -> list[dict[str, str]]:
        """A row per category, as text, and their sum."""
        rows = [
            {
                "category": name,
                "held": readable_bytes(count),
                "share": f"{count / max(1, self.peak_bytes):.1%}",
                "what it is": ABOUT[name],
            }
            for name, count in self.held.by_category.items()
        ]
        total = {"category": "all", "held": readable_bytes(self.peak_bytes), "share": "100.0%"}
        return [*rows, {**total, "what it is": ""}]

    @property
    def remarks(self) -> tuple[str, ...]:
        return (self.note,) if self.note else ()


class FitRemedy(Record):
    """A change that lets more fit: its peak at the same batch, and the largest batch with it.

    `more_flops` is the share of FLOPs that it adds to a step; None where its time is unknown.
    """

    change: str
    how: str
    options: StepOptions
    batch: int = Field(ge=1)
    peak_bytes: int = Field(ge=0)
    largest_batch: int | None = None
    more_flops: float | None = None


class Fit(TableRecord):
    """Whether what torch allocates for a call or a training step fits into a memory limit, and what
    would make more fit. A process takes more than that: `is_process_within`.

    `largest_batch` is the largest that fits; None if not even the smallest that the model takes
    does. `is_open` means that larger ones than those tried fit as well.
    """

    text_columns = _WORDS

    predicted: PredictedPeak
    limit_bytes: int = Field(ge=1)
    largest_batch: int | None = None
    is_open: bool = False
    remedies: tuple[FitRemedy, ...] = ()

    def __bool__(self) -> bool:
        return self.is_within

    @property
    def workload(self) -> str:
        """The name of the workload."""
        return self.predicted.workload

    @property
    def is_within(self) -> bool:
        """Whether the predicted peak is within the limit."""
        return self.predicted.peak_bytes <= self.limit_bytes

    @property
    def is_process_within(self) -> bool | None:
        """Whether the most that a process may take is within the limit; None where unknown."""
        resident = self.predicted.resident_bytes
        return None if resident is None else resident <= self.limit_bytes

    @property
    def title(self) -> str:
        peak = self.predicted
        verb = "fits" if self.is_within else "does not fit"
        if self.is_within and self.is_process_within is False:
            verb = "fits, its process may not"
        return (
            f"{peak.workload}, {peak.options}, batch {peak.batch} on {peak.device} {verb}: "
            f"torch allocates {readable_bytes(peak.peak_bytes)} of "
            f"{readable_bytes(self.limit_bytes)}"
        )

    @property
    def sentence(self) -> str:
        if self.largest_batch is None:
            return "No batch fits into the limit."
        if self.is_open:
            return f"A batch of {self.largest_batch} fits too; no larger one was tried."
        return f"The largest batch that fits is {self.largest_batch}."

    @property
    def process_sentence(self) -> str:
        """What a process may take in all, and whether the limit holds that; '' where unknown."""
        resident = self.predicted.resident_bytes
        if resident is None:
            return ""
        verdict = "within the limit" if self.is_process_within else "past the limit"
        return (
            f"That is of what torch allocates. A process may take up to {readable_bytes(resident)} "
            f"for it, {verdict}: on the measured models it was at most {RESIDENT_RATIO} times that "
            f"and {readable_bytes(RESIDENT_MORE_BYTES)}."
        )

    def table(self) -> list[dict[str, str]]:
        return self.predicted.table()

    def remedy_table(self) -> list[dict[str, str]]:
        """What would make more fit: a row per change, as text."""
        return [
            {
                "change": remedy.change,
                "peak": readable_bytes(remedy.peak_bytes),
                "saves": readable_bytes(self.predicted.peak_bytes - remedy.peak_bytes),
                "fits": "yes" if remedy.peak_bytes <= self.limit_bytes else "no",
                "largest batch": str(remedy.largest_batch or "none"),
                "time": "not known"
                if remedy.more_flops is None
                else f"{remedy.more_flops:+.0%} FLOPs",
                "how": remedy.how,
            }
            for remedy in self.remedies
        ]

    @property
    def remarks(self) -> tuple[str, ...]:
        """When the peak is, and what a process may take."""
        lines = (self.predicted.sentence, self.process_sentence, self.predicted.note)
        return tuple(filter(None, lines))

    @property
    def sections(self) -> list[Table]:
        if not self.remedies:
            return []
        rows = self.remedy_table()
        return [
            Table(("What would make more fit:",), rows, _WORDS, lambda row: row["fits"] == "yes")
        ]

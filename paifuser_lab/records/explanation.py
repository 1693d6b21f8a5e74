"""Why a model is not faster: reasons, checks, steps that would help, and what they changed."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, Literal

from pydantic import Field

from .quality import Quality, readable_interval, sign, word_for
from .record import AboutWorkload, Frame, Record, TableRecord, frame_of, row_of
from .table import Columns
from .text import (
    in_figures,
    or_dash,
    readable_ms,
    readable_share,
    three_figures,
    view,
    without_empty,
)

Basis = Literal["measured", "mostly measured", "estimated"]
# a saving is measured on layers that run alone; in the model only a comparison measures it
WORDS: dict[Basis, str] = {
    "measured": "timed alone",
    "mostly measured": "mostly timed alone",
    "estimated": "estimated",
}


class Reason(Record):
    """One reason, and the step that would help with its expected saving, if there is one."""

    topic: str
    sentence: str
    step: dict[str, dict[str, Any]] | None = None
    saves_ms: float | None = None
    basis: Basis | None = None
    error_ms: float | None = None  # the usual error of an estimated saving

    def __str__(self) -> str:
        return self.sentence + (f" → {self.advice}" if self.step else "")

    @property
    def advice(self) -> str:
        """The step and its expected saving, as text."""
        return self.advised(step_text(self.step)) if self.step else ""

    def advised(self, label: str) -> str:
        """A step's label followed by its expected saving."""
        if self.saves_ms is None:
            return label
        word = "saves" if self.saves_ms >= 0 else "costs"
        around = f" ± {in_figures(self.error_ms, 2)}" if self.error_ms is not None else ""
        return f"{label} {word} about {three_figures(abs(self.saves_ms))}{around} ms ({self.known})"

    @property
    def certainty(self) -> str:
        """How the saving is known, and how far it is usually off: 'estimated ± 30 %'."""
        if not self.error_ms or not self.saves_ms:
            return self.known
        return f"{self.known} ± {readable_share(self.error_ms / abs(self.saves_ms))}"

    @property
    def known(self) -> str:
        """How the saving is known, in words; '' if it is not."""
        return WORDS[self.basis] if self.basis else ""

    @property
    def without_step(self) -> Reason:
        """The reason without its step."""
        return self.model_copy(
            update={"step": None, "saves_ms": None, "basis": None, "error_ms": None}
        )


class Explanation(Record):
    """The reasons for the speed of a layer; for the whole model, the largest saving first."""

    workload: AboutWorkload
    layer: str
    kind: str
    ms: float
    share: float
    reasons: tuple[Reason, ...]

    @property
    def advice(self) -> tuple[Reason, ...]:
        """The reasons with a step that is expected to help."""
        return tuple(
            row for row in self.reasons if row.step and (row.saves_ms is None or row.saves_ms > 0)
        )

    @property
    def steps(self) -> tuple[dict[str, dict[str, Any]], ...]:
        """The steps that would help, ready for a recipe; each once."""
        steps = [reason.step for reason in self.advice if reason.step]
        return tuple(step for index, step in enumerate(steps) if step not in steps[:index])

    def advising(self, step: str) -> Reason:
        """The reason that advises a step, by the step's name."""
        for reason in self.reasons:
            if reason.step and step in reason.step:
                return reason
        raise KeyError(
            f"nothing here advises '{step}'; advised: "
            f"{', '.join(map(step_text, self.steps)) or 'nothing'}"
        )

    @property
    def frame(self) -> Frame:
        """A row per reason."""
        return frame_of(self.reasons, columns=Reason.model_fields)

    @property
    def title(self) -> str:
        """The layer, its time and its share, in a line."""
        return (
            f"{self.layer or self.workload} ({self.kind}): {readable_ms(self.ms)} ms, "
            f"{self.share:.1%} of the time"
        )

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"· {reason}" for reason in self.reasons)])

    def _repr_html_(self) -> str:
        return view("explanation", self)


def step_text(step: dict[str, dict[str, Any]]) -> str:
    """A step as one line: `layout`, `backend name=onnxruntime`."""
    return ", ".join(
        " ".join([name, *(f"{key}={value}" for key, value in options.items())])
        for name, options in step.items()
    )


Outcome = Literal["passed", "failed", "not measurable"]

SIGNS: dict[Outcome, str] = {"passed": "✓", "failed": "✗", "not measurable": "–"}


class Check(Record):
    """One check: its measured figure and, if it failed, the remedy."""

    name: str
    outcome: Outcome
    figure: str
    remedy: str | None = None
    step: dict[str, Any] | None = None
    value: float | None = None
    limit: float | None = None


class Checklist(TableRecord):
    """The checks of a training loop or an inference."""

    columns: ClassVar[Columns] = {
        "check": "name",
        "outcome": lambda line: f"{SIGNS[line.outcome]} {line.outcome}",
        "figure": "figure",
        "remedy": lambda line: line.remedy or "",
    }
    text_columns = ("check", "outcome", "figure", "remedy")
    row_field = "lines"
    row_key = "name"

    subject: str
    lines: tuple[Check, ...] = Field(min_length=1)
    is_interrupted: bool = False

    def __getitem__(self, name: str) -> Check:
        return row_of(self.lines, "name", name, "check")

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(line for line in self.lines if line.outcome == "failed")

    @property
    def steps(self) -> tuple[dict[str, Any], ...]:
        """The recipe steps that fix failed checks, in an order that a recipe accepts."""
        return tuple(line.step for line in self.failed if line.step is not None)

    @property
    def title(self) -> str:
        counts = Counter(line.outcome for line in self.lines)
        ended = ", ".join(f"{counts[outcome]} {outcome}" for outcome in SIGNS if counts[outcome])
        return f"{self.subject} · {ended}{' · stopped early' if self.is_interrupted else ''}"

    def table(self) -> list[dict[str, str]]:
        return without_empty(super().table())

    def is_bold(self, row: dict[str, str]) -> bool:
        return row["outcome"].endswith("failed")


MAX_ROWS = 15
MOST_NAMED = 3  # layers at which the output error grows most
MIN_GROWTH = 1e-4  # a growth below it is rounding


class LayerPair(Record):
    """A layer before and after; None if it did not exist."""

    layer: str
    kind_before: str | None
    kind_after: str | None
    before_ms: float | None
    after_ms: float | None
    ran_as: str = ""  # the costliest kernel or operator before
    runs_as: str = ""  # and after
    output_error: float | None = None  # relative, of its output; None where it computes another
    error_added: float | None = None  # beyond that of its inputs
    note: str = ""

    @property
    def saved_ms(self) -> float:
        """The self time saved; negative if it is slower."""
        return (self.before_ms or 0.0) - (self.after_ms or 0.0)


class SideBySide(TableRecord):
    """Two profiles, layer by layer; the speed-up is known if both were timed in turn."""

    text_columns = ("layer", "runs as", "note")

    before: str
    after: str
    before_ms: float
    after_ms: float
    speedup: float | None = None
    speedup_interval: tuple[float, float] | None = None
    predicted: Reason | None = None
    rows: tuple[LayerPair, ...]
    is_interrupted: bool = False
    quality: Quality | None = None  # of the machine in the more disturbed of the two

    @property
    def achieved_ms(self) -> float:
        """The latency saved."""
        return self.before_ms - self.after_ms

    @property
    def largest(self) -> tuple[LayerPair, ...]:
        """The layers that changed most."""
        return tuple(sorted(self.rows, key=lambda row: -abs(row.saved_ms)))

    @property
    def frame(self) -> Frame:
        rows = [row.model_dump() | {"saved_ms": row.saved_ms} for row in self.rows]
        return frame_of(rows, "layer")

    @property
    def title(self) -> str:
        before, after = readable_ms(self.before_ms), readable_ms(self.after_ms)
        took = f"{self.before}: {before} ms → {self.after}: {after} ms"
        if self.speedup is not None and self.speedup_interval is not None:
            rough = sign(word_for(self.speedup_interval, self.quality), self.quality)
            interval = readable_interval(self.speedup_interval)
            took += f", {rough}{self.speedup:.2f} × ({interval})"
        return f"{took}{' · stopped early' if self.is_interrupted else ''}"

    @property
    def promise(self) -> str:
        """The predicted and the achieved saving, as text."""
        if self.predicted is None or self.predicted.saves_ms is None:
            return ""
        return (
            f"predicted {_change(self.predicted.saves_ms)} ms ({self.predicted.known}), achieved "
            f"{_change(self.achieved_ms)} ms"
        )

    def table(self) -> list[dict[str, str]]:
        """The layers that changed most, as text."""
        rows = [
            {
                "layer": row.layer or self.before,
                "before ms": or_dash(row.before_ms, "{:.3f}"),
                "after ms": or_dash(row.after_ms, "{:.3f}"),
                "change ms": _change(row.saved_ms),
                "runs as": row.runs_as,
                "output error": or_dash(row.output_error, "{:.1e}"),
                "note": row.note,
            }
            for row in self.largest[:MAX_ROWS]
        ]
        return without_empty(rows) if rows else rows

    @property
    def captions(self) -> list[str]:
        quality = self.quality.sentence if self.quality else ""
        return [line for line in (self.title, self.promise, self.error_growth, quality) if line]

    @property
    def error_growth(self) -> str:
        """The layers at which the output error grows most, as text; '' without an error."""
        grown = sorted(self.rows, key=lambda row: -(row.error_added or 0.0))[:MOST_NAMED]
        names = [
            f"'{row.layer}' (+{row.error_added:.1e})"
            for row in grown
            if row.error_added and row.error_added > MIN_GROWTH
        ]
        return f"the output error grows most at {', '.join(names)}" if names else ""


def _change(saved_ms: float) -> str:
    """Saved time as a signed change: −3.2 saves, +0.4 costs; 0 if it rounds to zero."""
    text = f"{abs(saved_ms):.3f}" if abs(saved_ms) < 10 else f"{abs(saved_ms):.1f}"
    return "0" if float(text) == 0 else f"{'−' if saved_ms > 0 else '+'}{text}"

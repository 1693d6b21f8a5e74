"""Why a layer or a model is not faster, and which steps would help."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from .record import Record
from .text import readable_share
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas

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
    error_ms: float | None = Field(
        default=None, description="the usual error of an estimated saving"
    )

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
        around = f" ± {self.error_ms:.2g}" if self.error_ms is not None else ""
        return f"{label} {word} about {abs(self.saves_ms):.3g}{around} ms ({self.known})"

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
    def frame(self) -> pandas.DataFrame:
        """A row per reason."""
        import pandas

        return pandas.DataFrame(
            [reason.model_dump() for reason in self.reasons], columns=list(Reason.model_fields)
        )

    @property
    def title(self) -> str:
        """The layer, its time and its share, in a line."""
        return (
            f"{self.layer or self.workload} ({self.kind}): {self.ms:.3g} ms, {self.share:.1%} of "
            "the time"
        )

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"· {reason}" for reason in self.reasons)])

    def __repr__(self) -> str:
        return f"Explanation({self.layer or self.workload}: {len(self.reasons)} reasons)"

    def _repr_html_(self) -> str:
        items = "".join(
            f"<li>{html.escape(reason.sentence)}"
            + (f" <b>→ {html.escape(reason.advice)}</b>" if reason.step else "")
            + "</li>"
            for reason in self.reasons
        )
        return f"<div><b>{html.escape(self.title)}</b><ul>{items}</ul></div>"


def step_text(step: dict[str, dict[str, Any]]) -> str:
    """A step as one line: `layout`, `backend name=onnxruntime`."""
    return ", ".join(
        " ".join([name, *(f"{key}={value}" for key, value in options.items())])
        for name, options in step.items()
    )

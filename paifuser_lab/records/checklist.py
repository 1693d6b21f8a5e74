"""A performance checklist: each check passed, failed with a remedy, or was not measurable."""

from __future__ import annotations

import html
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from .record import Record

if TYPE_CHECKING:
    import pandas

Outcome = Literal["passed", "failed", "not measurable"]

SIGNS: dict[Outcome, str] = {"passed": "✓", "failed": "✗", "not measurable": "–"}
WIDTH = 118


class Check(Record):
    """One check: its measured figure and, if it failed, the remedy."""

    name: str
    outcome: Outcome
    figure: str
    remedy: str | None = None
    step: dict[str, Any] | None = None
    value: float | None = None
    limit: float | None = None


class Checklist(Record):
    """The checks of a training loop or an inference."""

    subject: str
    lines: tuple[Check, ...] = Field(min_length=1)
    is_interrupted: bool = False

    def __getitem__(self, name: str) -> Check:
        for line in self.lines:
            if line.name == name:
                return line
        raise KeyError(
            f"no check {name!r}; there are {', '.join(line.name for line in self.lines)}"
        )

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(line for line in self.lines if line.outcome == "failed")

    @property
    def steps(self) -> tuple[dict[str, Any], ...]:
        """The recipe steps that fix failed checks, in an order that a recipe accepts."""
        return tuple(line.step for line in self.failed if line.step is not None)

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per check, as plain values."""
        import pandas

        return pandas.DataFrame([line.model_dump() for line in self.lines]).set_index("name")

    @property
    def title(self) -> str:
        """The subject and the number of checks by outcome."""
        counts = Counter(line.outcome for line in self.lines)
        ended = ", ".join(f"{counts[outcome]} {outcome}" for outcome in SIGNS if counts[outcome])
        return f"{self.subject} · {ended}{' · stopped early' if self.is_interrupted else ''}"

    def __str__(self) -> str:
        indent = 4 + max(len(line.name) for line in self.lines)
        return "\n".join([self.title, *(_readable(line, indent) for line in self.lines)])

    def __repr__(self) -> str:
        return f"Checklist({self.title})"

    def _repr_html_(self) -> str:
        body = "".join(_row(line) for line in self.lines)
        return f"<table><caption>{html.escape(self.title)}</caption><tbody>{body}</tbody></table>"


def _readable(line: Check, indent: int) -> str:
    """A check as text, with its remedy below its figure."""
    text = [line.figure, *([f"→ {line.remedy}"] if line.remedy else [])]
    wrapped = [
        row for part in text for row in textwrap.wrap(part, WIDTH - indent, break_on_hyphens=False)
    ]
    return f"{SIGNS[line.outcome]} {line.name.ljust(indent - 2)}" + ("\n" + " " * indent).join(
        wrapped
    )


def _row(line: Check) -> str:
    remedy = f"<br><b>→ {html.escape(line.remedy)}</b>" if line.remedy else ""
    aligned = 'style="text-align:left;vertical-align:top{}"'
    return (
        f'<tr><td title="{line.outcome}" {aligned.format("")}>{SIGNS[line.outcome]}</td>'
        f"<td {aligned.format(';white-space:nowrap')}>{html.escape(line.name)}</td>"
        f"<td {aligned.format('')}>{html.escape(line.figure)}{remedy}</td></tr>"
    )

"""What every bench is made of: a record with a table, one measurement after another, and the
options that commands share. The function `bench` of a module is the declaration, of which
`paifuser_lab.cli.bench` makes a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import typer
from pydantic import Field

from ..errors import MeasureError, PaifuserError, StoppedError, first_line, keep_when_stopped
from ..machine import machine_label
from ..progress import progress
from ..records.record import TableRecord
from ..records.table import Columns as Columns
from ..records.table import table_of as table_of

INTERRUPTED = "interrupted"
Value = TypeVar("Value")
Keep = Callable[[Any], object]  # takes the record of what was measured so far

Names = Annotated[
    list[str] | None, typer.Argument(help="Models; the bench's own where none is named.")
]
Words = Annotated[list[str] | None, typer.Argument(help="Words in names; all without any.")]
Seconds = Annotated[float, typer.Option(help="Time for each measurement.", min=0.1)]
Threads = Annotated[int, typer.Option(help="Threads of a call or step.", min=1)]


class BenchRecord(TableRecord):
    """What a bench measured: rows, and why others are missing."""

    machine: str = Field(default_factory=machine_label)
    rows: tuple[Any, ...] = ()
    failures: dict[str, str] = {}
    caption: ClassVar[str] = "measured on {0.machine}"  # of the table, with fields of the record

    @property
    def title(self) -> str:
        """The title of the table."""
        return self.caption.format(self)

    def table(self) -> list[dict[str, str]]:
        """The cells of each row, by header."""
        return super().table() or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """What the table does not say, a line each: at least the failures."""
        return "\n".join(self.failed)

    @property
    def failed(self) -> list[str]:
        """The failures, a line each."""
        return [f"{name}: {why}" for name, why in self.failures.items()]

    @property
    def is_good(self) -> bool:
        """Whether the command ends with 0: false where something is not as promised."""
        return True


def measure_each(
    names: Sequence[str], measure: Callable[[str], object], what: str = "models"
) -> dict[str, str]:
    """Call `measure` with each name; returns the failures, by name. Ctrl-C keeps what there is."""
    failures: dict[str, str] = {}
    with progress(what, len(names)) as shown, keep_when_stopped() as ending:
        for name in names:
            try:
                measure(name)
            except StoppedError:
                raise
            except PaifuserError as error:
                failures[name] = first_line(error)
            shown.advance(doing=name)
    if ending.is_stopped:
        failures[INTERRUPTED] = "the results until then are shown"
    return failures


def measured_rows(
    names: Sequence[str], measure: Callable[[str], Iterable[Any]], what: str = "models"
) -> dict[str, Any]:
    """A record's `rows`, of all that `measure` gives for each name, and its `failures`."""
    rows: list[Any] = []
    failures = measure_each(names, lambda name: rows.extend(measure(name)), what)
    return {"rows": tuple(rows), "failures": failures}


def measured(measure: Callable[[], Value]) -> Value:
    """Call what another package may fail in; its errors become one that `measure_each` records."""
    try:
        return measure()
    except PaifuserError:
        raise
    except Exception as error:
        raise MeasureError(f"{type(error).__name__}: {first_line(error)}") from error


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise for a name that this bench does not train."""
    known = list(known)
    if unknown := [name for name in names if name not in known]:
        raise MeasureError(f"{unknown[0]!r} is not trained here; there are {', '.join(known)}.")

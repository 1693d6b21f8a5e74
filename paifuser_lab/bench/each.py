"""Measure one item after another: a failure is recorded, and Ctrl-C keeps the results so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..errors import MeasureError, PaifuserError, StoppedError, first_line
from ..progress import progress
from ..stopping import keep_when_stopped

INTERRUPTED = "interrupted"
Value = TypeVar("Value")


def measure_each(
    names: Sequence[str], measure: Callable[[str], object], what: str = "models"
) -> dict[str, str]:
    """Call `measure` with each name; returns the failures, by name."""
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


def measured(measure: Callable[[], Value]) -> Value:
    """Call what another package may fail in; its errors become one that `measure_each` records."""
    try:
        return measure()
    except PaifuserError:
        raise
    except Exception as error:
        raise MeasureError(f"{type(error).__name__}: {first_line(error)}") from error

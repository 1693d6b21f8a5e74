"""Numbers and devices that a caller asks for, checked before anything runs. Stands on torch."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import torch

from .errors import MeasureError, PaifuserError, WorkloadError, first_line

MOST_THREADS = 1024


def check_count(
    name: str,
    value: Any,
    *,
    least: int = 1,
    most: float = math.inf,
    error: type[PaifuserError] = MeasureError,
) -> None:
    """Refuse what is no integer of at least `least` and at most `most`; a bool is none."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or not least <= int(value) <= most:
        wanted = f"{least} or more" if most == math.inf else f"{least} to {most:.0f}"
        raise error(f"{name}={value!r} is not possible; give an integer of {wanted}.")


def check_threads(value: Any) -> None:
    """Refuse what is no number of threads; None leaves the choice."""
    if value is not None:
        check_count("threads", value, most=MOST_THREADS)


def check_seconds(value: Any, *, may_be_zero: bool = True) -> None:
    """Refuse what is no time to measure for, such as NaN; infinity sets no limit."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not (float(value) >= 0 if may_be_zero else float(value) > 0):
        wanted = "0 or more" if may_be_zero else "more than 0"
        raise MeasureError(f"seconds={value!r} leaves no time to measure; give a number, {wanted}.")


def device_of(name: str | torch.device) -> torch.device:
    """The device of that name; an error with a remedy where torch has none here."""
    try:
        device = torch.device(name)
        torch.empty(0, dtype=torch.float32, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = first_line(error).rstrip(".")
        raise WorkloadError(
            f"device={str(name)!r} cannot be used here ({reason}); give 'cpu', or 'cuda' where "
            "torch sees a GPU."
        ) from error
    return device

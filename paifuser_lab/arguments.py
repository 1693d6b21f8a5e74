"""Validate numbers, sizes, devices and options passed by the caller before anything runs. Built on
torch and pydantic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ValidationError

from .errors import MeasureError, PaifuserError, WorkloadError, first_line

Options = TypeVar("Options", bound=BaseModel)
MAX_THREADS = 1024
DECIMAL = {f"{prefix}B": 1000**power for power, prefix in enumerate(("", "k", "M", "G", "T"))}
BINARY = {f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), 1)}
UNITS = {"": 1, **DECIMAL, **BINARY}
SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*", re.ASCII)


def check_count(
    name: str,
    value: Any,
    *,
    least: int = 1,
    most: float = math.inf,
    error: type[PaifuserError] = MeasureError,
) -> None:
    """Raise unless `value` is an integer from `least` to `most`; a bool is not an integer."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or not least <= int(value) <= most:
        allowed = f"{least} or more" if most == math.inf else f"{least} to {most:.0f}"
        raise error(f"{name}={value!r} is not possible; give an integer of {allowed}.")


def check_threads(value: Any) -> None:
    """Raise unless `value` is a valid number of threads or None, which means the default."""
    if value is not None:
        check_count("threads", value, most=MAX_THREADS)


def check_error(value: Any) -> None:
    """Raise unless `value` is an allowed output error; 0 means that nothing may differ."""
    if not _is_amount(value):
        raise MeasureError(
            f"max_error={value!r} allows no output error; give a number, 0 or more, such as 0.02."
        )


def check_seconds(value: Any, *, may_be_zero: bool = True) -> None:
    """Raise unless `value` is a valid measuring time; NaN is not, infinity means no limit."""
    if not _is_amount(value) or not (may_be_zero or value):
        allowed = "0 or more" if may_be_zero else "more than 0"
        raise MeasureError(
            f"seconds={value!r} leaves no time to measure; give a number, {allowed}."
        )


def _is_amount(value: Any) -> bool:
    """Whether it is a number of 0 or more, not NaN; a bool is no number."""
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) >= 0


def checked_options(
    kind: type[Options], options: Mapping[str, Any], what: str, error: type[PaifuserError]
) -> Options:
    """The options as a model of pydantic's; the first that is invalid is named in the error."""
    try:
        return kind(**options)
    except ValidationError as invalid:
        first = invalid.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise error(
            f"{name}={first['input']!r} is no option of {what}: {first['msg']}; there are "
            f"{', '.join(kind.model_fields)}."
        ) from invalid


def bytes_of(size: int | str) -> int:
    """2_000_000_000, '2 GB' or '1.5 GiB' as a number of bytes."""
    units = {name.casefold(): factor for name, factor in UNITS.items()}
    match = SIZE.fullmatch(size) if isinstance(size, str) else None
    if isinstance(size, int) and not isinstance(size, bool):
        count = size
    elif (
        match
        and match[2].casefold() in units
        and math.isfinite(number := float(match[1]) * units[match[2].casefold()])
    ):
        count = int(number)
    else:
        known = ", ".join(name for name in UNITS if name)
        raise MeasureError(
            f"A memory limit of {size!r} cannot be read; give bytes as an int, or a number and one "
            f"of {known}."
        )
    if count < 1:
        raise MeasureError(f"A memory limit of {size!r} holds nothing; give at least one byte.")
    return count


def device_of(name: str | torch.device) -> torch.device:
    """The torch device of this name; raises if torch cannot use it on this machine."""
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

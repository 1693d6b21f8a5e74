"""The best tiles measured, a JSON file per device: shipped ones, and over them the user's."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..._files import asset, cache_folder, read_text, write_text
from ...errors import FileError, first_line

LIMIT_BYTES = 4 << 20


class Best(BaseModel):
    """The best tile of a problem, its time beside the default's, and the versions then."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    tile: dict[str, int]
    ms: float = Field(gt=0)
    default_ms: float = Field(gt=0)
    when: str
    versions: dict[str, str]


class Measured(BaseModel):
    """All best tiles of a device: by kernel, by problem."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: Literal[1] = 1
    device: str
    kernels: dict[str, dict[str, Best]] = {}


@cache
def measured_on(device: str) -> Measured:
    """The best tiles of a device; the user's replace the shipped ones of the same problem."""
    measured = Measured(device=device)
    for path in _paths(device):
        measured = _merged(measured, _read(path, device))
    return measured


def keep(device: str, kernel: str, problem: str, best: Best) -> Path:
    """Add a problem's best tile to the user's file."""
    path = _own(device)
    added = Measured(device=device, kernels={kernel: {problem: best}})
    return write_text(path, _merged(_read(path, device), added).model_dump_json(indent=1) + "\n")


def _paths(device: str) -> Iterator[Path]:
    with suppress(FileError):  # nothing is shipped for most devices
        yield asset(f"kernels/tuned/{_stem(device)}.json")
    try:
        yield _own(device)
    except OSError as error:
        warnings.warn(
            f"The cache of measured tiles cannot be used: {error.strerror or first_line(error)}.",
            stacklevel=2,
        )


def _own(device: str) -> Path:
    return cache_folder("tuned") / f"{_stem(device)}.json"


def _stem(device: str) -> str:
    """A device's name as a file name: NVIDIA H200 becomes nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", device.casefold()).strip("-") or "unnamed"


def _read(path: Path, device: str) -> Measured:
    """A file's content; empty, with a warning, if it is damaged or of another kind."""
    empty = Measured(device=device)
    if not path.exists():
        return empty
    try:
        measured = Measured.model_validate_json(read_text(path, limit_bytes=LIMIT_BYTES))
        reason = "" if measured.device == device else f"it is of {measured.device}"
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
    except FileError as error:
        reason = str(error).rstrip(".")
    if not reason:
        return measured
    warnings.warn(
        f"Measured tiles are ignored, {path.name} is not a valid file of tiles ({reason}); tune "
        "again, or delete it.",
        stacklevel=2,
    )
    return empty


def _merged(below: Measured, above: Measured) -> Measured:
    """Both, those above replacing those below of the same problem."""
    names = below.kernels.keys() | above.kernels.keys()
    kernels = {
        name: {**below.kernels.get(name, {}), **above.kernels.get(name, {})}
        for name in sorted(names)
    }
    return below.model_copy(update={"kernels": kernels})

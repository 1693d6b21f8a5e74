"""The best tiles measured, one JSON file a device: those shipped, overridden by the user's own
cache.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..._files import asset, cache_folder, read_text, write_text
from ...errors import FileError, first_line

LIMIT_BYTES = 4 << 20


class Best(BaseModel):
    """The best tile of a problem, its time and the default's in the same rounds, and what it was
    measured with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    tile: dict[str, int]
    ms: float = Field(gt=0)
    default_ms: float = Field(gt=0)
    when: str
    versions: dict[str, str]


class Measured(BaseModel):
    """Everything that was measured on a device: by kernel, by problem."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: Literal[1] = 1
    device: str
    kernels: dict[str, dict[str, Best]] = {}


def measured_on(device: str) -> Measured:
    """The tiles known for a device; of a problem that both files have, the user's."""
    found = Measured(device=device)
    for path in _places(device):
        found = _over(found, _read(path, device))
    return found


def keep(device: str, kernel: str, problem: str, best: Best) -> Path:
    """Add a problem's best tile to the user's own file."""
    path = _own(device)
    made = Measured(device=device, kernels={kernel: {problem: best}})
    return write_text(path, _over(_read(path, device), made).model_dump_json(indent=1) + "\n")


def _places(device: str) -> Iterator[Path]:
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
    """A device's name as a file's: NVIDIA H200 is nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", device.casefold()).strip("-") or "unnamed"


def _read(path: Path, device: str) -> Measured:
    """A file's content; empty, with a warning, where it is damaged or of another kind."""
    nothing = Measured(device=device)
    if not path.exists():
        return nothing
    try:
        found = Measured.model_validate_json(read_text(path, limit_bytes=LIMIT_BYTES))
        reason = "" if found.device == device else f"it is of {found.device}"
    except ValidationError as error:
        wrong = error.errors()[0]
        reason = f"{'.'.join(map(str, wrong['loc'])) or 'the whole'}: {wrong['msg']}"
    except FileError as error:
        reason = str(error).rstrip(".")
    if not reason:
        return found
    warnings.warn(
        f"Measured tiles are ignored, {path.name} is not one of ours ({reason}); tune again, or "
        "delete it.",
        stacklevel=2,
    )
    return nothing


def _over(below: Measured, above: Measured) -> Measured:
    names = below.kernels.keys() | above.kernels.keys()
    kernels = {
        name: {**below.kernels.get(name, {}), **above.kernels.get(name, {})}
        for name in sorted(names)
    }
    return below.model_copy(update={"kernels": kernels})

"""What importers share: limits of what a file may ask for, its names shown, made-up inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FileError, WorkloadError

MAX_FILE = 2 << 30  # bytes: a protobuf message cannot be longer
MAX_NODES = 100_000
MAX_DEPTH = 16  # of graphs inside nodes, and of functions that call functions
MAX_RANK = 32
MAX_ELEMENTS = 1 << 29  # of one tensor
SHOWN = 60  # characters of a name


@dataclass(frozen=True)
class Imported:
    """A model that was read from a file, with example inputs, and notes on how it runs."""

    model: nn.Module
    inputs: Any
    name: str
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()  # that it was read from
    preprocessing: dict[str, Any] | None = None  # as the file states it
    make_tokenizer: Callable[[], Any] | None = None


class NotConvertibleError(Exception):
    """A part of a file has no counterpart in torch; the file can still be run as it is."""


def shown(text: Any) -> str:
    """A name from a file as it is shown in a message: quoted, in one line, not too long."""
    text = str(text)
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def checked_shape(dims: Iterable[int], what: str, *, limit: int = MAX_ELEMENTS) -> tuple[int, ...]:
    """The shape, if a tensor can have it here; else a FileError, before anything is allocated."""
    shape = tuple(int(size) for size in dims)
    if any(size < 0 for size in shape):
        raise FileError(f"{what} has a negative size in its shape {short(shape)}; export it again.")
    if len(shape) > MAX_RANK or prod(shape) > limit:
        raise FileError(
            f"{what} has the shape {short(shape)}, past the limit of {limit:,} elements; is it "
            "the right file?"
        )
    return shape


def short(shape: tuple[int, ...]) -> str:
    """A shape in a message."""
    text = "×".join(map(str, shape[:8]))
    return f"{text}×…" if len(shape) > 8 else text or "()"


def identifier(text: str) -> str:
    """A Python name that is as near as possible to a name in a file."""
    text = re.sub(r"[^0-9A-Za-z_]+", "_", text)[:SHOWN].strip("_") or "value"
    return f"_{text}" if text[0].isdigit() else text


def plausible(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, rows: int, generator: torch.Generator
) -> Tensor:
    """Values that an input can have: noise, indices below a number of rows, or 1 in a mask."""
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex64).to(dtype)
    if "mask" in name or dtype is torch.bool:
        return torch.ones(shape, dtype=dtype)
    return torch.randint(0, max(1, rows), shape, generator=generator).to(dtype)


def checked_inputs(file: str, names: Sequence[str], inputs: Any) -> dict[str, Tensor]:
    """The inputs in the order of the names, if they are tensors with these names."""
    if not isinstance(inputs, Mapping) or sorted(names) != sorted(map(str, inputs)):
        what = (
            ", ".join(map(shown, inputs)) if isinstance(inputs, Mapping) else type(inputs).__name__
        )
        raise WorkloadError(
            f"{file} reads {', '.join(map(shown, names))}, and inputs gives {what or 'none'}; give "
            "a dict with these names."
        )
    for name in names:
        if not isinstance(inputs[name], Tensor):
            raise WorkloadError(
                f"{file}: the input {shown(name)} is a {type(inputs[name]).__name__}; give a "
                "tensor, such as torch.as_tensor(…)."
            )
    return {name: inputs[name] for name in names}

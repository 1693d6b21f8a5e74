"""Example inputs of a model from a file, made up from the shapes that it declares, with a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import WorkloadError
from .limits import shown

# operators of ONNX and of ATen that hand on the indices that they read
PASSES_ON = (
    "Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze",
    "to", "_to_copy", "alias", "clone", "detach", "view", "reshape", "flatten", "squeeze",
    "unsqueeze", "contiguous", "slice",
)  # fmt: skip


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

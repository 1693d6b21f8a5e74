"""Reads what a client sent: an image, a NumPy file, or JSON; nothing in it is executed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError, first_line
from ..frame import Frame
from ..model import OpenModel
from ..stages.decode import decoded_image

IMAGES = ("image/jpeg", "image/png")
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class UnsupportedError(DataError):
    """The body is of a kind that the model does not take."""


def read_body(content_type: str, body: bytes, model: OpenModel) -> Frame | list[Tensor]:
    """A request's example: a frame, or the model's tensors without their batch dimension."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in READERS:
        raise UnsupportedError(
            f"A body of type {kind[:60] or 'unknown'} is not understood; send Content-Type "
            f"{', '.join(READERS)}."
        )
    if not body:
        raise DataError("The request has no body; send an image or a tensor.")
    return READERS[kind](body, model)


def _image(body: bytes, model: OpenModel) -> Frame:
    if model.image_shape is None:
        raise UnsupportedError(f"{model.name} does not take images; send a tensor.")
    return Frame(decoded_image(body))


def _numpy(body: bytes, model: OpenModel) -> list[Tensor]:
    """The tensor of a .npy file."""
    try:
        array = np.load(io.BytesIO(body), allow_pickle=False)
    except Exception as error:  # NumPy raises many kinds for a damaged header
        raise DataError(
            "The body is no whole .npy file of numbers; nothing pickled is read."
        ) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or array.itemsize > 8:
        raise DataError("A tensor holds numbers of 64 bits or less; send one as a .npy file.")
    return _checked([array.astype(array.dtype.newbyteorder("="))], model)


def _json(body: bytes, model: OpenModel) -> list[Tensor]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"The body is not JSON: {first_line(error)}.") from error
    if not isinstance(content, dict) or "inputs" not in content:
        raise DataError('JSON has the form {"inputs": …}: a tensor as lists, or several by name.')
    inputs = content["inputs"]
    names = list(model.specs)
    if not isinstance(inputs, dict):
        inputs = {names[0]: inputs} if len(names) == 1 else inputs
    if not isinstance(inputs, dict) or inputs.keys() != set(names):
        found = ", ".join(map(str, inputs)) if isinstance(inputs, dict) else "one list"
        raise DataError(f"{model.name} takes inputs {', '.join(names)}, not {found}.")
    return _checked([_of_lists(inputs[name], name) for name in names], model)


def _of_lists(value: Any, name: str) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(value)
    except (ValueError, RecursionError, OverflowError) as error:
        raise DataError(f"Input {name} is no tensor: {first_line(error)}.") from error
    if array.dtype.kind not in "fiub":
        raise DataError(f"Input {name} is no tensor of numbers.")
    return array


def _checked(arrays: list[np.ndarray[Any, Any]], model: OpenModel) -> list[Tensor]:
    specs = model.specs
    if len(arrays) != len(specs):
        raise UnsupportedError(
            f"{model.name} takes {len(specs)} tensors; send JSON with {', '.join(specs)}."
        )
    return [
        _tensor(array, name, shape, kind)
        for array, (name, (shape, kind)) in zip(arrays, specs.items(), strict=True)
    ]


def _tensor(
    array: np.ndarray[Any, Any], name: str, shape: tuple[int, ...], kind: torch.dtype
) -> Tensor:
    if array.shape == (1, *shape):
        array = array[0]
    if array.shape != shape:
        raise DataError(
            f"Input {name} has shape {_written(array.shape)}; one example has {_written(shape)}."
        )
    if array.dtype.kind == "f" and not kind.is_floating_point:
        raise DataError(f"Input {name} has {array.dtype}, and the model takes {_type_name(kind)}.")
    if array.dtype.kind in "iu" and kind in INTEGERS:
        _check_range(array, name, kind)
    tensor = torch.from_numpy(np.array(array)).to(kind)
    if kind.is_floating_point and not torch.isfinite(tensor).all():
        raise DataError(f"Input {name} has values that are not finite in {_type_name(kind)}.")
    return tensor


def _check_range(array: np.ndarray[Any, Any], name: str, kind: torch.dtype) -> None:
    """An integer that the type does not have would become another one."""
    limits = torch.iinfo(kind)
    least, most = int(array.min(initial=0)), int(array.max(initial=0))
    if least < limits.min or most > limits.max:
        raise DataError(
            f"Input {name} has values from {least} to {most}; {_type_name(kind)} holds "
            f"{limits.min} to {limits.max}."
        )


def _type_name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _written(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a single number"


READERS: dict[str, Callable[[bytes, OpenModel], Frame | list[Tensor]]] = {
    **dict.fromkeys(IMAGES, _image),
    "application/x-npy": _numpy,
    "application/json": _json,
}

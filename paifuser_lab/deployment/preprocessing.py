"""What a model expects of its inputs: shapes and types, and where known how an image or a text
becomes a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from torch import nn

from ..converter import Exportable
from ..errors import ExportError

MODES = {1: "L", 3: "RGB"}  # channels of an image → what pillow calls them
STATED = ("mean", "std", "size", "order")  # what only its author knows of an image's preprocessing
Positive = Annotated[float, Field(gt=0)]


class InputSpec(BaseModel):
    """One input tensor; None in a shape is any size."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    name: str
    kind: Literal["image", "tokens", "array"]
    shape: tuple[PositiveInt | None, ...]
    dtype: str = Field(description="as numpy names it")
    layout: str = ""
    mode: str = Field(default="", description="of an image: RGB or L, as pillow names it")
    order: Literal["RGB", "BGR"] = Field(default="RGB", description="of three channels")
    size: tuple[PositiveInt, PositiveInt] | None = Field(default=None, description="height, width")
    mean: tuple[float, ...] | None = Field(
        default=None, description="a channel, of pixels from 0 to 1; None if nobody stated it"
    )
    std: tuple[Positive, ...] | None = None
    vocabulary: int | None = Field(default=None, description="tokens are below it")


class Preprocessing(BaseModel):
    """What a deployed model takes and returns."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    tolerance: float | None = Field(default=None, description="relative L2 error of the outputs")
    labels: tuple[str, ...] = ()


def preprocessing_of(
    exportable: Exportable,
    *,
    stated: Mapping[str, Any],
    labels: Sequence[str],
    is_dynamic: bool = False,
) -> Preprocessing:
    """The inputs as the example tells, with what was stated of the first, an image."""
    if unknown := sorted(stated.keys() - set(STATED)):
        raise ExportError(
            f"'{unknown[0]}' is no part of an image's preprocessing; give {', '.join(STATED)}."
        )
    specs = [
        _spec(name, tensor, exportable.module, is_dynamic=is_dynamic)
        for name, tensor in zip(exportable.input_names, exportable.tensors, strict=True)
    ]
    if all_stated := {**_of_workload(exportable, specs[0]), **stated}:
        specs[0] = _with_stated(specs[0], all_stated)
    own = exportable.preprocessing
    classes = own.classes if own is not None and not labels else ()
    return Preprocessing(
        inputs=tuple(specs),
        outputs=exportable.output_names,
        labels=classes or _checked_labels(labels or exportable.labels, exportable),
    )


def _of_workload(exportable: Exportable, spec: InputSpec) -> dict[str, Any]:
    """What the model's workload states of its image: a number for each channel."""
    own = exportable.preprocessing
    if own is None or spec.kind != "image":
        return {}
    count = spec.shape[1] or 1
    mean, std = (values * count if len(values) == 1 else values for values in (own.mean, own.std))
    return {"mean": mean, "std": std, "order": own.order}


def _spec(name: str, tensor: torch.Tensor, module: nn.Module, *, is_dynamic: bool) -> InputSpec:
    shape: list[int | None] = list(tensor.shape)
    if is_dynamic and shape:
        shape[0] = None
    dtype = str(tensor.numpy().dtype) if tensor.dtype != torch.bfloat16 else "float32"
    common: dict[str, Any] = {"name": name, "shape": tuple(shape), "dtype": dtype}
    if tensor.ndim == 4 and tensor.is_floating_point() and tensor.shape[1] in MODES:
        return InputSpec(
            **common,
            kind="image",
            layout="NCHW",
            mode=MODES[tensor.shape[1]],
            size=(tensor.shape[2], tensor.shape[3]),
        )
    if tensor.ndim == 2 and tensor.dtype in (torch.int64, torch.int32):
        return InputSpec(**common, kind="tokens", layout="NL", vocabulary=_vocabulary(module))
    return InputSpec(**common, kind="array")


def _vocabulary(module: nn.Module) -> int | None:
    """The number of rows of the largest embedding."""
    rows = [layer.num_embeddings for layer in module.modules() if isinstance(layer, nn.Embedding)]
    return max(rows, default=None)


def _with_stated(spec: InputSpec, stated: Mapping[str, Any]) -> InputSpec:
    """The image's spec with what was stated of it, each part checked against its shape."""
    if spec.kind != "image":
        raise ExportError(
            f"The input '{spec.name}' of shape {spec.shape} is no image; leave mean, std, size "
            "and order out."
        )
    channels = spec.shape[1]
    try:
        checked = InputSpec.model_validate({**spec.model_dump(), **stated})
    except ValidationError as error:
        first = error.errors()[0]
        raise ExportError(f"preprocessing: {first['loc'][0]}: {first['msg']}.") from error
    if (checked.mean is None) is not (checked.std is None):
        raise ExportError("preprocessing: give mean and std together, one number a channel.")
    for name in ("mean", "std"):
        values = getattr(checked, name)
        if values is not None and len(values) != channels:
            raise ExportError(
                f"preprocessing: {name} needs {channels} numbers, one a channel, not "
                f"{list(values)}."
            )
    if checked.size != spec.size:
        raise ExportError(
            f"preprocessing: the model takes images of {spec.size}, height and width, not "
            f"{checked.size}."
        )
    return checked


def _checked_labels(labels: Sequence[str], exportable: Exportable) -> tuple[str, ...]:
    """The labels, if there is one for each number of the first output's last dimension."""
    if not labels:
        return ()
    if isinstance(labels, str):
        raise ExportError("labels is a list of names, one a class, not a single text.")
    count = exportable.reference[0].shape[-1] if exportable.reference[0].ndim else 1
    if len(labels) != count:
        raise ExportError(
            f"There are {len(labels)} labels, and the output '{exportable.output_names[0]}' of "
            f"{exportable.name} has {count} numbers; give one label for each."
        )
    return tuple(map(str, labels))

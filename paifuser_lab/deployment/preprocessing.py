"""What a model expects of its inputs: shapes and types, and where known how an image or a text
becomes a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import nn

from ..converter import Exportable
from ..errors import ExportError
from ..workload.checks import checked_preprocessing

MODES = {1: "L", 3: "RGB"}  # channels of an image → what pillow calls them


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
    std: tuple[float, ...] | None = None
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
    """The inputs as the example tells, with what was stated of the first, an image, here or with
    the workload.
    """
    specs = [
        _spec(name, tensor, exportable.module, is_dynamic=is_dynamic)
        for name, tensor in zip(exportable.input_names, exportable.tensors, strict=True)
    ]
    own = exportable.work.preprocessing
    if stated:
        known = own.model_dump() if own is not None else {}
        own = checked_preprocessing(exportable.work, {**known, **stated})
    if own is not None and specs[0].kind == "image":
        count = specs[0].shape[1] or 1
        mean, std = (
            values * count if len(values) == 1 else values for values in (own.mean, own.std)
        )
        image = {"mean": mean, "std": std, "order": own.order}
        specs[0] = specs[0].model_copy(update=image)
    classes = own.classes if own is not None and not labels else ()
    return Preprocessing(
        inputs=tuple(specs),
        outputs=exportable.output_names,
        labels=classes or _checked_labels(labels or exportable.labels, exportable),
    )


def _spec(name: str, tensor: torch.Tensor, module: nn.Module, *, is_dynamic: bool) -> InputSpec:
    shape: list[int | None] = list(tensor.shape)
    if is_dynamic and shape:
        shape[0] = None
    known = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype  # to numpy
    dtype = str(known).removeprefix("torch.")
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


def _checked_labels(labels: Sequence[str], exportable: Exportable) -> tuple[str, ...]:
    """The labels, if there is one for each class: of the scores beside boxes, else of the first
    output, which has them in its channels where it is a mask.
    """
    if not labels:
        return ()
    if isinstance(labels, str):
        raise ExportError("labels is a list of names, one a class, not a single text.")
    outputs = dict(zip(exportable.output_names, exportable.reference, strict=True))
    name = "scores" if {"boxes", "scores"} <= outputs.keys() else exportable.output_names[0]
    shape = outputs[name].shape
    count = shape[1 if len(shape) == 4 else -1] if shape else 1
    if len(labels) != count:
        raise ExportError(
            f"There are {len(labels)} labels, and the output '{name}' of {exportable.name} has "
            f"{count} numbers; give one label for each."
        )
    return tuple(map(str, labels))

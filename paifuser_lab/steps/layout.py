"""Keeps images channels-last in memory, which is fastest in most convolution code."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..quantization.layers.int8 import Int8Convolution
from .step import Draft, Step


class Layout(Step):
    """Store four-dimensional weights and inputs channels-last; values do not change."""

    kind: ClassVar[str] = "layout"
    is_single: ClassVar[bool] = True
    main_option: ClassVar[str] = "format"
    tolerance: ClassVar[float | None] = 1e-4
    format: Literal["channels_last"] = Field(
        default="channels_last", description="the channels of a place lie side by side"
    )

    @property
    def label(self) -> str:
        return "channels last"

    def apply(self, draft: Draft) -> None:
        """Convert the weights once, and the inputs at each call."""
        draft.module._apply(_weight_channels_last)  # type: ignore[no-untyped-call]
        for layer in draft.module.modules():
            if isinstance(layer, Int8Convolution) and layer.values.ndim == 4:
                layer.is_channels_last = True  # as the output of its layer would be
        draft.module.register_forward_pre_hook(_images_channels_last, with_kwargs=True)
        images = sum(tensor.ndim == 4 for tensor in draft.work.inputs.tensors)
        draft.notes.append(
            "weights and inputs are channels-last"
            if images
            else "no image among the inputs: only weights are channels-last"
        )


def _images_channels_last(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return pytree.tree_map_only(Tensor, _channels_last, (args, kwargs))


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def _weight_channels_last(weight: Tensor) -> Tensor:
    # `contiguous` would leave 1×1 kernels as they are, and `Module.to` cannot take weights in 5-D
    return weight.to(memory_format=torch.channels_last) if weight.ndim == 4 else weight

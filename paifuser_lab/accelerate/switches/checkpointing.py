"""Activations computed again in the backward pass, where a loop's peak of memory is too high."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...arguments import bytes_of
from ...memory.predict.blocks import repeated_blocks
from ...training.checkpointing import recomputing
from ..race import Offer
from .base import Call, Parts, Switch

REPEATABLE = (nn.ReLU, nn.ReLU6)  # which change nothing more when they run a second time


class Checkpointing(Switch):
    """The repeated blocks of each model keep their inputs alone."""

    name = "checkpointing"
    saves_memory = True

    @property
    def offer(self) -> Offer:
        limit = bytes_of(self.options["memory_limit"])
        return Offer(self.label, saves_memory=True, limit_bytes=limit)

    def obstacle(self, parts: Parts) -> str:
        if not any(repeated_blocks(model) for model in parts.models):
            return "the model has no repeated blocks"
        if parts.is_compiled:
            return "the loop compiles its model, which plans memory itself"
        if "model_quantization" in self.options["switches"]:
            return "blocks that are computed again would not have their rounded weights"
        layers = [layer for model in parts.models for layer in model.modules()]
        in_place = [layer for layer in layers if getattr(layer, "inplace", False)]
        if other := [layer for layer in in_place if not isinstance(layer, REPEATABLE)]:
            return f"a {type(other[0]).__name__} writes into its input, which is needed again"
        return ""

    def wrap(self, model: nn.Module, call: Call) -> Call:
        blocks = repeated_blocks(model)

        def with_less_kept(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            with recomputing(model, blocks):
                return call(args, kwargs)

        return with_less_kept

"""A module whose output is rounded to 256 quantized values, and stays in int8 on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...formats import Range
from ..conversion import fake_quantize, quantize_values
from ..layers.tensor import Int8Tensor


@dataclass(frozen=True)
class RoundedOutput:
    """A module's forward hook that rounds its output."""

    span: Range

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        """The output in int8; a compiler or an exporter sees the rounding."""
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return output
        if torch.compiler.is_compiling():
            return fake_quantize(output, self.span)
        if output.device.type != "cpu":
            return self.span.rounded(output.float()).to(output.dtype)
        if isinstance(output, Int8Tensor) and output.written is None and output.span == self.span:
            return output
        numbers = output.dequantized() if isinstance(output, Int8Tensor) else output
        return Int8Tensor(quantize_values(numbers, self.span), self.span, output.dtype)


def round_outputs(model: nn.Module, spans: Mapping[str, Range]) -> None:
    """Make these modules round their outputs; those that already do are not changed."""
    done = rounded_outputs(model)
    for module, span in spans.items():
        if done.get(module) != span:
            model.get_submodule(module).register_forward_hook(RoundedOutput(span))


def rounded_outputs(model: nn.Module) -> dict[str, Range]:
    """The modules that round their outputs, and the ranges."""
    return {
        name: hook.span
        for name, module in model.named_modules()
        for hook in module._forward_hooks.values()
        if isinstance(hook, RoundedOutput)
    }

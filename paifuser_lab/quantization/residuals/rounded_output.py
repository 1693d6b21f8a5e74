"""A module whose output is rounded to 256 quantized values, in which it stays where that is done
here.
"""

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
    """A module's hook."""

    span: Range

    def __call__(self, module: nn.Module, args: Any, answer: Any) -> Any:
        """The output in int8; a compiler or an exporter is shown the rounding."""
        if not isinstance(answer, Tensor) or not answer.is_floating_point():
            return answer
        if torch.compiler.is_compiling():
            return fake_quantize(answer, self.span)
        if answer.device.type != "cpu":
            return self.span.rounded(answer.float()).to(answer.dtype)
        if isinstance(answer, Int8Tensor) and answer.written is None and answer.span == self.span:
            return answer
        numbers = answer.dequantized() if isinstance(answer, Int8Tensor) else answer
        return Int8Tensor(quantize_values(numbers, self.span), self.span, answer.dtype)


def round_outputs(model: nn.Module, spans: Mapping[str, Range]) -> None:
    """Have these modules round what they output; what they do already stays."""
    done = rounded_outputs(model)
    for module, span in spans.items():
        if done.get(module) != span:
            model.get_submodule(module).register_forward_hook(RoundedOutput(span))


def rounded_outputs(model: nn.Module) -> dict[str, Range]:
    """The modules that round what they output."""
    return {
        name: hook.span
        for name, module in model.named_modules()
        for hook in module._forward_hooks.values()
        if isinstance(hook, RoundedOutput)
    }

"""Find removable blocks: those that return their input when all of their weights are zero.

That holds where a block adds something to its input and nothing after the sum would change the
input alone: the residual blocks of ResNet (whose input is not negative, so that the last ReLU keeps
it) and MobileNetV2, and transformers that normalise before each branch. It does not hold where the
width or the resolution changes, nor where a norm follows the sum, as in BERT. The test is dynamic:
each layer is called once more with its own inputs, on the example inputs and on the same with their
signs flipped.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import first_line
from ...model.watch import watching
from ...quantization import QuantizedLayer
from ...workload import Inputs, running
from ..groups.trace_labels import sign_flipped
from .pass_through import PLAIN, Description, passed_on

HARMLESS = (Tensor, *PLAIN, tuple, list, dict, torch.dtype, torch.device)
NOT_RUN = "it did not run on the example inputs"


@dataclass
class Blocks:
    """By dotted path: the replacement of each removable block, why other layers cannot be removed,
    and the types of the arguments that a block may write to.
    """

    free: dict[str, Description] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    @property
    def innermost(self) -> list[str]:
        """The removable blocks that contain no other."""
        return [
            name
            for name in self.free
            if not any(other.startswith(f"{name}.") for other in self.free)
        ]

    def reason(self, layer: str) -> str:
        """Why a layer cannot be removed."""
        return self.refused.get(layer, NOT_RUN)


def find_blocks(model: nn.Module, inputs: Inputs) -> Blocks:
    """Test every layer that has weights, at each of its calls."""
    blocks = Blocks()
    _test_layers(model, inputs, blocks)
    flipped = sign_flipped(inputs)
    if flipped is not None:
        # a model may refuse such inputs; then the example inputs alone decide
        with suppress(Exception):
            _test_layers(model, flipped, blocks)
    names = {name: None for name, _ in model.named_modules()}
    blocks.free = {
        name: blocks.free[name]
        for name in names
        if name in blocks.free and name not in blocks.refused
    }
    return blocks


def zeroed(block: nn.Module) -> nn.Module:
    """Set a block's weights, and the means that its batch-norms subtract, to zero."""
    with torch.no_grad():
        for weight in block.parameters():
            weight.zero_()
        for name, buffer in block.named_buffers():
            if name.endswith("running_mean"):
                buffer.zero_()
    return block


def _test_layers(model: nn.Module, inputs: Inputs, blocks: Blocks) -> None:
    modules = dict(model.named_modules())

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if not layer or layer in blocks.refused:
            return
        description = _replacement(modules[layer], args, kwargs)
        if isinstance(description, str):
            blocks.refused[layer] = description
        elif blocks.free.setdefault(layer, description) != description:
            blocks.refused[layer] = "it is called in several ways"
        for value in (*args, *kwargs.values()):
            if not isinstance(value, HARMLESS):
                blocks.written[layer] = type(value).__name__

    own_inputs = inputs.clone()
    with running(model), watching(model, enter, lambda layer, output: None):
        own_inputs(model)


def _replacement(
    block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Description | str:
    """The description of the block's replacement, or why there is none."""
    if quantized := next(
        (module for module in block.modules() if isinstance(module, QuantizedLayer)), None
    ):
        return (
            f"it is in {quantized.format}, and only floating-point weights can be set to "
            "zero for the test; put 'shorten' before precision and qat"
        )
    if next(block.parameters(), None) is None:
        return "it has no weights"
    try:
        own_args, own_kwargs = copy.deepcopy((args, kwargs))
        output = zeroed(copy.deepcopy(block))(*own_args, **own_kwargs)
    except Exception as error:  # whatever its code raises
        return f"with zeros for weights it fails ({first_line(error)[:160]})"
    description = passed_on(block, args, kwargs, output)
    return _reason(args, kwargs, output) if description is None else description


def _reason(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> str:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    parts = [
        part
        for part in (output if isinstance(output, tuple | list) else [output])
        if isinstance(part, Tensor)
    ]
    if tensors and parts and all(part.shape != value.shape for part in parts for value in tensors):
        shapes = ("×".join(map(str, tensor.shape)) for tensor in (tensors[0], parts[0]))
        return "its input is {} and its output {}".format(*shapes)
    return "with zeros for weights it does not return its input unchanged"

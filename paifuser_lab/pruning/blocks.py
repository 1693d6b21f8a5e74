"""Shorter networks: find removable blocks, replace them, and choose those of least harm.

A block can be removed if it returns its input when all of its weights are zero. That holds where it
adds something to its input and nothing after the sum would change the input alone: the residual
blocks of ResNet (whose input is not negative, so that the last ReLU keeps it) and MobileNetV2, and
transformers that normalise before each branch. It does not hold where the width or the resolution
changes, nor where a norm follows the sum, as in BERT. The test is dynamic: each layer is called
once more with its own inputs, on the example inputs and on the same with their signs flipped.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import StoppedError, first_line
from ..measure import output_error
from ..model.replace import replace_layer
from ..model.watch import watching
from ..model.weights import float_dtype
from ..progress import progress
from ..quantization import QuantizedLayer
from ..records import counted
from ..workload import Inputs, running
from .groups.proof import HALF_TOLERANCE, TOLERANCE, difference, exact_copy, outputs_of
from .groups.trace_labels import sign_flipped

# the replacement as plain data; empty for a single tensor that is returned as it is
Description = dict[str, Any]

PLAIN = (bool, int, float, str, type(None))
HARMLESS = (Tensor, *PLAIN, tuple, list, dict, torch.dtype, torch.device)
RETRIED = 4  # in each round of least_harm: the best candidates of the round before
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


class PassThrough(nn.Module):
    """Replaces a block that returns a tuple, a list or a dict, or takes more than one argument."""

    def __init__(self, description: Description) -> None:
        super().__init__()
        self.description = description

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return each part of the output: one of the arguments, or a constant."""
        parts = [
            part["value"]
            if "name" not in part
            else kwargs[part["name"]]  # by name where it was passed so, else by position
            if part["name"] in kwargs
            else args[part["place"]]
            for part in self.description["parts"]
        ]
        match self.description["form"]:
            case "tuple":
                return tuple(parts)
            case "list":
                return parts
            case "dict":
                return dict(zip(self.description["keys"], parts, strict=True))
        return parts[0]

    def extra_repr(self) -> str:
        """The form of the output, shown when the model is printed."""
        return str(self.description["form"])


def replacement_for(block: nn.Module, description: Description) -> nn.Module:
    """The module in the block's place, with its plain attributes, for code that reads them."""
    replacement = PassThrough(description) if description else nn.Identity()
    attributes = {
        name: value
        for name, value in vars(block).items()
        if not name.startswith("_") and name not in ("training", "description")
    }
    vars(replacement).update(
        {name: value for name, value in attributes.items() if isinstance(value, PLAIN)}
    )
    return replacement


def passed_on(
    block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> Description | None:
    """Describe the output as made of the arguments, tensors among them; None where it is not."""
    form, keys, leaves = _opened(output)
    parts = [_part(block, args, kwargs, leaf) for leaf in leaves]
    known = [part for part in parts if part is not None]
    if not any(isinstance(leaf, Tensor) for leaf in leaves) or len(known) < len(parts):
        return None
    if form == "tensor" and len(args) == 1 and not kwargs:
        return {}
    return {"form": form, "keys": keys, "parts": known}


def _opened(output: Any) -> tuple[str, list[str], list[Any]]:
    if type(output) in (tuple, list):
        return type(output).__name__, [], list(output)
    if type(output) is dict and all(isinstance(key, str) for key in output):
        return "dict", list(output), list(output.values())
    return "tensor", [], [output]


def _part(
    block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], leaf: Any
) -> dict[str, Any] | None:
    """Describe one part of an output: which argument it is, or which plain value."""
    if isinstance(leaf, PLAIN):
        return {"value": leaf}
    names = list(inspect.signature(block.forward).parameters)
    for index, value in enumerate(args):
        if _is_same(value, leaf):
            return {"place": index, "name": names[index] if index < len(names) else ""}
    for name, value in kwargs.items():
        if _is_same(value, leaf):
            return {"place": names.index(name) if name in names else -1, "name": name}
    return None


def _is_same(left: Any, right: Any) -> bool:
    if not (isinstance(left, Tensor) and isinstance(right, Tensor)):
        return left is right
    return (
        left.shape == right.shape and left.dtype == right.dtype and bool(torch.equal(left, right))
    )


def obstacle(
    model: nn.Module, inputs: Inputs, blocks: Blocks, layers: Collection[str]
) -> str | None:
    """Why these blocks cannot be removed together; None where they can."""
    exact, examples = exact_copy(model, inputs)
    masked, shorter = copy.deepcopy(exact), copy.deepcopy(exact)
    for layer in layers:
        zeroed(masked.get_submodule(layer))
    leave_out(shorter, blocks, layers)
    tolerance = TOLERANCE.get(float_dtype(exact), HALF_TOLERANCE)
    expected = [outputs_of(masked, example) for example in examples]
    return difference(expected, shorter, examples, tolerance, "without it")


def leave_out(model: nn.Module, blocks: Blocks, layers: Collection[str]) -> None:
    """Replace these blocks by modules that return their input."""
    with torch.no_grad():
        for layer in layers:
            replace_layer(
                model, layer, replacement_for(model.get_submodule(layer), blocks.free[layer])
            )


def least_harm(
    model: nn.Module,
    inputs: Inputs,
    blocks: Blocks,
    candidates: Sequence[str],
    gone: Sequence[str],
    count: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Choose `count` more blocks, in order of removal, each with the error without all so far."""
    shorter = copy.deepcopy(model)
    expected = outputs_of(model, inputs)
    leave_out(shorter, blocks, gone)
    errors = dict.fromkeys(candidates, 0.0)
    chosen: dict[str, float] = {}
    with progress("leaving blocks out", len(candidates) + (count - 1) * RETRIED) as shown:
        while len(chosen) < count and errors:
            best = sorted(errors, key=lambda layer: errors[layer])
            for layer in best[:RETRIED] if chosen else best:
                if should_stop():
                    raise StoppedError(
                        f"was stopped after {len(chosen)} of {counted(count, 'block')}; nothing "
                        "was changed."
                    )
                block = shorter.get_submodule(layer)
                leave_out(shorter, blocks, (layer,))
                errors[layer] = output_error(expected, outputs_of(shorter, inputs))[0]
                replace_layer(shorter, layer, block)
                shown.advance(doing=layer)
            layer = min(errors, key=lambda layer: errors[layer])
            chosen[layer] = errors.pop(layer)
            leave_out(shorter, blocks, (layer,))
    return chosen

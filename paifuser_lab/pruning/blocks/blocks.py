"""The blocks that a model may do without: those that answer their input when all of their weights
are zero.

That is so where a block adds something to its input and nothing happens to the sum that would
change the input alone: the residual blocks of ResNet (whose input is not negative, so that the last
ReLU leaves it) and MobileNetV2, and transformers that normalise before each branch. It is not so
where the width or the resolution changes, nor where a norm follows the sum, as in BERT. What ran is
what counts: each layer is called once more with what it was given, on the example inputs and on the
same with their signs turned.
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
from ..groups.trace_labels import turned_of
from .pass_through import PLAIN, Description, passed_on

HARMLESS = (Tensor, *PLAIN, tuple, list, dict, torch.dtype, torch.device)
NOT_RUN = "it did not run on the example inputs"


@dataclass
class Blocks:
    """By dotted path: what would stand in a block's place, why another layer cannot be left out,
    and what a block may write to.
    """

    free: dict[str, Description] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    @property
    def innermost(self) -> list[str]:
        """The free blocks that hold no other."""
        return [
            name
            for name in self.free
            if not any(other.startswith(f"{name}.") for other in self.free)
        ]

    def reason(self, layer: str) -> str:
        """Why a layer cannot be left out."""
        return self.refused.get(layer, NOT_RUN)


def find_blocks(model: nn.Module, inputs: Inputs) -> Blocks:
    """Try every layer that has weights, each time that it is called."""
    found = Blocks()
    _look(model, inputs, found)
    turned = turned_of(inputs)
    if turned is not None:
        with suppress(
            Exception
        ):  # a model may refuse such inputs; then the example inputs alone have to say
            _look(model, turned, found)
    names = {name: None for name, _ in model.named_modules()}
    found.free = {
        name: found.free[name] for name in names if name in found.free and name not in found.refused
    }
    return found


def emptied(block: nn.Module) -> nn.Module:
    """A block with zeros for weights, and for the means that batch-norms subtract."""
    with torch.no_grad():
        for weight in block.parameters():
            weight.zero_()
        for name, buffer in block.named_buffers():
            if name.endswith("running_mean"):
                buffer.zero_()
    return block


def _look(model: nn.Module, inputs: Inputs, found: Blocks) -> None:
    modules = dict(model.named_modules())

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if not layer or layer in found.refused:
            return
        description = _tried(modules[layer], args, kwargs)
        if isinstance(description, str):
            found.refused[layer] = description
        elif found.free.setdefault(layer, description) != description:
            found.refused[layer] = "it is called in several ways"
        for one in (*args, *kwargs.values()):
            if not isinstance(one, HARMLESS):
                found.written[layer] = type(one).__name__

    given = inputs.clone()
    with running(model), watching(model, enter, lambda layer, answer: None):
        given(model)


def _tried(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Description | str:
    """What would stand in its place, or why nothing can."""
    if rounded := next((one for one in block.modules() if isinstance(one, QuantizedLayer)), None):
        return (
            f"it is in {rounded.format}, and only floating-point weights can be tried at zero; put "
            "'shorten' before precision and qat"
        )
    if next(block.parameters(), None) is None:
        return "it has no weights"
    try:
        own_args, own_kwargs = copy.deepcopy((args, kwargs))
        answer = emptied(copy.deepcopy(block))(*own_args, **own_kwargs)
    except Exception as error:  # whatever its code raises
        return f"with zeros for weights it fails ({first_line(error)[:160]})"
    description = passed_on(block, args, kwargs, answer)
    return _reason(args, kwargs, answer) if description is None else description


def _reason(args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> str:
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    parts = [
        part
        for part in (answer if isinstance(answer, tuple | list) else [answer])
        if isinstance(part, Tensor)
    ]
    if given and parts and all(part.shape != value.shape for part in parts for value in given):
        shapes = ("×".join(map(str, one.shape)) for one in (given[0], parts[0]))
        return "it is given {} and answers {}".format(*shapes)
    return "with zeros for weights it does not just answer its input"

"""The replacement of a removed block: returns its input in the form in which the block returned its
output.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

# the replacement as plain data; empty for a single tensor that is returned as it is
Description = dict[str, Any]

PLAIN = (bool, int, float, str, type(None))


class PassThrough(nn.Module):
    """Replaces a block that returns a tuple, a list or a dict, or takes more than one argument."""

    def __init__(self, description: Description) -> None:
        super().__init__()
        self.description = description

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return each part of the output: one of the arguments, or a constant."""
        parts = [
            _argument(part, args, kwargs) if "name" in part else part["value"]
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
    """The module that replaces the block; it keeps the block's plain attributes, for code that
    reads them.
    """
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
    """Describe the output as made of the arguments alone, at least one of them a tensor; None where
    it is not.
    """
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


def _argument(part: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An argument by name where it was passed so, else by position."""
    return kwargs[part["name"]] if part["name"] in kwargs else args[part["place"]]

"""What stands in a block's place: it answers what it is given, in the form in which the block
answered.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

Description = dict[
    str, Any
]  # what stands there, as plain data; none for a single tensor that goes through

PLAIN = (bool, int, float, str, type(None))


class PassThrough(nn.Module):
    """Called as a block was whose answer is a tuple, a list or a dict, or which is given more than
    one thing.
    """

    def __init__(self, description: Description) -> None:
        super().__init__()
        self.description = description

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Each part of the answer is one of the arguments, or always the same."""
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
        """Shown when the model is printed."""
        return str(self.description["form"])


def replacement_for(block: nn.Module, description: Description) -> nn.Module:
    """What answers its input in the block's place; the plain attributes of the block are kept, for
    code that reads them.
    """
    made = PassThrough(description) if description else nn.Identity()
    own = {
        name: value
        for name, value in vars(block).items()
        if not name.startswith("_") and name not in ("training", "description")
    }
    vars(made).update({name: value for name, value in own.items() if isinstance(value, PLAIN)})
    return made


def passed_on(
    block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any
) -> Description | None:
    """How the answer is made of the arguments alone, a tensor among them; None where it is not."""
    form, keys, leaves = _opened(answer)
    parts = [_part(block, args, kwargs, leaf) for leaf in leaves]
    known = [part for part in parts if part is not None]
    if not any(isinstance(leaf, Tensor) for leaf in leaves) or len(known) < len(parts):
        return None
    if form == "tensor" and len(args) == 1 and not kwargs:
        return {}
    return {"form": form, "keys": keys, "parts": known}


def _opened(answer: Any) -> tuple[str, list[str], list[Any]]:
    if type(answer) in (tuple, list):
        return type(answer).__name__, [], list(answer)
    if type(answer) is dict and all(isinstance(key, str) for key in answer):
        return "dict", list(answer), list(answer.values())
    return "tensor", [], [answer]


def _part(
    block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], leaf: Any
) -> dict[str, Any] | None:
    """One part of an answer: which argument it is, or which plain value."""
    if isinstance(leaf, PLAIN):
        return {"value": leaf}
    names = list(inspect.signature(block.forward).parameters)
    for place, value in enumerate(args):
        if _is_same(value, leaf):
            return {"place": place, "name": names[place] if place < len(names) else ""}
    for name, value in kwargs.items():
        if _is_same(value, leaf):
            return {"place": names.index(name) if name in names else -1, "name": name}
    return None


def _is_same(one: Any, other: Any) -> bool:
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return one is other
    return one.shape == other.shape and one.dtype == other.dtype and bool(torch.equal(one, other))


def _argument(part: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """By its name, or by its place where it is given so."""
    return kwargs[part["name"]] if part["name"] in kwargs else args[part["place"]]

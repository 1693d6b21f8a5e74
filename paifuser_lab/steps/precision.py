"""Choose the number format of a model, or of some of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import RecipeError
from .step import Draft, Step, matching

Name = Literal["fp32", "bf16", "fp16"]
DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Precision(Step):
    """Run the model in one number format, and the layers that match a pattern in another; later patterns win.

    The model's inputs and answers keep the type they had: they are converted at its door.
    """

    kind: ClassVar[str] = "precision"
    default: Name | None = None
    layers: dict[str, Name] = Field(default={}, description="pattern of dotted paths → number format")

    @model_validator(mode="after")
    def _says_something(self) -> Precision:
        if self.default is None and not self.layers:
            raise ValueError("give a default or layers")
        return self

    @property
    def label(self) -> str:
        named = ", ".join(f"{pattern}: {name}" for pattern, name in self.layers.items())
        return " · ".join(part for part in (self.default, named) if part)

    def joined(self, newer: Self) -> Self | None:
        """The newer default, and the newer choice for each pattern; one that comes again counts as the last."""
        kept = {pattern: name for pattern, name in self.layers.items() if pattern not in newer.layers}
        return type(self)(default=newer.default or self.default, layers={**kept, **newer.layers})

    def apply(self, draft: Draft) -> None:
        """Convert weights, and put a conversion at the door of every region that changes format."""
        original = _format_of(draft.module)
        chosen = self._chosen(draft.module)
        surrounding = self.default or original
        regions = list(_regions(draft.module, "", chosen, surrounding))
        if surrounding != original:
            _convert(draft.module, inside=surrounding, outside=original)
        for layer, inside in regions:
            _convert(draft.module.get_submodule(layer), inside=inside, outside=surrounding)
        whole = f"the whole model in {self.default}" if self.default else f"the model in {original}"
        draft.notes.append(whole + (f", {len(chosen)} layers chosen apart in {len(regions)} regions" if chosen else ""))

    def _chosen(self, model: nn.Module) -> dict[str, str]:
        """The format of each layer with weights that a pattern picks, itself or a part of it."""
        names = [name for name, _ in model.named_modules() if name]
        chosen: dict[str, str] = {}
        for pattern, precision in self.layers.items():
            picked = tuple(matching(names, pattern, what="precision"))
            inside = [name for name in names if any(name == one or name.startswith(f"{one}.") for one in picked)]
            chosen |= {name: precision for name in inside if _has_own_floats(model.get_submodule(name))}
        return chosen


def _format_of(module: nn.Module) -> str:
    """The format that most of the model is in, by its first weight."""
    first = next((tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()), torch.float32)
    for name, dtype in DTYPES.items():
        if dtype == first:
            return name
    raise RecipeError(f"precision: the weights are {first}; the step converts between {', '.join(DTYPES)}.")


def _regions(module: nn.Module, name: str, chosen: dict[str, str], surrounding: str) -> Iterator[tuple[str, str]]:
    """The largest parts of the model that are in one format other than that around them.

    A layer whose parts differ is walked into; weights of its own keep the format around it.
    """
    prefix = f"{name}." if name else ""
    inner = {
        chosen.get(prefix + path if path else name, surrounding) for path, part in module.named_modules() if _has_own_floats(part)
    }
    if inner == {surrounding} or not inner:
        return
    if len(inner) == 1 and name:
        yield name, inner.pop()
        return
    for child, part in module.named_children():
        yield from _regions(part, prefix + child, chosen, surrounding)


def _has_own_floats(module: nn.Module) -> bool:
    own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return any(tensor.is_floating_point() for tensor in own)


def _convert(module: nn.Module, *, inside: str, outside: str) -> None:
    """Move a module's weights to a format; its inputs follow at its door, and its answers go back to the format outside."""
    door = _Door(DTYPES[inside], DTYPES[outside])
    module.to(door.inside)
    module.register_forward_pre_hook(door.enter, with_kwargs=True)
    module.register_forward_hook(door.leave)


@dataclass(frozen=True)
class _Door:
    inside: torch.dtype
    outside: torch.dtype

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        return _cast((args, kwargs), self.inside)

    def leave(self, module: nn.Module, args: Any, output: Any) -> Any:
        return _cast(output, self.outside)


def _cast(values: Any, dtype: torch.dtype) -> Any:
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, values)

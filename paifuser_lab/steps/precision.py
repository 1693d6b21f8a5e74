"""Choose the number format of a model, or of some of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import RecipeError, StepError
from ..formats import FLOATS, channel_of
from ..locate import describe
from ..quantized import Calibration, How, QuantizedLayer, Technique, place, reasons_against, seen
from .step import Draft, Step, matching

Name = Literal["fp32", "bf16", "fp16", "int8", "int8-weights", "int4-weights"]


class Precision(Step):
    """Run the model in one number format, and the layers that match a pattern in another; later patterns win.

    The model's inputs and answers keep the type they had: they are converted at its door. In int8 a layer rounds what it is given
    too, to ranges found on data; values stay int8 between such layers. `int8-weights` and `int4-weights` only store less.
    """

    kind: ClassVar[str] = "precision"
    default: Name | None = None
    layers: dict[str, Name] = Field(default={}, description="pattern of dotted paths → number format")
    calibration: How = Field(
        default="min-max", description="how int8 finds the range of a layer's input: min-max, percentile or mse"
    )
    batches: int = Field(default=4, ge=1, description="batches of data that int8 finds ranges on, and compensation works on")
    compensate: list[Technique] = Field(
        default=[], description="what makes up for the error of rounding: any of equalise, smooth, rounding and bias"
    )

    @model_validator(mode="after")
    def _says_something(self) -> Precision:
        if self.default is None and not self.layers:
            raise ValueError("give a default or layers")
        return self

    @property
    def label(self) -> str:
        named = ", ".join(f"{pattern}: {name}" for pattern, name in self.layers.items())
        return " + ".join((" · ".join(part for part in (self.default, named) if part), *self.compensate))

    def joined(self, newer: Self) -> Self | None:
        """The newer default, and the newer choice for each pattern; one that comes again counts as the last."""
        kept = {pattern: name for pattern, name in self.layers.items() if pattern not in newer.layers}
        changed = newer.model_dump(include=newer.model_fields_set - {"why"})
        return self.model_copy(update=changed | {"layers": {**kept, **newer.layers}, "why": None})

    def apply(self, draft: Draft) -> None:
        """Put layers of whole numbers in place, then convert the rest, with a conversion at the door of every region that changes."""
        chosen = self._chosen(draft.module)
        whole = {layer: name for layer, name in chosen.items() if name not in FLOATS}
        if whole:
            possible = self._possible(draft, whole)
            calibration = Calibration(self.calibration, self.batches)
            draft.notes += place(draft.work, draft.module, possible, calibration, self.compensate)
        elif self.compensate:
            draft.notes.append("no layer is in whole numbers, so there is nothing to make up for")
        self._convert_floats(draft, {layer: name for layer, name in chosen.items() if layer not in whole})

    def _chosen(self, model: nn.Module) -> dict[str, str]:
        """The format of each layer with weights that the default or a pattern picks, itself or a part of it."""
        names = [name for name, _ in model.named_modules() if name]
        owners = [name for name in names if _has_own_floats(model.get_submodule(name))]
        chosen: dict[str, str] = {name: self.default for name in owners if self.default and self.default not in FLOATS}
        for pattern, precision in self.layers.items():
            picked = tuple(matching(names, pattern, what="precision"))
            chosen |= {name: precision for name in owners if any(name == one or name.startswith(f"{one}.") for one in picked)}
        return chosen

    def _possible(self, draft: Draft, whole: dict[str, str]) -> dict[str, str]:
        """Without the layers that cannot; one that is chosen by its own name is an error, as is a choice of none that can."""
        reasons = reasons_against(draft.module, seen(draft.work, draft.module), whole)
        for layer, reason in reasons.items():
            if layer in self.layers:
                raise StepError(f"{describe(draft.module, layer)} cannot be in {whole[layer]}: {reason}.")
        possible = {layer: name for layer, name in whole.items() if layer not in reasons}
        if not possible:
            layer, reason = next(iter(reasons.items()))
            raise StepError(f"none of the chosen layers can be in {whole[layer]}; {describe(draft.module, layer)}: {reason}.")
        weighty = {layer: why for layer, why in reasons.items() if channel_of(draft.module.get_submodule(layer)) is not None}
        draft.notes += [f"layer '{layer}' stays as it is: {why}" for layer, why in weighty.items()]
        return possible

    def _convert_floats(self, draft: Draft, chosen: dict[str, str]) -> None:
        original = _format_of(draft.module)
        surrounding = self.default if self.default in FLOATS else original
        regions = list(_regions(draft.module, "", chosen, surrounding))
        if surrounding != original:
            _convert(draft.module, inside=surrounding, outside=original)
        for layer, inside in regions:
            _convert(draft.module.get_submodule(layer), inside=inside, outside=surrounding)
        if surrounding == self.default or chosen:
            whole = f"the whole model in {surrounding}" if surrounding == self.default else f"the model in {original}"
            draft.notes.append(whole + (f", {len(chosen)} layers chosen apart in {len(regions)} regions" if chosen else ""))


def _format_of(module: nn.Module) -> str:
    """The format that most of the model is in, by its first weight."""
    first = next((tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()), torch.float32)
    for name, dtype in FLOATS.items():
        if dtype == first:
            return name
    raise RecipeError(f"precision: the weights are {first}; the step converts between {', '.join(FLOATS)}.")


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
    if isinstance(module, QuantizedLayer):
        return False
    own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return any(tensor.is_floating_point() for tensor in own)


def _convert(module: nn.Module, *, inside: str, outside: str) -> None:
    """Move a module's weights to a format; its inputs follow at its door, and its answers go back to the format outside."""
    door = _Door(FLOATS[inside], FLOATS[outside])
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

"""Selects the format of a model, or of some of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from ..errors import RecipeError, StepError
from ..model.formats import AUTOCAST, FLOATS
from ..model.layers import owners_of_weights
from ..quantization import (
    Calibration,
    How,
    QuantizedLayer,
    Sums,
    Technique,
    int4_notes,
    no_layer_message,
    norms_of,
    quantize_layers,
    quantize_weights,
    remembered_of,
    restore_layers,
    supported_formats,
    supported_without_data,
)
from ..quantization.float_formats import cast_at_boundary
from .step import Draft, Step, by_pattern, matching, parts

Name = Literal[
    "fp32", "bf16", "fp16", "amp-bf16", "amp-fp16", "int8", "fp8", "int8-weights", "int4-weights"
]
CONVERTED = (*FLOATS, *AUTOCAST)
FILE_SIZE = "file_bytes"  # what is remembered of an ONNX file that was quantized as a whole


class Precision(Step):
    """Run the model in one format, and the layers that match a pattern in another; later
    patterns win.

    The model's inputs and outputs keep their dtype: they are cast at its boundary. In int8 a layer
    rounds its input too, to ranges calibrated on data; values stay int8 between such layers.
    Where the processor adds pairs of int8 products in 16 bits (x86 without VNNI), int8 weights use
    7 bits, so that nothing saturates; `reduced_range` makes an export for the other kind.
    `int8-weights` and `int4-weights` round weights alone. On a CPU a linear layer multiplies few
    rows by the stored integers, which is fast and in bf16; every other call dequantizes the
    weights anew. Layers that share a weight, as embedding and head of a language model, then share
    its integers. In fp8 linear layers multiply floating-point numbers of eight bits. Under
    `amp-bf16` and `amp-fp16` weights stay, and each operator has the format that suits it, as under
    torch.autocast. An ONNX file that runs as it is takes int8 alone, by ONNX Runtime's own tool.
    """

    kind: ClassVar[str] = "precision"
    main_option: ClassVar[str] = "default"
    default: Name | None = Field(
        default=None, description="the format of every layer that `layers` does not name"
    )
    layers: dict[str, Name] = Field(default={}, description="pattern of dotted paths → format")
    calibration: How = Field(
        default="min-max",
        description="how int8 finds the range of a layer's input: min-max, percentile or mse",
    )
    batches: int = Field(
        default=4,
        ge=1,
        description="batches of data that int8 finds ranges on, and compensation works on",
    )
    reduced_range: bool | None = Field(
        default=None,
        description="whether int8 weights use 7 bits, so that no processor saturates; by default "
        "where this one would",
    )
    sums: Sums = Field(
        default="exported",
        description="where sums and concatenations of int8 layers are computed on integers: in "
        "exported files and engines alone, in the live model too (int8), or nowhere (numbers)",
    )
    compensate: list[Technique] = Field(
        default=[],
        description="compensation of rounding errors: any of equalise, smooth, rounding and bias",
    )

    @model_validator(mode="after")
    def _check_options(self) -> Precision:
        if self.default is None and not self.layers:
            raise ValueError("give a default or layers")
        return self

    @property
    def label(self) -> str:
        named = ", ".join(f"{pattern}: {name}" for pattern, name in self.layers.items())
        sums = {"int8": "sums in int8", "numbers": "sums in fp32"}.get(self.sums, "")
        return " + ".join(
            (" · ".join(part for part in (self.default, named, sums) if part), *self.compensate)
        )

    def joined(self, newer: Self) -> Self | None:
        """One step with the newer default and formats; a repeated pattern moves to the end."""
        return self.updated(newer, layers=by_pattern(self.layers, newer.layers))

    def apply(self, draft: Draft) -> None:
        """Insert quantized layers, then cast the rest, with a conversion at each boundary."""
        if _is_onnx_file(draft.module):
            self._quantize_file(draft)
            return
        whole, floats = self._integers_and_floats(draft.module)
        if whole:
            layers, notes = supported_formats(draft.work, draft.module, whole, self.layers)
            draft.notes += notes
            calibration = Calibration(self.calibration, self.batches)
            norms = norms_of(draft.module)
            draft.notes += quantize_layers(
                draft.work,
                draft.module,
                layers,
                calibration,
                self.compensate,
                sums=self.sums,
                reduced_range=self.reduced_range,
                should_stop=draft.should_stop,
            )
            draft.notes += int4_notes(draft.work, draft.module, layers)
            draft.remembered = remembered_of(draft.module, set(layers), norms)
        elif self.compensate:
            draft.notes.append("no layer is in integers, so there is nothing to compensate")
        self._convert_floats(draft, floats)

    def apply_unseen(self, draft: Draft) -> None:
        """Apply without running the model; formats that need data are refused."""
        whole, floats = self._integers_and_floats(draft.module)
        if whole:
            layers, notes = supported_without_data(draft.module, whole, self.layers)
            norms = norms_of(draft.module)
            draft.notes += [*notes, *quantize_weights(draft.module, layers)]
            draft.remembered = remembered_of(draft.module, set(layers), norms)
        self._convert_floats(draft, floats)

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Insert the same quantized layers, and cast the rest."""
        module: Any = draft.module
        if _is_onnx_file(module):
            from ..quantization.onnx_file import make_room

            make_room(module, remembered.get(FILE_SIZE))
            return
        _, floats = self._integers_and_floats(draft.module)
        if remembered:
            restore_layers(draft.module, remembered)
        self._convert_floats(draft, floats)

    def _quantize_file(self, draft: Draft) -> None:
        """Quantize an ONNX file that runs as it is; only the whole of it, in int8."""
        own = {"default", "batches", "reduced_range", "why"}
        if self.default != "int8" or {*self.options} - own:
            raise StepError(
                "an ONNX file that ONNX Runtime runs as it is can be put into int8 as a whole; "
                "give default: int8 and, if you like, batches and reduced_range."
            )
        from ..quantization.onnx_file import quantize_file

        module: Any = draft.module
        draft.notes += quantize_file(
            draft.work, module, self.batches, reduced_range=self.reduced_range
        )
        draft.remembered = {FILE_SIZE: len(module.file)}

    def _integers_and_floats(self, model: nn.Module) -> tuple[dict[str, str], dict[str, str]]:
        """The layers that are rounded with their formats, and those that are converted."""
        chosen = self._chosen(model)
        if not chosen and self.default not in CONVERTED:
            raise StepError(no_layer_message(model, self.kind))
        floats = {layer: name for layer, name in chosen.items() if name in CONVERTED}
        return {layer: name for layer, name in chosen.items() if layer not in floats}, floats

    def _chosen(self, model: nn.Module) -> dict[str, str]:
        """The format of each layer with weights that the default or a pattern sets."""
        names = [name for name, _ in model.named_modules() if name]
        owners = [name for name in names if _has_own_floats(model.get_submodule(name))]
        chosen: dict[str, str] = {
            name: self.default for name in owners if self.default and self.default not in CONVERTED
        }
        for pattern, precision in self.layers.items():
            chosen |= dict.fromkeys(
                parts(owners, matching(names, pattern, what="precision")), precision
            )
        return chosen

    def _convert_floats(self, draft: Draft, chosen: dict[str, str]) -> None:
        original = _format_of(draft.module)
        surrounding = self.default if self.default in CONVERTED else original
        _check_shared(draft.module, chosen, surrounding, original)
        regions = list(_regions(draft.module, "", chosen, surrounding))
        parts_apart = {layer: draft.module.get_submodule(layer) for layer, _ in regions}
        if surrounding != original:
            cast_at_boundary(
                draft.module,
                inside=surrounding,
                outside=original,
                original=original,
                apart=parts_apart.values(),
            )
        for layer, inside in regions:
            cast_at_boundary(
                parts_apart[layer], inside=inside, outside=surrounding, original=original
            )
        if surrounding == self.default or regions:
            is_whole = surrounding == self.default
            note = f"the whole model in {surrounding}" if is_whole else f"the model in {original}"
            apart = f", {len(chosen)} layers chosen apart in {len(regions)} regions"
            draft.notes.append(note + (apart if chosen else ""))


def _check_shared(
    model: nn.Module, chosen: dict[str, str], surrounding: str, original: str
) -> None:
    """Refuse two formats for one weight that layers share (under autocast it keeps its format)."""
    names = {layer: chosen.get(layer, surrounding) for layer, _ in model.named_modules()}
    stored = {layer: original if name in AUTOCAST else name for layer, name in names.items()}
    for first, *others in owners_of_weights(model).values():
        for other in others:
            if stored[other] != stored[first]:
                raise StepError(
                    f"layers '{first}' and '{other}' share a weight, which would be in "
                    f"{stored[first]} and {stored[other]}; choose one format for both."
                )


def _format_of(module: nn.Module) -> str:
    """The format of the model's first weight."""
    first = next(
        (tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()),
        torch.float32,
    )
    for name, dtype in FLOATS.items():
        if dtype == first:
            return name
    raise RecipeError(
        f"precision: the weights are {first}; the step converts between {', '.join(FLOATS)}."
    )


def _regions(
    module: nn.Module, name: str, chosen: dict[str, str], surrounding: str
) -> Iterator[tuple[str, str]]:
    """The largest parts of the model that are in one format other than the surrounding one.

    A layer whose parts differ is split; its own weights keep the surrounding format.
    """
    prefix = f"{name}." if name else ""
    inner = {
        chosen.get(prefix + path if path else name, surrounding)
        for path, part in module.named_modules()
        if _has_own_floats(part)
    }
    if inner == {surrounding} or not inner:
        return
    if len(inner) == 1 and name:
        yield name, inner.pop()
        return
    for child, part in module.named_children():
        yield from _regions(part, prefix + child, chosen, surrounding)


def _is_onnx_file(module: nn.Module) -> bool:
    """Whether the model is an ONNX file that ONNX Runtime runs, without a layer to see."""
    return getattr(module, "is_onnx_file", False)


def _has_own_floats(module: nn.Module) -> bool:
    if isinstance(module, QuantizedLayer):
        return False
    own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return any(tensor.is_floating_point() for tensor in own)

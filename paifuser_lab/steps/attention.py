"""Sparse attention to a part of the keys, or a Swin's windows in one pass."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import torch
from pydantic import ConfigDict, Field, field_validator, model_validator
from torch import nn

from ..attention import (
    Attending,
    Sparsity,
    drops_padding,
    evaluate_layers,
    evaluate_sparse,
    exact,
    find_attention,
    is_fused,
    is_windowed,
    lists_from_data,
    make_fused,
    make_sparse,
)
from ..errors import StepError
from ..records import AttentionKind
from .step import Draft, Step, layers_matching, parts


class Attention(Step):
    """Let layers attend to a part of the keys, in blocks of 64; a Swin's blocks attend within their
    windows in one pass.

    `topk` selects the best blocks for each block of queries, scored at each call; `block` those
    that are best on the data here; `window` the nearest ones, and in a Swin its windows, exactly.
    `keep` is a share of the blocks up to 1, and from 2 on their number. A layer that would not be
    faster stays unchanged unless `even_if_slower`.
    """

    kind: ClassVar[str] = "attention"
    main_option: ClassVar[str] = "keep"
    # a recipe says `kind`, which in Python is that of the step; both names are taken
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    by: AttentionKind = Field(
        default="topk", alias="kind", description="which keys are kept: topk, block or window"
    )
    keep: float | None = Field(
        default=None,
        gt=0,
        description="the share of the blocks of keys that is kept, or from 2 on their number",
    )
    layers: list[str] = Field(
        default=[], description="patterns of layers; all that can where there are none"
    )
    protect: list[str] = Field(default=[], description="patterns of layers that stay as they are")
    even_if_slower: bool = Field(default=False, description="layers that are not faster so, too")

    @field_validator("keep", mode="before")
    @classmethod
    def _is_number(cls, keep: object) -> object:
        if isinstance(keep, bool):
            raise ValueError("it should be a number, such as 0.25 for a quarter of the keys")
        return keep

    @model_validator(mode="after")
    def _check_keep(self) -> Attention:
        if self.keep is None and self.by != "window":
            raise ValueError(
                f"kind {self.by} needs a keep, such as keep: 0.25 for a quarter of the keys"
            )
        if self.keep is not None and self.keep > 1 and (self.keep < 2 or self.keep % 1):
            raise ValueError(
                "keep is a share up to 1, or an integer of blocks of 64 keys from 2 on"
            )
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The options that are not defaults, under their names in a recipe."""
        return self.model_dump(exclude_defaults=True, exclude={"why"}, mode="json", by_alias=True)

    @property
    def label(self) -> str:
        of = f" to {self._sparsity.label}" if self.keep is not None else ""
        return f"attention{of} ({self.by})" if of else "attention in windows"

    def joined(self, newer: Self) -> Self | None:
        """The newer one for the same kind or layers; else each changes its own layers."""
        return newer if self.by == newer.by or self.layers == newer.layers else None

    @property
    def _sparsity(self) -> Sparsity:
        return Sparsity(self.by, 1.0 if self.keep is None else self.keep)

    def apply(self, draft: Draft) -> None:
        """Find the layers that attend, evaluate each changed, and change those that gain."""
        seen = find_attention(draft.module, draft.work.inputs, self.by)
        windows = (
            [name for name, module in draft.module.named_modules() if is_windowed(module)]
            if self.by == "window"
            else []
        )
        chosen, stay = self._chosen(draft.module, seen, windows)
        draft.remembered = {
            "windows": self._fuse(draft, [layer for layer in chosen if layer in windows])
        }
        draft.remembered["sparse"] = self._make_sparse(
            draft, seen, [layer for layer in chosen if layer not in windows]
        )
        draft.notes += [f"'{layer}' stays: {seen.reasons[layer]}" for layer in stay]

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Change the same layers, with the same lists."""
        names = {name for name, _ in draft.module.named_modules()}
        if missing := [
            layer for layer in (*remembered["windows"], *remembered["sparse"]) if layer not in names
        ]:
            raise StepError(
                f"there is no layer '{missing[0]}', whose attention was changed in the model that "
                "was saved"
            )
        for layer in remembered["windows"]:
            make_fused(draft.module, layer)
        for layer, lists in remembered["sparse"].items():
            fixed = (
                None
                if lists is None
                else torch.tensor(lists, dtype=torch.int32, device=draft.work.device)
            )
            make_sparse(draft.module, layer, self._sparsity, fixed)

    def _chosen(
        self, model: nn.Module, seen: Attending, windows: list[str]
    ) -> tuple[list[str], list[str]]:
        """The layers to change, and those that were selected and cannot be changed."""
        able = [*windows, *(seen.able if self.keep is not None else ())]
        if not able:
            raise StepError(_nothing(seen))
        picked = set(able)
        if self.layers:
            picked = {
                layer for pattern in self.layers for layer in _fitting(model, able, seen, pattern)
            }
        stay = set(within(able, layers_matching(model, self.protect, what="attention")))
        meant = set(seen.reasons) - {
            layer
            for layer in seen.reasons
            if any(layer.startswith(f"{window}.") for window in windows)
        }
        meant &= (
            set(within(list(seen.reasons), layers_matching(model, self.layers, what="attention")))
            if self.layers
            else meant
        )
        if not picked - stay:
            raise StepError(
                "every layer whose attention could be changed is protected; protect fewer, or "
                "leave the step out."
            )
        return [layer for layer in able if layer in picked - stay], [
            layer for layer in seen.reasons if layer in meant
        ]

    def _fuse(self, draft: Draft, layers: list[str]) -> list[str]:
        """Let Swin's blocks attend in one pass if that is faster and the output is the same."""
        changed = copy.deepcopy(draft.module)
        layers = [layer for layer in layers if not is_fused(draft.module.get_submodule(layer))]
        for layer in layers:
            make_fused(changed, layer)
        evaluated = evaluate_layers(
            draft.module, changed, layers, draft.work.inputs, draft.should_stop
        )
        done = []
        for layer, result in evaluated.items():
            if not result.error <= exact(draft.module):
                draft.notes.append(
                    f"'{layer}' stays: in one pass its output is {result.error:.1e} away"
                )
            elif result.is_faster or self.even_if_slower:
                make_fused(draft.module, layer)
                done.append(layer)
                draft.notes.append(
                    f"'{layer}' attends in one pass, {result.error:.1g} away; "
                    f"{result.label} in this block"
                )
            else:
                draft.notes.append(
                    f"'{layer}' stays: in one pass it is not faster; {result.label} in this block"
                )
        return done

    def _make_sparse(self, draft: Draft, seen: Attending, layers: list[str]) -> dict[str, Any]:
        """Let layers attend to a part of the keys if that is clearly faster."""
        sparsity = self._sparsity
        fixed = lists_from_data(draft.module, draft.work, layers, sparsity)
        evaluated = evaluate_sparse(
            {layer: seen.calls[layer] for layer in layers}, sparsity, fixed, draft.should_stop
        )
        packing = [name for name, module in draft.module.named_modules() if drops_padding(module)]
        done: dict[str, Any] = {}
        for layer, result in evaluated.items():
            if result.is_clearly_faster or self.even_if_slower:
                lists = fixed[layer]
                make_sparse(draft.module, layer, sparsity, lists)
                done[layer] = None if lists is None else lists.tolist()
                draft.notes.append(
                    f"'{layer}' attends to {sparsity.label}, {result.error:.2g} away; "
                    f"{result.label} in its attention"
                )
            else:
                draft.notes.append(
                    f"'{layer}' attends to all keys: {sparsity.label} are not clearly faster; "
                    f"{result.label} in its attention"
                )
        padded = [layer for layer in done if any(call.is_padded for call in seen.calls[layer])]
        draft.notes += [
            _padding_note(encoder)
            for encoder in packing
            if padded and (not encoder or parts(padded, [encoder]))
        ]
        return done


def _padding_note(encoder: str) -> str:
    """The note on torch's encoder, which drops padding and outputs 0 there when unchanged."""
    name = f"'{encoder}'" if encoder else "torch's encoder"
    return (
        f"{name} answered 0 at the padding, and outputs something else there now; leave the "
        "padding out of what is read"
    )


def within(names: list[str], picked: Iterable[str]) -> list[str]:
    """The names that were picked, are part of a picked one, or have one as their `attention`."""
    whole = list(picked)
    return list(
        dict.fromkeys(
            [*parts(names, whole), *(name for name in names if f"{name}.attention" in whole)]
        )
    )


def _fitting(model: nn.Module, able: list[str], seen: Attending, pattern: str) -> list[str]:
    """The layers of a pattern whose attention can be changed; raises if there are none."""
    picked = layers_matching(model, [pattern], what="attention")
    if result := within(able, picked):
        return result
    if refused := within(list(seen.reasons), picked):
        raise StepError(
            f"'{refused[0]}' cannot attend to a part of its keys: {seen.reasons[refused[0]]}."
        )
    near = f"; the layers that can are {', '.join(able[:3])}{' …' if len(able) > 3 else ''}"
    raise StepError(f"'{picked[0]}' does not attend{near}.")


def _nothing(seen: Attending) -> str:
    """Why no layer can attend otherwise."""
    if seen.able:
        return (
            "kind window keeps the nearest blocks of keys here, since there is no Swin in it; say "
            "how many with keep."
        )
    if seen.reasons:
        layer, reason = next(iter(seen.reasons.items()))
        return (
            f"none of its {len(seen.reasons)} attentions can go to a part of the keys; '{layer}': "
            f"{reason}."
        )
    return (
        "no layer of it calls torch's scaled_dot_product_attention; models of transformers do with "
        "attn_implementation='sdpa'."
    )

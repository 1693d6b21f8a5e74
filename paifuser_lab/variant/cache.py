"""The models that recipes made lately, by the steps so far: few enough, in little enough memory.

It is the one place that keeps whole models. Undo, redo and a longer recipe find theirs here, and
what was given up is applied again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import psutil
import torch
from torch import nn

from ..engines import Engine
from ..fusion import packed_bytes
from ..model.weights import answer_hash, weights_bytes, weights_hash
from ..quantization import QuantizedLayer
from ..recipe import Recipe
from ..workload import Workload
from .variant import Variant

MOST_KEPT = 12
SHARE_OF_MEMORY = 0.2  # of the machine's, or of the GPU's, for what is kept


def kept_variant(work: Workload, recipe: Recipe) -> Variant | None:
    """The variant that was made of a recipe, where it is still kept; `apply` makes it anew where
    its weights were changed since.
    """
    kept: list[Variant] = list(work.variants.values())
    for variant in reversed(kept):
        if variant.recipe.digest == recipe.digest:
            return replace(variant, recipe=recipe)
    return None


def prefix_keys(work: Workload, recipe: Recipe, reference: Any) -> list[str]:
    """A key for each prefix of the recipe: the model's weights, build and answer, the steps so far,
    and torch's threads.
    """
    base = (
        f"{weights_hash(work.model)} {answer_hash(reference)} {work.model} "
        f"{torch.get_num_threads()}"
    )
    return [f"{base} {recipe[:count].digest}" for count in range(len(recipe) + 1)]


def longest_kept(kept: OrderedDict[str, Variant], keys: list[str]) -> tuple[int, Variant | None]:
    """The longest prefix that was made before and has not been changed by hand since."""
    for count in range(len(keys) - 1, -1, -1):
        variant = kept.get(keys[count])
        if variant is None:
            continue
        if weights_hash(variant.module) == variant.weights_hash:
            kept.move_to_end(keys[count])
            return count, variant
        del kept[keys[count]]
    return 0, None


def keep(kept: OrderedDict[str, Variant], key: str, variant: Variant) -> None:
    """Keep a variant in place of those that were not used for longest."""
    variant.weights_hash  # noqa: B018 (taken now, to see later whether somebody changed the weights)
    kept[key] = variant
    budget = _budget(variant.work.device)
    while len(kept) > MOST_KEPT or (len(kept) > 2 and held_bytes(kept) > budget):
        kept.popitem(last=False)


def held_bytes(kept: OrderedDict[str, Variant]) -> int:
    """The memory of all models that are kept: a model that several share is counted once, and what
    an engine or packed weights repeat of it is counted too.
    """
    modules = {id(variant.module): variant.module for variant in kept.values()}
    engines = {
        id(variant.model): variant.module
        for variant in kept.values()
        if isinstance(variant.model, Engine) and type(variant.model) is not Engine
    }
    return sum(map(_module_bytes, modules.values())) + sum(map(weights_bytes, engines.values()))


def _module_bytes(module: nn.Module) -> int:
    """Weights and buffers, and a packed copy beside them where layers have made one."""
    packed = sum(
        weights_bytes(layer)
        for layer in module.modules()
        if isinstance(layer, QuantizedLayer) and getattr(layer, "_packed", None) is not None
    )
    return weights_bytes(module) + packed + packed_bytes(module)


def _budget(device: torch.device) -> float:
    """How many bytes may be kept where the models are."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory * SHARE_OF_MEMORY
    return psutil.virtual_memory().total * SHARE_OF_MEMORY

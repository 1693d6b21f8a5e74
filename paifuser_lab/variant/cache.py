"""The cache of variants by the steps applied so far, bounded in number and in memory.

It is the only cache of whole models: undo, redo and longer recipes look their models up here; an
evicted one is created again by applying its steps.
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
from ..measure.pages import return_free_memory
from ..model.weights import answer_hash, weights_bytes, weights_hash
from ..quantization import QuantizedLayer
from ..workload import Workload
from ..workload.data import Same, data_for_evaluation
from .recipe import Recipe, RecipeKey
from .variant import Variant

MOST_KEPT = 12
SHARE_OF_MEMORY = 0.2  # of the machine or the GPU, for the cached models


# the model with its steps, the data and the loss that these read
Key = tuple[tuple[str, RecipeKey], Same, Same]


def kept_variant(work: Workload, recipe: Recipe) -> Variant | None:
    """The cached variant of a recipe; `apply` creates it anew if its weights were changed."""
    variants: list[Variant] = list(work.variants.values())
    for variant in reversed(variants):
        if variant.recipe.key == recipe.key:
            return replace(variant, recipe=recipe)
    return None


def prefix_keys(work: Workload, recipe: Recipe, reference: Any) -> list[Key]:
    """A key for each prefix of the recipe, by all that the model and its numbers depend on."""
    base = (
        f"{weights_hash(work.model)} {answer_hash(reference)} {work.model} "
        f"{torch.get_num_threads()}"
    )
    data = data_for_evaluation(work)
    read = Same(None if data is None else data[0]), Same(work.loss)
    return [((base, recipe[:count].key), *read) for count in range(len(recipe) + 1)]


def longest_cached(cache: OrderedDict[Key, Variant], keys: list[Key]) -> tuple[int, Variant | None]:
    """The longest cached prefix whose variant has not been changed by hand since."""
    for count in range(len(keys) - 1, -1, -1):
        variant = cache.get(keys[count])
        if variant is None:
            continue
        if weights_hash(variant.module) == variant.weights_hash:
            cache.move_to_end(keys[count])
            return count, variant
        del cache[keys[count]]
    return 0, None


def keep(cache: OrderedDict[Key, Variant], key: Key, variant: Variant) -> None:
    """Add a variant to the cache and evict those that were not used for longest."""
    variant.weights_hash  # noqa: B018 (computed now, to detect later changes of the weights)
    cache[key] = variant
    budget, count = _budget(variant.work.device), len(cache)
    while len(cache) > MOST_KEPT or (len(cache) > 2 and held_bytes(cache) > budget):
        cache.popitem(last=False)
    if len(cache) < count:
        return_free_memory()


def held_bytes(cache: OrderedDict[Key, Variant]) -> int:
    """The memory of all cached models; a shared one counts once, copies in engines count too."""
    modules = {id(variant.module): variant.module for variant in cache.values()}
    engines = {
        id(variant.model): variant.module
        for variant in cache.values()
        if isinstance(variant.model, Engine) and type(variant.model) is not Engine
    }
    return sum(map(_module_bytes, modules.values())) + sum(map(weights_bytes, engines.values()))


def _module_bytes(module: nn.Module) -> int:
    """The bytes of weights and buffers, and of packed copies if layers have any."""
    packed = sum(
        weights_bytes(layer)
        for layer in module.modules()
        # layers in int8-weights pack their scales alone
        if isinstance(layer, QuantizedLayer)
        and layer._packed is not None
        and layer.format != "int8-weights"
    )
    return weights_bytes(module) + packed + packed_bytes(module)


def _budget(device: torch.device) -> float:
    """The number of bytes that may be cached on a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory * SHARE_OF_MEMORY
    return psutil.virtual_memory().total * SHARE_OF_MEMORY

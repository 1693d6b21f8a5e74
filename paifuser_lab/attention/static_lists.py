"""The lists of kind block: the blocks of keys that are best over the available data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from ..kernels.block_gather import blocks_of
from ..pruning.refit import samples_of
from ..workload import Workload
from .attention import expand_heads
from .block_lists import fixed_lists
from .discover import Call, calls_of
from .sparsity import Sparsity

MOST_EXAMPLES = 16


def lists_from_data(
    model: nn.Module, work: Workload, layers: Iterable[str], sparsity: Sparsity
) -> dict[str, Tensor | None]:
    """The lists of each layer; None for kinds that select at each call."""
    names = list(layers)
    if sparsity.kind != "block" or not names:
        return dict.fromkeys(names)
    examples, data = (
        calls_of(model, work.inputs),
        calls_of(model, samples_of(work, MOST_EXAMPLES).inputs),
    )
    return {
        layer: lists_for(
            [*_same_lengths(data.get(layer, []), examples[layer]), *examples[layer]], sparsity
        )
        for layer in names
    }


def lists_for(calls: Sequence[Call], sparsity: Sparsity) -> Tensor:
    """The lists of one layer, from its calls."""
    count = sparsity.of(blocks_of(calls[0].key.shape[2]))
    pairs = [
        expand_heads(call.query, call.key, call.value, call.options["enable_gqa"])[:2]
        for call in calls
    ]
    return fixed_lists(pairs, count, is_causal=calls[0].is_causal)


def _same_lengths(calls: Sequence[Call], examples: Sequence[Call]) -> list[Call]:
    """The calls with as many queries and keys as the example inputs have."""
    return [call for call in calls if call.lengths == examples[0].lengths]

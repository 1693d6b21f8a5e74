"""The lists of kind block: which blocks of keys are best over the data there is, found once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn

from ..kernels.block_gather import blocks_of
from ..pruning.refit import samples_of
from ..workload import Workload
from .attention import as_many
from .block_lists import fixed_lists
from .discover import Call, calls_of
from .sparsity import Sparsity

MOST_EXAMPLES = 16


def lists_from_data(
    model: nn.Module, work: Workload, layers: Iterable[str], sparsity: Sparsity
) -> dict[str, Tensor | None]:
    """For each layer what it will attend to; None for the kinds that see that for themselves."""
    wanted = list(layers)
    if sparsity.kind != "block" or not wanted:
        return dict.fromkeys(wanted)
    examples, data = (
        calls_of(model, work.inputs),
        calls_of(model, samples_of(work, MOST_EXAMPLES).inputs),
    )
    return {
        layer: lists_for(
            [*_alike(data.get(layer, []), examples[layer]), *examples[layer]], sparsity
        )
        for layer in wanted
    }


def lists_for(calls: Sequence[Call], sparsity: Sparsity) -> Tensor:
    """The lists of one layer, from what it was given."""
    count = sparsity.of(blocks_of(calls[0].key.shape[2]))
    pairs = [
        as_many(call.query, call.key, call.value, call.options["enable_gqa"])[:2] for call in calls
    ]
    return fixed_lists(pairs, count, is_causal=calls[0].is_causal)


def _alike(calls: Sequence[Call], examples: Sequence[Call]) -> list[Call]:
    """Those of the lengths that the example inputs have."""
    return [call for call in calls if call.lengths == examples[0].lengths]

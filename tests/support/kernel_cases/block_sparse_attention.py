"""Inputs of attention to chosen blocks, and masked attention in float64 to compare with."""

from __future__ import annotations

import torch

from paifuser_lab.kernels.block_gather import BLOCK, blocks_of

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
DEFAULT = {64: "1, 2, 0, 0, 4", 128: "1, 2, 1, 0, 2"}
ENTRIES = tuple(
    f"block_sparse_attention<{kind}, {size}, {tile}>"
    for kind in TYPES
    for size, tile in DEFAULT.items()
)


def lists(batch, heads, queries, keys, most, ends=(), is_ascending=True):
    """Random blocks, each once, ascending; some lists end early."""
    count = blocks_of(keys)
    chosen = (
        torch.rand(batch, heads, blocks_of(queries), count)
        .argsort(-1)[..., :most]
        .sort(-1, descending=not is_ascending)
        .values.int()
    )
    for row, end in enumerate(ends):
        chosen[..., row % chosen.shape[2], end:] = -1
    return chosen


def inputs_of(
    kind="bfloat16",
    size=64,
    *,
    batch=1,
    heads=2,
    queries=130,
    keys=200,
    most=2,
    ends=(),
    is_causal=False,
    lengths=None,
    scale=0.1,
    is_ascending=True,
):
    query = torch.randn(batch, heads, queries, size).to(TYPES[kind])
    key, value = (torch.randn(batch, heads, keys, size).to(TYPES[kind]) for _ in range(2))
    given = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
    return (
        query,
        key,
        value,
        lists(batch, heads, queries, keys, most, ends, is_ascending),
        given,
        is_causal,
        scale,
    )


def visible_in(kept, queries, keys, lengths, is_causal):
    """Entry by entry, what a query may see; written for clearness alone."""
    batch, heads = kept.shape[:2]
    seen = torch.zeros(batch, heads, queries, keys, dtype=torch.bool)
    for b in range(batch):
        for h in range(heads):
            for block in range(kept.shape[2]):
                for number in kept[b, h, block].tolist():
                    if number < 0:
                        break
                    seen[
                        b,
                        h,
                        block * BLOCK : (block + 1) * BLOCK,
                        number * BLOCK : (number + 1) * BLOCK,
                    ] = True
        if lengths is not None:
            seen[b, :, :, max(0, int(lengths[b])) :] = False
    return seen & torch.ones(queries, keys).tril().bool() if is_causal else seen


def exact(inputs):
    """Attention to all in float64, what is not listed masked."""
    query, key, value, kept, lengths, is_causal, scale = inputs
    seen = visible_in(kept, query.shape[2], key.shape[2], lengths, is_causal)
    scores = (query.double() @ key.double().transpose(-1, -2) * scale).masked_fill(
        ~seen, float("-inf")
    )
    return torch.softmax(scores, -1).nan_to_num(0.0) @ value.double()


def assert_exact(made, inputs):
    # Weights are rounded to 16 bits, then the answer is: a mean of values is off by at most a unit
    # of the largest.
    allowed = 1.1 * torch.finfo(made.dtype).eps * inputs[2].abs().max().item()
    torch.testing.assert_close(made.double(), exact(inputs), rtol=0, atol=allowed)

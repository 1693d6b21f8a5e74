"""torch's attention with its signature, to a part of the keys."""

from __future__ import annotations

import warnings
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels import attend_to_blocks
from ..kernels.block_gather import BLOCK, blocks_of, compose
from .block_lists import Sparsity, as_four_dimensions, listed, may_hide_all_keys, visible_keys


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    sparsity: Sparsity,
    fixed: Tensor | None = None,
) -> Tensor:
    """Attention to the selected blocks of keys, or to all where the call supports no less."""
    to_all = partial(
        F.scaled_dot_product_attention,
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
    )
    if why_dense(query, key, value, attn_mask, is_causal, scale) or is_all(key, sparsity):
        return to_all()
    query, key, value = expand_heads(query, key, value, enable_gqa)
    if not _fits(query, key, sparsity, fixed):
        return to_all()
    mask = as_four_dimensions(attn_mask, key.shape[2])
    scaled = query.shape[-1] ** -0.5 if scale is None else scale
    visible = visible_keys(mask)
    if visible is not None:
        return _packed(query, key, value, visible, dropout_p, scaled, sparsity, fixed)
    kept = listed(query, key, sparsity, fixed, is_causal=is_causal, mask=mask)
    if mask is not None and may_hide_all_keys(mask, kept):
        return to_all()
    return _attended(query, key, value, kept, None, is_causal, scaled, mask, dropout_p)


def why_dense(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> str:
    """Why a call cannot attend to a part of the keys; '' if it can."""
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        return f"its queries have {query.ndim} dimensions, not (batch, heads, tokens, numbers)"
    if not len(query) or not len(key):
        return "its batch is empty"
    if key.shape[-1] != value.shape[-1]:
        return f"its keys have {key.shape[-1]} numbers and its values {value.shape[-1]}"
    if key.shape[2] <= BLOCK:
        return f"{key.shape[2]} keys are one block of {BLOCK}"
    if query.shape[2] < BLOCK:
        return f"{query.shape[2]} queries are less than a block of {BLOCK}"
    if is_causal and mask is not None:
        return (
            "it is called with a mask and is_causal at once; call it with one mask that says both"
        )
    return f"its scale is {scale}, not above 0" if scale is not None and not scale > 0 else ""


def expand_heads(
    query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values expanded to the same batch and number of heads."""
    if enable_gqa:
        key, value = (
            tensor.repeat_interleave(query.shape[1] // tensor.shape[1], 1)
            for tensor in (key, value)
        )
    shape = tuple(map(max, query.shape[:2], key.shape[:2], value.shape[:2]))
    query, key, value = (tensor.expand(*shape, -1, -1) for tensor in (query, key, value))
    return query, key, value


def is_all(key: Tensor, sparsity: Sparsity) -> bool:
    """Whether all blocks of keys are selected."""
    blocks = blocks_of(key.shape[2])
    return sparsity.of(blocks) == blocks


def _fits(query: Tensor, key: Tensor, sparsity: Sparsity, fixed: Tensor | None) -> bool:
    """Whether fixed lists are long enough; warns if not."""
    if sparsity.kind != "block" or fixed is None:
        return True
    heads, rows, _ = fixed.shape
    is_long = (
        query.shape[1] == heads and max(blocks_of(query.shape[2]), blocks_of(key.shape[2])) <= rows
    )
    if not is_long and not torch.compiler.is_compiling():
        warnings.warn(
            f"Lists of blocks for {heads} heads of {rows * BLOCK} tokens do not fit "
            f"{query.shape[1]} heads of {query.shape[2]}; this layer attends to all keys. Apply "
            "the step with inputs of that length, or use kind topk.",
            stacklevel=2,
        )
    return is_long


def _packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor,
    dropout: float,
    scale: float,
    sparsity: Sparsity,
    fixed: Tensor | None,
) -> Tensor:
    """Attention under a padding mask: visible keys are moved to the front, as their order does not
    matter, so that the mask becomes a length.
    """
    order = torch.argsort(~visible, dim=-1, stable=True)
    lengths = visible.sum(-1, dtype=torch.int32).expand(len(query))
    is_self = query.shape[2] == key.shape[2]
    keys, values = (_in_order(tensor, order) for tensor in (key, value))
    own = _in_order(query, order) if is_self else query  # nearness is that of the tokens
    # Padding must not influence the selection.
    positions = torch.arange(own.shape[2], device=own.device)[:, None]
    is_padding = positions >= lengths[:, None, None, None]
    visible_queries = own.masked_fill(is_padding, 0.0) if is_self else own
    kept = listed(visible_queries, keys, sparsity, fixed, lengths=lengths)
    output = _attended(own, keys, values, kept, lengths, False, scale, None, dropout)
    return _in_order(output, torch.argsort(order, dim=-1)) if is_self else output


def _in_order(tokens: Tensor, order: Tensor) -> Tensor:
    return tokens.gather(2, order[:, None, :, None].expand(tokens.shape))


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    lengths: Tensor | None,
    is_causal: bool,
    scale: float,
    mask: Tensor | None,
    dropout: float,
) -> Tensor:
    """Attention by the kernel's operator; by torch's with a mask or dropout, or under export."""
    is_plain = mask is None and not dropout
    if is_plain and not torch.compiler.is_exporting():
        return attend_to_blocks(
            query, key, value, kept, lengths=lengths, is_causal=is_causal, scale=scale
        )
    return compose(query, key, value, kept, lengths, is_causal, scale, mask=mask, dropout=dropout)

"""torch's attention layer in single operators, with as many heads as its weights hold.

torch's own class forbids fewer, and calls `F.scaled_dot_product_attention` inside another function.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class NarrowAttention(nn.MultiheadAttention):
    """Called like nn.MultiheadAttention, with its weights; the head size and scale are kept."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        """The output without the removed heads; the attention weights are those of the remaining
        heads.
        """
        is_single = query.ndim == 2
        inputs = [
            tensor.unsqueeze(0 if self.batch_first else 1) if is_single else tensor
            for tensor in (query, key, value)
        ]
        inputs = inputs if self.batch_first else [tensor.transpose(0, 1) for tensor in inputs]
        q, k, v = self._projected(inputs)
        # torch's hint that the mask is causal, by which no mask is needed
        is_causal = is_causal and not need_weights and key_padding_mask is None
        mask = None if is_causal else self._mask(key_padding_mask, attn_mask, q, k)
        weights = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
            weights = (scores if mask is None else scores + mask).softmax(-1)
            heads = functional.dropout(weights, self.dropout, self.training) @ v
        else:
            heads = functional.scaled_dot_product_attention(
                q, k, v, mask, self.dropout if self.training else 0.0, is_causal
            )
        output = self.out_proj(heads.transpose(1, 2).flatten(2))
        output = output if self.batch_first else output.transpose(0, 1)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if is_single:
            output = output.squeeze(0 if self.batch_first else 1)
            weights = None if weights is None else weights.squeeze(0)
        return output, weights

    def _projected(self, inputs: list[Tensor]) -> list[Tensor]:
        """Queries, keys and values, split into heads."""
        packed = self.in_proj_weight
        weights = (
            [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
            if packed is None
            else list(packed.chunk(3))
        )
        biases = [None] * 3 if self.in_proj_bias is None else list(self.in_proj_bias.chunk(3))
        rows = [
            functional.linear(*operands) for operands in zip(inputs, weights, biases, strict=True)
        ]
        return [row.view(*row.shape[:-1], -1, self.head_dim).transpose(1, 2) for row in rows]

    def _mask(
        self, padding: Tensor | None, mask: Tensor | None, q: Tensor, k: Tensor
    ) -> Tensor | None:
        """Both masks as one additive mask that broadcasts over examples and heads."""
        combined = None if mask is None else _added(mask, q)
        if combined is not None and combined.ndim == 3:
            combined = combined.view(q.shape[0], -1, *combined.shape[1:])
        if padding is not None:
            hidden = _added(padding, q).view(-1, 1, 1, k.shape[-2])
            combined = hidden if combined is None else combined + hidden
        return combined


def _added(mask: Tensor, like: Tensor) -> Tensor:
    return (
        torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, float("-inf"))
        if mask.dtype == torch.bool
        else mask
    )


def narrow(attention: nn.MultiheadAttention) -> None:
    """Let an attention whose weights have lost heads compute with the remaining ones."""
    packed = attention.in_proj_weight
    rows = attention.q_proj_weight.shape[0] if packed is None else packed.shape[0] // 3
    heads, rest = divmod(rows, attention.head_dim)
    has_extra = attention.bias_k is not None or attention.add_zero_attn
    if rows != attention.embed_dim and not rest and not has_extra:
        if not isinstance(attention, NarrowAttention):  # a sparse one keeps its class
            attention.__class__ = NarrowAttention
        attention.num_heads = heads
        # keeps torch's fused encoder layer, which needs all heads, from being used
        attention._qkv_same_embed_dim = False

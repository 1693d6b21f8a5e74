"""torch's own attention layer, calling `F.scaled_dot_product_attention` where it can be seen: its
own code does so inside another function.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ..pruning.groups.narrow_attention import NarrowAttention


class TorchAttention(NarrowAttention):
    """Called as nn.MultiheadAttention is, with its weights; where the weights of attention are
    asked for, these are computed for all keys.
    """

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
        """The same output."""
        if need_weights or query.ndim == 2:
            return super().forward(
                query,
                key,
                value,
                key_padding_mask,
                need_weights,
                attn_mask,
                average_attn_weights,
                is_causal,
            )
        inputs = (
            [query, key, value]
            if self.batch_first
            else [one.transpose(0, 1) for one in (query, key, value)]
        )
        q, k, v = self._projected(inputs)
        is_causal = is_causal and key_padding_mask is None
        mask = None if is_causal else self._mask(key_padding_mask, attn_mask, q, k)
        results = F.scaled_dot_product_attention(
            q, k, v, mask, self.dropout if self.training else 0.0, is_causal
        )
        attention_output = self.out_proj(results.transpose(1, 2).flatten(2))
        return attention_output if self.batch_first else attention_output.transpose(0, 1), None


def through_sdpa(model: nn.Module, layer: str) -> None:
    """Let torch's attention layer call torch's attention itself; any other layer is left as it
    is.
    """
    attention = model.get_submodule(layer)
    if not can_be_seen(attention):
        return
    attention.__class__ = TorchAttention
    attention._qkv_same_embed_dim = False  # type: ignore[assignment]  # torch's fused encoder layer keeps out of the way
    for name, module in model.named_modules():
        if isinstance(module, nn.TransformerEncoder) and layer.startswith(
            f"{name}." if name else ""
        ):
            module.use_nested_tensor = False  # which only that fused layer takes


def packs_texts(module: nn.Module) -> bool:
    """Whether it is torch's encoder, and one that takes the padding out of texts as long as its
    layers are torch's fused ones.
    """
    return isinstance(module, nn.TransformerEncoder) and bool(module.use_nested_tensor)


def can_be_seen(layer: nn.Module) -> bool:
    """Whether it is torch's attention layer, of a kind that outputs the same that way."""
    is_plain = type(layer) in (nn.MultiheadAttention, NarrowAttention)
    return (
        is_plain
        and getattr(layer, "bias_k", None) is None
        and not getattr(layer, "add_zero_attn", False)
    )

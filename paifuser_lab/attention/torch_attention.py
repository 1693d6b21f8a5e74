"""torch's attention layer, rewritten to call `F.scaled_dot_product_attention` where the call can be
redirected: torch calls it inside another function.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ..pruning.groups.narrow_attention import NarrowAttention


class TorchAttention(NarrowAttention):
    """nn.MultiheadAttention with its signature and weights; where attention weights are requested,
    they are computed for all keys.
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
        """The output of nn.MultiheadAttention."""
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
            else [tensor.transpose(0, 1) for tensor in (query, key, value)]
        )
        q, k, v = self._projected(inputs)
        is_causal = is_causal and key_padding_mask is None
        mask = None if is_causal else self._mask(key_padding_mask, attn_mask, q, k)
        results = F.scaled_dot_product_attention(
            q, k, v, mask, self.dropout if self.training else 0.0, is_causal
        )
        attention_output = self.out_proj(results.transpose(1, 2).flatten(2))
        return attention_output if self.batch_first else attention_output.transpose(0, 1), None


def make_redirectable(model: nn.Module, layer: str) -> None:
    """Let nn.MultiheadAttention call torch's attention directly; any other layer is unchanged."""
    attention = model.get_submodule(layer)
    if not is_redirectable(attention):
        return
    attention.__class__ = TorchAttention
    attention._qkv_same_embed_dim = False  # type: ignore[assignment]  # disables torch's fused encoder layer
    for name, module in model.named_modules():
        if isinstance(module, nn.TransformerEncoder) and layer.startswith(
            f"{name}." if name else ""
        ):
            module.use_nested_tensor = False  # only that fused layer supports them


def drops_padding(module: nn.Module) -> bool:
    """Whether a module is nn.TransformerEncoder and drops padding before torch's fused layers."""
    return isinstance(module, nn.TransformerEncoder) and bool(module.use_nested_tensor)


def is_redirectable(layer: nn.Module) -> bool:
    """Whether a layer is an nn.MultiheadAttention that TorchAttention supports."""
    is_plain = type(layer) in (nn.MultiheadAttention, NarrowAttention)
    return (
        is_plain
        and getattr(layer, "bias_k", None) is None
        and not getattr(layer, "add_zero_attn", False)
    )

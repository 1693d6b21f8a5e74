"""BERT (Devlin et al., 2018): a text encoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .parts import Parts, token_parts


class Embeddings(nn.Module):
    """Embeddings of each token, of its position, and of which of two texts it belongs to."""

    def __init__(self, *, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.segment = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, input_ids: torch.Tensor, token_type_ids: torch.Tensor) -> torch.Tensor:
        """A vector for every token."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        out: torch.Tensor = self.norm(
            self.word(input_ids) + self.position(positions) + self.segment(token_type_ids)
        )
        return out


class SelfAttention(nn.Module):
    """Self-attention over all tokens that are not padding."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.project = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Multi-head attention with a padding mask."""
        query, key, value = (self._split(layer, x) for layer in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out: torch.Tensor = self.project(mixed.transpose(1, 2).flatten(2))
        return out

    def _split(self, layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        heads: torch.Tensor = layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return heads


class Layer(nn.Module):
    """A post-norm transformer layer: attention, then an MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Add both branches to the input."""
        x = self.norm1(x + self.attention(x, mask))
        out: torch.Tensor = self.norm2(x + self.mlp(x))
        return out


class Bert(nn.Module):
    """A stack of layers over token embeddings, and a pooled output of the first token."""

    def __init__(self, *, vocabulary: int, length: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.embeddings = Embeddings(vocabulary=vocabulary, length=length, width=width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.pooler = nn.Linear(width, width)
        self.tanh = nn.Tanh()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """A vector for every token and one for the text; `attention_mask` is 1 for tokens and 0 for
        padding.
        """
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        mask = None if attention_mask is None else attention_mask[:, None, None, :].bool()
        x = self.embeddings(input_ids, segments)
        for layer in self.layers:
            x = layer(x, mask)
        return {"last_hidden_state": x, "pooled": self.tanh(self.pooler(x[:, 0]))}


def bert_base(batch: int) -> Parts:
    """BERT-base on 128 tokens."""
    model = Bert(vocabulary=30522, length=512, width=768, depth=12, heads=12)
    return token_parts(model, batch=batch, length=128, vocabulary=30522)


def bert_base_tiny(batch: int) -> Parts:
    """A narrow, shallow BERT on 32 tokens."""
    model = Bert(vocabulary=1000, length=64, width=48, depth=2, heads=3)
    return token_parts(model, batch=batch, length=32, vocabulary=1000)

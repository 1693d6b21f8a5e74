"""Transformers with various kinds of attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.prune_zoo.architecture import architecture, images, tokens, vectors

WIDTH, HEADS, SIZE = 32, 4, 8
SEQUENCE = vectors(2, 6, WIDTH)


class Separate(nn.Module):
    """A layer each for queries, keys and values; products and softmax composed by hand."""

    def __init__(self, *, causal: bool = False) -> None:
        super().__init__()
        self.head_size, self.causal = SIZE, causal
        self.query, self.key, self.value = (nn.Linear(WIDTH, HEADS * SIZE) for _ in range(3))
        self.out = nn.Linear(HEADS * SIZE, WIDTH)

    def forward(self, x: Tensor) -> Any:
        b, n, _ = x.shape
        q, k, v = (
            projection(x).view(b, n, -1, self.head_size).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_size)
        if self.causal:
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))


class Packed(nn.Module):
    """One qkv layer and torch's own attention; the number of heads is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.head_size = HEADS, SIZE
        self.qkv, self.out = nn.Linear(WIDTH, 3 * HEADS * SIZE), nn.Linear(HEADS * SIZE, WIDTH)

    def forward(self, x: Tensor) -> Any:
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, self.head_size).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, n, self.heads * self.head_size))


class PackedByWidth(nn.Module):
    """The head size is computed from the input's width, so that no smaller number of heads fits."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Any:
        b, n, c = x.shape
        q, k, v = (
            self.qkv(x)
            .reshape(b, n, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        weights = ((q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, c))


class ByEinsum(nn.Module):
    """Weights with an axis for heads, and einsum throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.ParameterList(
            nn.Parameter(torch.randn(WIDTH, HEADS, SIZE)) for _ in range(3)
        )
        self.out = nn.Parameter(torch.randn(HEADS, SIZE, WIDTH))

    def forward(self, x: Tensor) -> Any:
        q, k, v = (torch.einsum("bnc,chd->bhnd", x, weight) for weight in self.into)
        weights = torch.einsum("bhnd,bhmd->bhnm", q, k).mul(SIZE**-0.5).softmax(-1)
        return torch.einsum("bhnd,hdc->bnc", torch.einsum("bhnm,bhmd->bhnd", weights, v), self.out)


class Shared(nn.Module):
    """Two query heads per head of keys and values, with rotary position embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.head_size, self.times = SIZE, 2
        self.query, self.key, self.value = (
            nn.Linear(WIDTH, heads * SIZE, bias=False) for heads in (HEADS, HEADS // 2, HEADS // 2)
        )
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Any:
        b, n, _ = x.shape
        q, k, v = (
            projection(x).view(b, n, -1, self.head_size).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        q, k = _rotated(q), _rotated(k)
        k, v = (
            heads[:, :, None].expand(-1, -1, self.times, -1, -1).reshape(b, -1, n, self.head_size)
            for heads in (k, v)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, -1))


def _rotated(x: Tensor) -> Tensor:
    """Rotate pairs of values by an angle that grows with the position."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] / 10.0 ** torch.arange(half)
    cos, sin = (torch.cat([function(angles)] * 2, -1).to(x) for function in (torch.cos, torch.sin))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Windows(nn.Module):
    """Attention within windows of an image, with a relative position bias per head."""

    def __init__(self) -> None:
        super().__init__()
        self.window, self.heads, self.head_size = 4, HEADS, SIZE
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.table = nn.Parameter(torch.randn(49, HEADS))
        position = torch.stack(
            torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
        ).flatten(1)
        distance = position[:, :, None] - position[:, None] + 3
        self.register_buffer("index", distance[0] * 7 + distance[1])
        self.index: Tensor

    def forward(self, x: Tensor) -> Any:
        b, n, c = x.shape
        side, w = math.isqrt(n), self.window
        x = x.view(b, side, side, c).roll((-2, -2), (1, 2))
        x = x.view(b, side // w, w, side // w, w, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)
        q, k, v = (
            self.qkv(x)
            .reshape(-1, w * w, 3, self.heads, self.head_size)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        bias = self.table[self.index.view(-1)].view(w * w, w * w, -1).permute(2, 0, 1)
        weights = (q @ k.transpose(-2, -1) * self.head_size**-0.5 + bias[None]).softmax(-1)
        x = self.out((weights @ v).transpose(1, 2).flatten(2))
        x = (
            x.view(b, side // w, side // w, w, w, c)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(b, side, side, c)
        )
        return x.roll((2, 2), (1, 2)).reshape(b, n, c)


class Mlp(nn.Module):
    """A wide layer, an activation and a narrow layer."""

    def __init__(self, act: Callable[[Tensor], Tensor] = functional.gelu) -> None:
        super().__init__()
        self.wide, self.narrow, self.act = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH), act

    def forward(self, x: Tensor) -> Any:
        return self.narrow(self.act(self.wide(x)))


class GatedMlp(nn.Module):
    """A wide layer gated by another."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(WIDTH, 48, bias=False),
            nn.Linear(WIDTH, 48, bias=False),
            nn.Linear(48, WIDTH, bias=False),
        )

    def forward(self, x: Tensor) -> Any:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each token is routed to two of four experts, whose weights are stacked; all experts compute,
    and a gate selects.
    """

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.up, self.down = (
            nn.Parameter(torch.randn(4, WIDTH, 48)),
            nn.Parameter(torch.randn(4, 48, WIDTH)),
        )

    def forward(self, x: Tensor) -> Any:
        flat = x.reshape(-1, x.shape[-1])
        scores, chosen = self.router(flat).softmax(-1).topk(2, -1)
        gates = torch.zeros(flat.shape[0], 4, dtype=x.dtype).scatter(1, chosen, scores)
        hidden = torch.relu(torch.bmm(flat.expand(4, -1, -1), self.up))
        return (torch.bmm(hidden, self.down) * gates.t()[..., None]).sum(0).view_as(x)


class RoutedExperts(nn.Module):
    """Each expert is a layer and runs only on the tokens that are routed to it."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, 4), nn.ModuleList(Mlp() for _ in range(4))

    def forward(self, x: Tensor) -> Any:
        flat = x.reshape(-1, x.shape[-1])
        chosen, result = self.router(flat).argmax(-1), torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            if (chosen == number).any():
                result[chosen == number] += expert(flat[chosen == number])
        return result.view_as(x)


class RootNorm(nn.Module):
    """RMS norm, composed by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Encoder(nn.Module):
    """Blocks of attention and an MLP with pre-norms; tokens or vectors in, scores for each out."""

    def __init__(
        self,
        attention: Callable[[], nn.Module],
        mlp: Callable[[], nn.Module] = Mlp,
        norm: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        norm = norm or (lambda: nn.LayerNorm(WIDTH))
        self.attention, self.mlp = (
            nn.ModuleList(attention() for _ in range(2)),
            nn.ModuleList(mlp() for _ in range(2)),
        )
        self.norms = nn.ModuleList(norm() for _ in range(4))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Any:
        for index, (attention, mlp) in enumerate(zip(self.attention, self.mlp, strict=True)):
            x = x + attention(self.norms[2 * index](x))
            x = x + mlp(self.norms[2 * index + 1](x))
        return self.head(x)


architecture("attention, separate", SEQUENCE)(lambda: Encoder(Separate))
architecture("attention, packed", SEQUENCE)(lambda: Encoder(Packed))
architecture("attention, width divided", SEQUENCE)(lambda: Encoder(PackedByWidth))
architecture("attention by einsum", SEQUENCE)(lambda: Encoder(ByEinsum))
architecture("windows", vectors(2, 64, WIDTH))(lambda: Encoder(Windows))
architecture("grouped queries, gated", SEQUENCE)(lambda: Encoder(Shared, GatedMlp, RootNorm))
architecture("stacked experts", SEQUENCE)(lambda: Encoder(Separate, Experts))
architecture("routed experts", vectors(4, 8, WIDTH))(lambda: Encoder(Packed, RoutedExperts))
architecture("sigmoid inside", SEQUENCE)(lambda: Encoder(Packed, lambda: Mlp(torch.sigmoid)))


@architecture("torch's attention", SEQUENCE)
class TorchAttention(nn.Module):
    """nn.MultiheadAttention, an MLP and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp, self.norm, self.head = Mlp(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Any:
        y, _ = self.attention(x, x, x)
        return self.head(self.mlp(self.norm(x + y)))


architecture("torch's encoder layer", SEQUENCE)(
    lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True)
)
architecture("torch's encoder", SEQUENCE)(
    lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True), 2)
)
architecture("torch's decoder layer", lambda: (torch.randn(2, 5, WIDTH), torch.randn(2, 6, WIDTH)))(
    lambda: nn.TransformerDecoderLayer(WIDTH, HEADS, 64, batch_first=True)
)


@architecture("vision transformer", images())
class Vision(nn.Module):
    """Patches, a class token and position embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, WIDTH, 4, 4), nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places, self.encoder = nn.Parameter(torch.zeros(1, 17, WIDTH)), Encoder(Packed)

    def forward(self, x: Tensor) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.encoder(x)[:, 0]


@architecture("language model, tied", tokens())
class Language(nn.Module):
    """Token and position embeddings added; the output layer shares the token embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(32, WIDTH), nn.Embedding(16, WIDTH)
        self.norm, self.attention, self.mlp = nn.LayerNorm(WIDTH), Separate(causal=True), Mlp()

    def forward(self, ids: Tensor) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        x = x + self.attention(self.norm(x))
        return functional.linear(x + self.mlp(x), self.words.weight)

"""Models with attention, and their inputs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from paifuser_lab.attention import find_attention, make_sparse
from paifuser_lab.attention.discover import lists_for
from paifuser_lab.zoo.bert import Bert
from paifuser_lab.zoo.vit import VisionTransformer

KINDS = ("topk", "block", "window")


class Attended(nn.Module):
    """torch's attention layer alone, with its masks."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 2, **options)

    def forward(self, x, *, is_causal=False, padding=None, need_weights=False):
        mask = nn.Transformer.generate_square_subsequent_mask(200) if is_causal else None
        options = {
            "attn_mask": mask,
            "key_padding_mask": padding,
            "need_weights": need_weights,
            "is_causal": is_causal,
        }
        normed = self.norm(x)
        return x + self.attention(normed, normed, normed, **options)[0]


def vision_model():
    """A vision transformer of 257 tokens: 16 × 16 patches and one for the class."""
    return (
        VisionTransformer(side=64, patch=4, width=32, depth=2, heads=2, classes=5).eval(),
        (torch.randn(2, 3, 64, 64),),
        {},
    )


def text():
    return (
        Bert(vocabulary=50, length=256, width=32, depth=2, heads=2).eval(),
        (torch.randint(0, 50, (2, 200)),),
        {},
    )


def padded_text(visible):
    model, args, _ = text()
    return model, args, {"attention_mask": visible}


def layer(**options):
    def make():
        return Attended(batch_first=True).eval(), (torch.randn(2, 200, 32),), options

    return make


def encoder():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 2).eval()
    return model, (torch.randn(2, 200, 32),), {"src_key_padding_mask": ~right(2)}


def foreign(kind, **options):
    """A model of transformers, small and of random weights."""

    def make():
        transformers = pytest.importorskip("transformers")
        shared = {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        }
        if kind == "ViT":
            config = transformers.ViTConfig(image_size=64, patch_size=4, **shared)
            return transformers.ViTModel(config).eval(), (torch.randn(2, 3, 64, 64),), {}
        if kind == "GPT2":
            config = transformers.GPT2Config(
                vocab_size=50,
                n_positions=256,
                n_embd=32,
                n_layer=1,
                n_head=2,
                bos_token_id=0,
                eos_token_id=0,
                use_cache=False,
            )
            return transformers.GPT2Model(config).eval(), (torch.randint(0, 50, (2, 200)),), options
        config = transformers.BertConfig(vocab_size=50, max_position_embeddings=256, **shared)
        return transformers.BertModel(config).eval(), (torch.randint(0, 50, (2, 200)),), options

    return make


def right(batch, tokens=200, missing=90):
    """Which tokens of a text that is padded on the right are there; the first of a batch is
    whole.
    """
    visible = torch.ones(batch, tokens, dtype=torch.bool)
    visible[1:, tokens - missing :] = False
    return visible


MODELS = {
    "the zoo's ViT": vision_model,
    "the zoo's BERT": text,
    "the zoo's BERT, padded": lambda: padded_text(right(2)),
    "the zoo's BERT, padded on the left": lambda: padded_text(right(2).flip(1)),
    "torch's layer": layer(),
    "torch's layer, causal": layer(is_causal=True),
    "torch's layer, padded": layer(padding=~right(2)),
    "torch's encoder": encoder,
    "BERT": foreign("BERT"),
    "BERT, padded": foreign("BERT", attention_mask=right(2).long()),
    "ViT": foreign("ViT"),
    "GPT-2": foreign("GPT2"),
    "GPT-2, padded on the left": foreign("GPT2", attention_mask=right(2).flip(1).long()),
}


def sparse(model, inputs, keeping):
    """A copy that attends to a part in every layer that can."""
    made = copy.deepcopy(model)
    seen = find_attention(model, inputs)
    for name, calls in seen.able.items():
        fixed = lists_for(calls, keeping) if keeping.kind == "block" else None
        make_sparse(made, name, keeping, fixed)
    assert len(seen.able) == len(seen.calls) >= 1
    return made


def seen_tokens(kwargs, answer):
    """The tokens of an answer that are no padding."""
    mask = kwargs.get("attention_mask")
    padding = kwargs.get("src_key_padding_mask", kwargs.get("padding"))
    visible = mask.bool() if mask is not None else None if padding is None else ~padding
    hidden = answer if isinstance(answer, torch.Tensor) else answer["last_hidden_state"]
    return hidden if visible is None else hidden[visible]

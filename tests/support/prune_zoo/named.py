"""Models of transformers, built small from their configs, if it is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from tests.support.prune_zoo.architecture import architecture, images, tokens

COMMON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
WORDS = {"vocab_size": 32, "max_position_embeddings": 32}
IMAGE = {"image_size": 16, "patch_size": 4, "num_channels": 3}
SHIFTED = {
    "image_size": 16,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
NAMED: dict[str, tuple[str, dict[str, Any], Callable[[], Any]]] = {
    "BERT": ("Bert", COMMON | WORDS, tokens()),
    "RoBERTa": ("Roberta", COMMON | WORDS, tokens()),
    "DistilBERT": (
        "DistilBert",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48} | WORDS,
        tokens(),
    ),
    "ELECTRA": ("Electra", COMMON | WORDS | {"embedding_size": 16}, tokens()),
    "GPT-2": (
        "GPT2",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 32},
        tokens(),
    ),
    "OPT": ("OPT", COMMON | WORDS | {"ffn_dim": 48, "word_embed_proj_dim": 32}, tokens()),
    "Llama": ("Llama", COMMON | WORDS | {"num_key_value_heads": 2}, tokens()),
    "Mistral": ("Mistral", COMMON | WORDS | {"num_key_value_heads": 2}, tokens()),
    "Qwen2": ("Qwen2", COMMON | WORDS | {"num_key_value_heads": 4}, tokens()),
    "T5 encoder": (
        "T5",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 32},
        tokens(),
    ),
    "ViT": ("ViT", COMMON | IMAGE, images()),
    "DeiT": ("DeiT", COMMON | IMAGE, images()),
    "Swin": ("Swin", SHIFTED, images()),
    "Swinv2": ("Swinv2", SHIFTED, images()),
    "ConvNeXt": (
        "ConvNext",
        {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2, "patch_size": 2},
        images(),
    ),
    "ResNet": (
        "ResNet",
        {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2], "layer_type": "basic"},
        images(size=32),
    ),
    "MobileNetV2": ("MobileNetV2", {"depth_multiplier": 0.35}, images(size=32)),
    "SegFormer": (
        "Segformer",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [16, 32],
            "num_attention_heads": [2, 4],
            "patch_sizes": [3, 3],
            "strides": [2, 2],
            "mlp_ratios": [2, 2],
        },
        images(size=16),
    ),
}


def _build(kind: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**options)
        config.use_cache = False
        name = "T5EncoderModel" if kind == "T5" else f"{kind}Model"
        model: nn.Module = getattr(transformers, name)(config)
        return nn.Sequential(_Hidden(model), nn.Linear(_width(config), 3))

    return build


class _Hidden(nn.Module):
    """The last hidden state, channels last."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.model(x).last_hidden_state
        return hidden.movedim(1, -1) if hidden.ndim == 4 else hidden


def _width(config: Any) -> int:
    if config.model_type == "mobilenet_v2":
        return 1280
    sizes = getattr(config, "hidden_sizes", None)
    return int(sizes[-1]) if sizes else int(config.hidden_size)


if find_spec("transformers"):
    for _name, (_kind, _options, _inputs) in NAMED.items():
        architecture(_name, _inputs)(_build(_kind, _options))

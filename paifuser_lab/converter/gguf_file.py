"""Writes a causal language model as a GGUF file, which llama.cpp, OpenVINO GenAI and others run:
layers in int8 as Q8_0, in int4 as Q4_0, with the very integers of the variant.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ..errors import ExportError, optional_module
from ..model.formats import Quantized
from ..workload import Workload
from .named_weights import BLOCK, in_blocks, named_weights

FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7}  # llama.cpp's numbers
# how a tokenizer splits a text before it joins bytes, as llama.cpp names it
SPLITS = {("Digits", "ByteLevel"): "smollm", ("ByteLevel",): "gpt-2"}


def write_gguf(
    work: Workload, model: nn.Module, path: Path, *, floats: torch.dtype = torch.float32
) -> None:
    """Write a workload's model, or a variant's, with the workload's tokenizer; `floats` is the
    format of matrices that are not in integers.
    """
    gguf = optional_module("gguf", extra="language", needed_for=path.name)
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) != "llama":
        kind = getattr(config, "model_type", type(model).__name__)
        raise ExportError(
            f"{work.name} is of the type {kind}; GGUF files are written for llama alone."
        )
    _check_plain(work, config)
    writer = gguf.GGUFWriter(str(path), "llama")
    _add_config(writer, config)
    _add_tokenizer(writer, gguf, work)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    kinds = []
    for name, weight in named_weights(work, model, "GGUF files"):
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise ExportError(f"layer '{name}' has no place in a GGUF file of a llama.")
        heads = _heads(config, name)
        if isinstance(weight, Quantized):
            packed, kind = _packed(weight, heads)
            kinds.append(kind)
            writer.add_tensor(target, packed, raw_dtype=getattr(gguf.GGMLQuantizationType, kind))
        else:
            rows = _ordered(weight.to(floats if weight.ndim > 1 else torch.float32), heads)
            writer.add_tensor(target, rows.numpy())
    common = max(kinds, key=kinds.count, default="F16" if floats is torch.float16 else "F32")
    writer.add_file_type(FILE_TYPES[common])  # by which OpenVINO knows how to read the rest
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _heads(config: Any, name: str) -> int | None:
    """The heads whose rows llama.cpp has in another order, since it rotates neighbours."""
    if name.endswith("q_proj.weight"):
        return int(config.num_attention_heads)
    return int(config.num_key_value_heads) if name.endswith("k_proj.weight") else None


def _ordered(rows: Tensor, heads: int | None) -> Tensor:
    if heads is None:
        return rows
    return rows.reshape(heads, 2, -1, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


def _packed(weight: Quantized, heads: int | None) -> tuple[numpy.ndarray[Any, Any], str]:
    """A weight's integers in blocks, each behind its scale in fp16, and the name of that format."""
    ordered = Quantized(_ordered(weight.values, heads), _ordered(weight.scales, heads), 0)
    integers, scales, bits = in_blocks(ordered)
    if bits == 4:  # the second half of a block is in the upper four bits
        low, high = torch.split((integers + 8).to(torch.uint8), BLOCK // 2, dim=-1)
        integers = low | (high << 4)
    each = scales.half().unsqueeze(-1)
    packed = torch.cat([each.view(torch.uint8), integers.view(torch.uint8)], dim=-1)
    return packed.reshape(len(integers), -1).numpy(), f"Q{bits}_0"


def _check_plain(work: Workload, config: Any) -> None:
    """Raise for what a llama may have and the file would not say."""
    rope = getattr(config, "rope_parameters", None) or {}
    own = {
        "scaled positions": rope.get("rope_type", "default") != "default",
        "biases": config.attention_bias or config.mlp_bias,
        "heads of a size of their own": config.head_dim * config.num_attention_heads
        != config.hidden_size,
        "an activation other than silu": config.hidden_act != "silu",
    }
    if named := [what for what, is_so in own.items() if is_so]:
        raise ExportError(
            f"{work.name} has {named[0]}, which GGUF files are not written with; export it to onnx."
        )


def _add_config(writer: Any, config: Any) -> None:
    rope = getattr(config, "rope_parameters", None) or {}
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(rope.get("rope_theta", getattr(config, "rope_theta", 10000.0)))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _add_tokenizer(writer: Any, gguf: Any, work: Workload) -> None:
    """The tokens, and the pairs that are joined, of a byte-pair tokenizer."""
    state = json.loads(work.tokenizer.backend_tokenizer.to_str())
    split = _split(state.get("pre_tokenizer") or {})
    if state["model"].get("type") != "BPE" or split not in SPLITS:
        raise ExportError(
            f"the tokenizer of {work.name} is {state['model'].get('type')} split by "
            f"{', '.join(split) or 'nothing'}; GGUF files are written for byte-pair tokenizers "
            f"split by {' or '.join(', '.join(known) for known in SPLITS)}."
        )
    tokens = {index: token for token, index in state["model"]["vocab"].items()}
    kinds = dict.fromkeys(tokens, gguf.TokenType.NORMAL)
    for added in state.get("added_tokens", []):
        tokens[added["id"]] = added["content"]
        kinds[added["id"]] = (
            gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        )
    config: Any = work.model.config
    count = int(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(SPLITS[split])
    writer.add_token_list([tokens.get(index, f"[PAD{index}]") for index in range(count)])
    writer.add_token_types([kinds.get(index, gguf.TokenType.UNUSED) for index in range(count)])
    writer.add_token_merges(
        [pair if isinstance(pair, str) else " ".join(pair) for pair in state["model"]["merges"]]
    )
    for name in ("bos", "eos", "unk", "pad"):
        if (token := getattr(work.tokenizer, f"{name}_token_id", None)) is not None:
            getattr(writer, f"add_{name}_token_id")(token)
    if template := getattr(work.tokenizer, "chat_template", None):
        writer.add_chat_template(template)


def _split(pre_tokenizer: dict[str, Any]) -> tuple[str, ...]:
    parts = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    return tuple(part["type"] for part in parts if part)

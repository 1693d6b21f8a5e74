"""A language model and a text to try things with, where nobody gave any; nothing is downloaded."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from .._files import write_text
from .installed import installed_names

TINY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
END = "<|end|>"
SMOLLM2 = "smollm2-135m"
FEWEST = 200  # characters of a docstring that is a text
SENTENCES = 48  # that an encoder of sentences is judged by, four in a batch of as many tokens
BATCH, LENGTH = 4, 64


def example_language_model(folder: Path) -> str:
    """What to load: SmolLM2-135M where its package is installed, else a tiny Llama with random
    weights, written into the folder.
    """
    if SMOLLM2 in installed_names():
        return SMOLLM2
    return f"hf:{save_tiny_llama(folder / 'llama-tiny')}"


def save_tiny_llama(folder: Path, **changes: Any) -> Path:
    """Write a Llama with random weights and a tokenizer whose tokens are the bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = {token: number for number, token in enumerate([END, *letters, "th"])}
    # one pair is joined: llama.cpp reads no tokenizer that joins nothing
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    sizes = {"vocab_size": len(tokens) + 62} | TINY | changes
    config = LlamaConfig(bos_token_id=0, eos_token_id=0, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(folder)
    return folder


def save_example_text(path: Path, characters: int = 60_000) -> Path:
    """Write docstrings of Python's standard library: plain English that every machine has."""
    text = ""
    for docstring in _docstrings():
        text += docstring + "\n\n"
        if len(text) > characters:
            break
    return write_text(path, text[:characters])


def give_sentences(work: Any) -> None:
    """Judge an encoder of sentences by docstrings: to a first paragraph it has to find the rest."""
    halves = (docstring.partition("\n\n") for docstring in _docstrings())
    pairs = [(first, rest) for first, _, rest in halves if len(rest) >= FEWEST][:SENTENCES]
    batches = []
    for at in range(0, len(pairs), BATCH):
        texts = [text for pair in pairs[at : at + BATCH] for text in pair]
        look = {"padding": "max_length", "max_length": LENGTH, "truncation": True}
        tokens = work.tokenizer(texts, return_tensors="pt", **look)
        inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
        batches.append((inputs, torch.arange(len(texts)) // 2))
    work.test, work.metric = batches, found_share


def found_share(predict: Callable[..., Any], batches: Sequence[Any]) -> float:
    """The share of first paragraphs to which the rest of their own docstring is the nearest text;
    a text is the mean of its tokens' states.
    """
    vectors = []
    for inputs, _ in batches:
        mask = inputs["attention_mask"][..., None]
        states = predict(inputs).last_hidden_state
        vectors.append(F.normalize((states * mask).sum(1) / mask.sum(1), dim=-1))
    texts = torch.cat(vectors)
    nearest = (texts[::2] @ texts[1::2].T).argmax(1)
    return float((nearest == torch.arange(len(nearest), device=nearest.device)).float().mean())


def _docstrings() -> Iterator[str]:
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8", errors="ignore"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                docstring = ast.get_docstring(node)
                if docstring and len(docstring) >= FEWEST:
                    yield docstring

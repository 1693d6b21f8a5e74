"""Generating text as two workloads, which are profiled, compared and searched each by itself:
prefill reads the prompt, decode adds one token to a cache that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from ...errors import WorkloadError
from ..eval_mode import running
from .cache import Pair, bytes_per_token, cache_over, empty_pairs
from .text import Subject, judged_windows


@dataclass(frozen=True)
class Generation:
    """A causal language model at a length of prompt and of text. Both phases have the layers of the
    model by their names, so that a recipe for one is a recipe for the other.
    """

    work: Subject
    prompt_tokens: int = 128
    new_tokens: int = 64

    def __post_init__(self) -> None:
        most = self.longest_context
        for what in ("prompt_tokens", "new_tokens"):
            if getattr(self, what) < 1:
                raise WorkloadError(f"{what}={getattr(self, what)}: give 1 or more.")
        if most and self.prompt_tokens + self.new_tokens > most:
            raise WorkloadError(
                f"{self.work.name} has a context of {most:,} tokens; {self.prompt_tokens:,} of the "
                f"prompt and {self.new_tokens:,} new ones are more: give fewer."
            )

    @property
    def longest_context(self) -> int | None:
        """The most tokens that the model's positions allow; None if its config does not say."""
        return getattr(self.work.model.config, "max_position_embeddings", None)

    @cached_property
    def prompt(self) -> list[int]:
        """The prompt: the first tokens of the workload's text, else of its example inputs."""
        tokens = [token for window in judged_windows(self.work) or [] for token in window]
        if not tokens:
            ids = (one for one in self.work.inputs.tensors if not one.is_floating_point())
            tokens = next(ids).flatten().tolist()
        repeats = -(-self.prompt_tokens // len(tokens))
        return (tokens * repeats)[: self.prompt_tokens]

    def readable(self, tokens: list[int]) -> str:
        """Tokens as text; as numbers where no tokenizer is known."""
        if self.work.make_tokenizer is None:
            return " ".join(map(str, tokens))
        return str(self.work.tokenizer.decode(tokens))

    @cached_property
    def prefill(self) -> Any:
        """The model reading the prompt: its tokens in, the next one's logits out."""
        tokens = torch.tensor([self.prompt], device=self.work.device)
        return self._phase(_prefilling, {"input_ids": tokens}, "prefill")

    @cached_property
    def decode(self) -> Any:
        """The model adding one token to a prompt that the cache holds."""
        pairs = self._filled()
        tokens = torch.tensor([self.prompt[-1:]], device=self.work.device)
        return self._phase(_decoding, {"input_ids": tokens, "pairs": pairs}, "decode")

    @property
    def bytes_per_token(self) -> int:
        """What the cache of one token takes."""
        with running(self.work.model):
            return bytes_per_token(empty_pairs(self.work.model, 1))

    def cache_bytes(self, tokens: int | None = None) -> int:
        """What the cache of a text takes."""
        return self.bytes_per_token * (tokens or self.prompt_tokens + self.new_tokens)

    def longest_within(self, limit_bytes: int) -> int:
        """The longest text whose cache fits beside the weights."""
        weights = sum(tensor.nbytes for tensor in self.work.model.state_dict().values())
        most = max(0, limit_bytes - weights) // self.bytes_per_token
        return int(min(most, self.longest_context or most))

    def _filled(self) -> list[Pair]:
        """A cache that holds the prompt without its last token, which decode appends."""
        with running(self.work.model):
            pairs = empty_pairs(self.work.model, self.prompt_tokens)
            if len(self.prompt) > 1:
                ids = torch.tensor([self.prompt[:-1]], device=self.work.device)
                self.work.model(input_ids=ids, past_key_values=cache_over(pairs, 0), use_cache=True)
        return pairs

    def _phase(self, kind: Any, inputs: dict[str, Any], name: str) -> Any:
        """The same modules under another forward."""
        model = object.__new__(kind(type(self.work.model)))
        model.__dict__.update(self.work.model.__dict__)
        for table in ("_modules", "_parameters", "_buffers"):
            model.__dict__[table] = dict(self.work.model.__dict__[table])
        workload: Any = type(self.work)
        return workload(model, inputs, name=f"{self.work.name} {name}")


def generation(work: Subject, prompt_tokens: int, new_tokens: int) -> Generation:
    """See `Workload.generation`."""
    config = getattr(work.model, "config", None)
    if not hasattr(work.model, "generate") or getattr(config, "is_encoder_decoder", False):
        raise WorkloadError(
            f"{work.name} is no causal language model of transformers, so it generates no text; "
            "load one: lab.load('hf:FOLDER') or lab.load('model.gguf')."
        )
    return Generation(work, prompt_tokens, new_tokens)


@cache
def _prefilling(kind: type) -> type:
    def forward(self: Any, input_ids: Tensor) -> Tensor:
        output = kind.forward(self, input_ids=input_ids, use_cache=False, logits_to_keep=1)  # type: ignore[attr-defined]
        logits: Tensor = output.logits
        return logits

    return type(f"{kind.__name__}Prefill", (kind,), {"forward": forward})


@cache
def _decoding(kind: type) -> type:
    def forward(self: Any, input_ids: Tensor, pairs: list[Pair]) -> Tensor:
        known = pairs[0][0].shape[2] - input_ids.shape[1]
        output = kind.forward(  # type: ignore[attr-defined]
            self, input_ids=input_ids, past_key_values=cache_over(pairs, known), use_cache=True
        )
        logits: Tensor = output.logits
        return logits

    return type(f"{kind.__name__}Decode", (kind,), {"forward": forward})

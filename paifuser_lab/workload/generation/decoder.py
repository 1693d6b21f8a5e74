"""What turns tokens into logits, one call after the other: a torch model with its cache here, other
runtimes in `converter.decoders`. All are measured and evaluated through this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from .cache import cache_over, empty_pairs


class Decoder(Protocol):
    """A language model with the cache of one text."""

    def reset(self) -> None:
        """Begin another text."""

    def feed(self, tokens: Sequence[int], *, every: bool = False) -> Tensor:
        """Append tokens; the logits that follow the last one, or those after every one."""


class TorchDecoder:
    """A causal language model of transformers, or a variant of one, in eval mode."""

    def __init__(self, model: Any, context: int) -> None:
        self.model = model
        self.pairs = empty_pairs(model, context)
        self.reset()

    def reset(self) -> None:
        self.cache = cache_over(self.pairs, 0)

    def feed(self, tokens: Sequence[int], *, every: bool = False) -> Tensor:
        ids = torch.tensor([list(tokens)], device=self.pairs[0][0].device)
        with torch.no_grad():
            output = self.model(
                input_ids=ids,
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=0 if every else 1,
            )
        logits: Tensor = output.logits[0]
        return logits if every else logits[-1]


def greedy(decoder: Decoder, prompt: Sequence[int], count: int) -> list[int]:
    """The most likely next token, `count` times."""
    decoder.reset()
    logits, tokens = decoder.feed(prompt), []
    for _ in range(count):
        tokens.append(int(logits.argmax()))
        logits = decoder.feed(tokens[-1:])
    return tokens


def surprise(decoder: Decoder, windows: Sequence[Sequence[int]]) -> tuple[float, Tensor]:
    """The mean cross-entropy of each next token of these texts, whose exponential is the
    perplexity, and the token that is the most likely at each place.
    """
    losses, likely = [], []
    for window in windows:
        decoder.reset()
        logits = decoder.feed(window, every=True).float().cpu()
        losses.append(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(window[1:])))
        likely.append(logits.argmax(-1))
    return float(torch.stack(losses).mean()), torch.cat(likely)

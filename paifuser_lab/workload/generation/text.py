"""A plain text as the data of a language model: windows of tokens, the loss of each next token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ..._files import read_text
from ...errors import DataError

WINDOW = 128
FEWEST = 8  # windows
WINDOWS_PER_BATCH = 4
TEST_SHARE = 0.25
MOST_BYTES = 64 << 20


class Subject(Protocol):
    """A workload, which has its text and its generation from here, and so is not imported."""

    model: Any
    name: Any
    inputs: Any
    train: Any
    test: Any
    loss: Any
    metric: Any
    make_tokenizer: Any

    @property
    def tokenizer(self) -> Any: ...

    @property
    def device(self) -> torch.device: ...


def give_text(work: Subject, path: str | Path) -> None:
    """Give a language model the first three quarters of a text as train data, and the rest as test
    data with the share of next tokens that it predicts as metric.
    """
    windows = _windows(work, path)
    learned = len(windows) - max(1, round(len(windows) * TEST_SHARE))
    work.train, work.test = _batches(windows[:learned]), _batches(windows[learned:])
    work.loss, work.metric = next_token_loss, next_token_accuracy


def judged_windows(work: Subject) -> list[list[int]] | None:
    """The windows of a workload's text that it is judged by; None if it was given no text."""
    if work.metric is not next_token_accuracy:
        return None
    return [window for _, batch in work.test for window in batch.tolist()]


def _windows(work: Subject, path: str | Path) -> Tensor:
    """The text in windows of tokens, as long as the model's context allows."""
    window = min(WINDOW, getattr(work.model.config, "max_position_embeddings", WINDOW))
    text = read_text(Path(path), limit_bytes=MOST_BYTES)
    tokens = work.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    count = len(tokens) // window
    if count < FEWEST:
        raise DataError(
            f"{path} has {len(tokens):,} tokens for {work.name}; {FEWEST} windows of {window} "
            f"need {FEWEST * window:,}: give a longer text."
        )
    return torch.tensor(tokens[: count * window]).reshape(count, window)


def next_token_loss(output: Any, tokens: Tensor) -> Tensor:
    """The cross-entropy of each next token; its exponential is the perplexity."""
    return F.cross_entropy(output.logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def next_token_accuracy(predict: Callable[..., Any], test: Sequence[tuple[Any, Tensor]]) -> float:
    """The share of next tokens that are the most likely."""
    right = [predict(inputs).logits[:, :-1].argmax(-1) == tokens[:, 1:] for inputs, tokens in test]
    return float(torch.cat([part.flatten() for part in right]).float().mean())


def _batches(windows: Tensor) -> list[tuple[dict[str, Tensor], Tensor]]:
    return [({"input_ids": part}, part) for part in torch.split(windows, WINDOWS_PER_BATCH)]

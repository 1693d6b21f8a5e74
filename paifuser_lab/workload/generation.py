"""Language models: generating text as two workloads (prefill and decode), what turns tokens into
logits one call after the other, and a plain text as data.

The key-value cache is memory that is allocated once: a token writes its row, and attention reads
the rows up to it. transformers' static cache attends to all of its rows under a mask, and its
dynamic one copies all of them for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from .._files import read_text
from ..errors import DataError, WorkloadError
from ..model.weights import weights_bytes
from .checks import Checked
from .eval_mode import running

Pair = tuple[Tensor, Tensor]  # keys and values, (batch, heads, tokens, size of a head)
WINDOW = 128  # tokens of a text
FEWEST = 8  # windows
WINDOWS_PER_BATCH = 4
TEST_SHARE = 0.25
MOST_BYTES = 64 << 20  # of a text


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
        most = max(0, limit_bytes - weights_bytes(self.work.model)) // self.bytes_per_token
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


def writes_text(model: Any) -> bool:
    """Whether it is a causal language model of transformers."""
    config = getattr(model, "config", None)
    return hasattr(model, "generate") and not getattr(config, "is_encoder_decoder", False)


def generation(work: Subject, prompt_tokens: int, new_tokens: int) -> Generation:
    """See `Workload.generation`."""
    if not writes_text(work.model):
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


class Decoder(Protocol):
    """A language model with the cache of one text."""

    def reset(self) -> None:
        """Begin another text."""

    def feed(self, tokens: Sequence[int], *, every: bool = False) -> Tensor:
        """Append tokens; the logits that follow the last one, or those after every one."""


class TorchDecoder:
    """A causal language model of transformers, or a variant of one, in eval mode."""

    def __init__(self, model: Any, context: int) -> None:
        self.model, self.context = model, context
        self.pairs = empty_pairs(model, context)
        self.known = 0  # tokens that were read

    def keep(self, known: int) -> None:
        """Forget all tokens but the first."""
        self.known = known

    def reset(self) -> None:
        self.keep(0)

    def feed(self, tokens: Sequence[int], *, every: bool = False) -> Tensor:
        ids = torch.tensor([list(tokens)], device=self.pairs[0][0].device)
        with torch.no_grad():
            logits = self.logits(ids, every)[0]
        self.known += len(tokens)
        return logits if every else logits[-1]

    def logits(self, ids: Tensor, every: bool) -> Tensor:
        """The logits after the last of these tokens, or after every one."""
        return next_logits(self.model, ids, self.pairs, self.known, every)


def next_logits(model: Any, ids: Tensor, pairs: Sequence[Pair], known: int, every: bool) -> Tensor:
    """The logits after the last of these tokens, or after every one; their keys and values are
    written behind those that are known.
    """
    output = model(
        input_ids=ids,
        past_key_values=cache_over(pairs, known),
        use_cache=True,
        logits_to_keep=0 if every else 1,
    )
    logits: Tensor = output.logits
    return logits


def greedy(decoder: Decoder, prompt: Sequence[int], count: int) -> list[int]:
    """The most likely next token, `count` times."""
    decoder.reset()
    logits, tokens = decoder.feed(prompt), []
    for _ in range(count):
        tokens.append(int(logits.argmax()))
        logits = decoder.feed(tokens[-1:])
    return tokens


class Speculated(NamedTuple):
    """Tokens that a model wrote, and how many of a draft's it was asked about and kept."""

    tokens: list[int]
    calls: int  # of the model
    drafted: int = 0
    accepted: int = 0


def speculative(
    model: TorchDecoder, draft: TorchDecoder, text: Sequence[int], count: int, length: int
) -> Speculated:
    """The `count` tokens that greedy decoding appends to a text that the model has read: the draft
    guesses up to `length` of them, one call of the model reads these and tells its own next token
    after each, and what it would have written itself is kept. A draft of 0 is greedy decoding.
    """
    tokens, whole = list(text), len(text) + count
    calls = drafted = accepted = 0
    model.keep(len(text) - 1)  # each call begins with the last token of the text
    while len(tokens) < whole:
        guessed = list(tokens)
        for _ in range(min(length, whole - len(tokens) - 1)):
            guessed.append(int(draft.feed(guessed[draft.known :]).argmax()))
        own = model.feed(guessed[len(tokens) - 1 :], every=True).argmax(-1).tolist()
        ahead = guessed[len(tokens) :]
        agreed = next((at for at, guess in enumerate(ahead) if guess != own[at]), len(ahead))
        calls, drafted, accepted = calls + 1, drafted + len(ahead), accepted + agreed
        tokens += own[: agreed + 1]
        model.keep(len(tokens) - 1)
        draft.keep(min(draft.known, len(tokens) - 1))
    return Speculated(tokens[len(text) :], calls, drafted, accepted)


def surprise(decoder: Decoder, windows: Iterable[Sequence[int]]) -> tuple[float, Tensor]:
    """The mean cross-entropy of each next token of these texts, whose exponential is the
    perplexity, and the token that is the most likely at each place.
    """
    losses, likely = [], []
    for window in windows:
        decoder.reset()
        logits = decoder.feed(window, every=True).float().cpu()
        losses.append(F.cross_entropy(logits[:-1], torch.tensor(window[1:])))
        likely.append(logits.argmax(-1))
    return float(torch.stack(losses).mean()), torch.cat(likely)


def cache_over(pairs: Sequence[Pair], length: int) -> Any:
    """A cache of transformers over these keys and values, of which the first `length` are known."""
    from transformers.cache_utils import Cache

    return Cache(layers=[_layer_class()(keys, values, length) for keys, values in pairs])


def empty_pairs(model: Any, tokens: int) -> list[Pair]:
    """Keys and values of so many tokens for each layer, in the shapes that one token shows: pruned
    layers may have fewer heads than the config says.
    """
    device = next(model.parameters()).device
    with torch.no_grad():
        seen = model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=True)
    layers = seen.past_key_values.layers
    some = next(layer for layer in layers if layer.keys is not None)
    # a block that was left out has no heads, so that the others keep their numbers
    kept = [
        (some.keys[:, :0], some.values[:, :0]) if layer.keys is None else (layer.keys, layer.values)
        for layer in layers
    ]
    return [(_widened(keys, tokens), _widened(values, tokens)) for keys, values in kept]


def bytes_per_token(pairs: Sequence[Pair]) -> int:
    """What the cache of one more token takes."""
    return sum(part.nbytes // part.shape[2] for pair in pairs for part in pair)


def _widened(row: Tensor, tokens: int) -> Tensor:
    batch, heads, _, size = row.shape
    return row.new_zeros(batch, heads, tokens, size)


@cache
def _layer_class() -> Any:
    from transformers.cache_utils import CacheLayerMixin

    class PreallocatedLayer(CacheLayerMixin):  # type: ignore[misc]
        """The keys and values of one layer; `length` tokens are known."""

        is_sliding = False

        def __init__(self, keys: Tensor, values: Tensor, length: int) -> None:
            super().__init__()
            self.keys, self.values, self.length = keys, values, length
            self.is_initialized = True

        def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
            """Nothing: the memory is there."""

        def update(
            self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
        ) -> tuple[Tensor, Tensor]:
            """Write the new rows, and return all that are known now."""
            start, self.length = self.length, self.length + key_states.shape[-2]
            known = (self.keys[:, :, : self.length], self.values[:, :, : self.length])
            known[0][:, :, start:] = key_states
            known[1][:, :, start:] = value_states
            return known

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            """The rows that a call of so many tokens attends to, and where they start."""
            return self.length + query_length, 0

        def get_seq_length(self) -> int:
            """The number of known tokens."""
            return self.length

        def get_max_length(self) -> int:
            """The number of tokens that there is memory for."""
            return self.keys.shape[2]

    return PreallocatedLayer


class Subject(Checked, Protocol):
    """A workload, which has its text and its generation from here, and so is not imported."""

    model: Any
    make_tokenizer: Any

    @property
    def tokenizer(self) -> Any: ...


def give_text(work: Subject, path: str | Path) -> None:
    """Give a language model the first three quarters of a text as train data, and the rest as test
    data with the share of next tokens that it predicts as metric.
    """
    window = min(WINDOW, getattr(work.model.config, "max_position_embeddings", WINDOW))
    text = read_text(Path(path), limit_bytes=MOST_BYTES)
    tokens = work.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    count = len(tokens) // window
    if count < FEWEST:
        raise DataError(
            f"{path} has {len(tokens):,} tokens for {work.name}; {FEWEST} windows of {window} "
            f"need {FEWEST * window:,}: give a longer text."
        )
    windows = torch.tensor(tokens[: count * window]).reshape(count, window)
    learned = len(windows) - max(1, round(len(windows) * TEST_SHARE))
    work.train, work.test = _batches(windows[:learned]), _batches(windows[learned:])
    work.loss, work.metric = next_token_loss, next_token_accuracy


def judged_windows(work: Subject) -> list[list[int]] | None:
    """The windows of a workload's text that it is judged by; None if it was given no text."""
    if work.metric is not next_token_accuracy:
        return None
    return [window for _, batch in work.test for window in batch.tolist()]


def next_token_loss(output: Any, tokens: Tensor) -> Tensor:
    """The cross-entropy of each next token; its exponential is the perplexity."""
    return F.cross_entropy(output.logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def next_token_accuracy(predict: Callable[..., Any], test: Sequence[tuple[Any, Tensor]]) -> float:
    """The share of next tokens that are the most likely."""
    right = [predict(inputs).logits[:, :-1].argmax(-1) == tokens[:, 1:] for inputs, tokens in test]
    return float(torch.cat([part.flatten() for part in right]).float().mean())


def _batches(windows: Tensor) -> list[tuple[dict[str, Tensor], Tensor]]:
    return [({"input_ids": part}, part) for part in torch.split(windows, WINDOWS_PER_BATCH)]

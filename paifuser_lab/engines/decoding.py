"""A language model whose calls of few tokens are replayed: the operators of a call, with the number
of tokens that the cache holds as a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from ..errors import StepError
from ..workload import Inputs
from ..workload.generation import Pair, TorchDecoder, next_logits
from .tape import Tape

FEW_TOKENS = 16  # longer calls take long in their operators
MARGIN = 2  # a recording writes so many tokens past its own


class ReplayDecoder(TorchDecoder):
    """Records the first call of each number of tokens; what it cannot record runs in the model."""

    def __init__(self, model: Any, context: int) -> None:
        super().__init__(model, context)
        self.replays = dict[tuple[int, bool], Callable[..., Tensor] | None]()
        window = getattr(model.config, "sliding_window", None)
        # past a window attention runs other operators
        self.can_replay = window is None or context <= window

    def logits(self, ids: Tensor, every: bool) -> Tensor:
        kind = (ids.shape[1], every)
        # the first call of a text has other operators: there is no token before its own
        if self.known and self.can_replay:
            room = self.context - self.known - ids.shape[1]
            if kind not in self.replays and ids.shape[1] <= FEW_TOKENS and room >= MARGIN:
                self.replays[kind] = self._recorded(ids, every)
            if replay := self.replays.get(kind):
                return replay(ids, self.known)
        return super().logits(ids, every)

    def _recorded(self, ids: Tensor, every: bool) -> Callable[..., Tensor] | None:
        """A function of tokens and of how many the cache holds; None if it cannot be recorded."""

        def at(known: int) -> nn.Module:
            return _Call(self.model, self.pairs, known, every)

        try:
            return Tape.with_length(at, Inputs((ids,)), self.known).compiled()
        except StepError:
            return None


class _Call(nn.Module):
    """A call of a model whose cache holds so many tokens."""

    def __init__(self, model: Any, pairs: Sequence[Pair], known: int, every: bool) -> None:
        super().__init__()
        self.model, self.pairs, self.known, self.every = model, pairs, known, every

    def forward(self, ids: Tensor) -> Tensor:
        return next_logits(self.model, ids, self.pairs, self.known, self.every)

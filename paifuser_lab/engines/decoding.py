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
        if kind not in self.replays and not self._records(ids, every):
            return super().logits(ids, every)
        replay = self.replays[kind]
        return replay(ids, self.known) if replay else super().logits(ids, every)

    def _records(self, ids: Tensor, every: bool) -> bool:
        """Record this call, unless it is long or at either end of the cache."""
        count = ids.shape[1]
        room = self.context - self.known - count
        # the first call of a text has other operators: no token before its own
        if not (self.can_replay and self.known) or count > FEW_TOKENS or room < MARGIN:
            return False
        try:
            tape = Tape.with_length(
                lambda known: _Call(self.model, self.pairs, known, every),
                Inputs((ids,)),
                self.known,
            )
        except StepError:
            self.replays[count, every] = None
        else:
            self.replays[count, every] = tape.compiled()
        return True


class _Call(nn.Module):
    """A call of a model whose cache holds so many tokens."""

    def __init__(self, model: Any, pairs: Sequence[Pair], known: int, every: bool) -> None:
        super().__init__()
        self.model, self.pairs, self.known, self.every = model, pairs, known, every

    def forward(self, ids: Tensor) -> Tensor:
        return next_logits(self.model, ids, self.pairs, self.known, self.every)

"""How far a training has come: everything that it goes on from."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Moment:
    """A training between two steps: `epoch` epochs and `step` steps of the next one are done."""

    tensors: dict[
        str, Tensor
    ]  # of the model, of what is trained along and of the optimizer, by name
    epoch: int = 0
    step: int = 0
    losses: tuple[float, ...] = ()  # of each step
    scaler: dict[str, float] = field(default_factory=dict)  # of the loss, in fp16
    skipped: int = 0  # steps whose gradient was past fp16
    seconds: float = 0.0
    is_done: bool = False

    @property
    def bytes(self) -> int:
        """How much memory its tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

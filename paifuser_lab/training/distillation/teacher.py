"""The original as a teacher: its output, and those of its layers, become a part of every batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...workload import Inputs, running
from ...workload.data import Batch
from .losses import tensors_of
from .observe import answers_of

MOST_BYTES = 512 << 20  # of cached lessons


class Lesson(NamedTuple):
    """The targets for a batch: the labels, and the outputs of the teacher and of its layers."""

    target: Any
    answers: dict[str, Tensor]
    layers: dict[str, Tensor]


class Teacher:
    """A model that is not trained; its outputs for batches of a list are cached while they are
    small.
    """

    def __init__(self, model: nn.Module, layers: Sequence[str] = ()) -> None:
        self.model, self.layers = model, tuple(layers)
        self._taught: dict[int, Lesson] = {}
        self._bytes = 0

    def teach(self, batch: Batch) -> Batch:
        """The batch with a lesson as its target."""
        if batch.number is not None and batch.number in self._taught:
            return replace(batch, target=self._taught[batch.number])
        lesson = self.lesson(batch.inputs, batch.target)
        self._keep(batch.number, lesson)
        return replace(batch, target=lesson)

    def lesson(self, inputs: Inputs, target: Any) -> Lesson:
        """The lesson for some inputs."""
        with answers_of(self.model, self.layers) as layers, running(self.model):
            answers = tensors_of(inputs.clone()(self.model))
        return Lesson(target, answers, dict(layers))

    @property
    def kept(self) -> int:
        """The number of batches whose lessons are cached."""
        return len(self._taught)

    def _keep(self, number: int | None, lesson: Lesson) -> None:
        size = sum(tensor.nbytes for tensor in (*lesson.answers.values(), *lesson.layers.values()))
        if number is not None and self._bytes + size <= MOST_BYTES:
            self._taught[number] = lesson
            self._bytes += size

"""Squared gradients in the place of second derivatives: ½ Σ F δ², F the diagonal of the Fisher
information of the weights.

Of weights alone: what a format does to a layer's inputs is not in it. Gradients are taken one
example at a time, of a few examples in each batch; the standard error says what few are worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from ..class_scores import log_probabilities
from ..curvature import dot, gradient
from ..subject import Batch, Key, Subject
from .estimator import Estimator, layers_of

EXAMPLES = 8  # of a batch


class Fisher(Estimator):
    """The empirical one: gradients of the loss on the right answers."""

    name = "fisher"

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        squares: dict[str, Tensor] = {}
        examples = one_by_one(batch)[:EXAMPLES]
        for example in examples:
            for layer, found in self._gradients(example, layers_of(keys)).items():
                squares[layer] = squares.get(layer, 0.0) + found.square() / len(examples)
        for key in keys:
            yield key, dot(squares[key.layer], self.subject.weight_change(key).square()) / 2

    def _gradients(self, example: Batch, layers: list[str]) -> dict[str, Tensor]:
        weights = {name: self.subject.layers[name].weight.requires_grad_() for name in layers}
        with torch.enable_grad(), self.subject.changed(weights, {}):
            loss = self.loss(example)
            self.subject.checked(loss, example)
            found = gradient(self.subject.work.name, loss, list(weights.values()))
        return dict(zip(weights, found, strict=True))

    def loss(self, example: Batch) -> Tensor:
        """What the gradients are of."""
        return self.subject.loss(example)


class SampledFisher(Fisher):
    """The true one: gradients of the surprise at answers that the model itself draws. Needs scores
    of classes, no labels.
    """

    name = "fisher-sampled"
    needs_loss = False

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.generator = torch.Generator().manual_seed(subject.seed)

    def loss(self, example: Batch) -> Tensor:
        scores = log_probabilities(self.subject, example, needed_for=self.name)
        drawn = torch.multinomial(scores.detach().cpu().exp(), 1, generator=self.generator).squeeze(
            1
        )
        return F.nll_loss(scores, drawn.to(scores.device))


def one_by_one(batch: Batch) -> list[Batch]:
    """A batch's examples as batches of one: every tensor with as many entries as there are examples
    is cut.
    """
    return [_example(batch, index) for index in range(batch.examples)]


def _example(batch: Batch, index: int) -> Batch:
    count = batch.examples

    def cut(tensor: Tensor) -> Tensor:
        return tensor[index : index + 1] if tensor.ndim and tensor.shape[0] == count else tensor

    return replace(
        batch, inputs=batch.inputs.map(cut), target=pytree.tree_map_only(Tensor, cut, batch.target)
    )

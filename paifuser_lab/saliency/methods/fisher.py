"""Squared gradients in place of second derivatives: ½ Σ F δ², F the diagonal of the Fisher
information of the weights.

Of weights alone: the rounding of a layer's inputs is not included. Gradients are taken one example
at a time, of a few examples in each batch; the standard error shows the uncertainty of few
examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor
from torch.utils import _pytree as pytree

from ..curvature import dot, gradients
from ..subject import Batch, Key
from .estimator import Estimator, layers_of

EXAMPLES = 8  # of a batch


class Fisher(Estimator):
    """The empirical Fisher: gradients of the loss at the true labels."""

    name = "fisher"
    most_examples = EXAMPLES

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        squares: dict[str, Tensor] = {}
        examples = one_by_one(batch)[:EXAMPLES]
        for example in examples:
            for layer, slopes in gradients(self.subject, example, layers_of(keys)).items():
                squares[layer] = squares.get(layer, 0.0) + slopes.square() / len(examples)
        for key in keys:
            yield key, dot(squares[key.layer], self.subject.weight_change(key).square()) / 2


def one_by_one(batch: Batch) -> list[Batch]:
    """A batch's examples as batches of one: every tensor with as many entries as there are examples
    is cut.
    """
    count = batch.examples

    def example(index: int) -> Batch:
        def cut(tensor: Tensor) -> Tensor:
            return tensor[index : index + 1] if tensor.ndim and tensor.shape[0] == count else tensor

        target = pytree.tree_map_only(Tensor, cut, batch.target)
        return replace(batch, inputs=batch.inputs.map(cut), target=target)

    return [example(index) for index in range(count)]

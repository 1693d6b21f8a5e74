"""The loss around the present weights: its slope and its curvature along any direction, by
automatic differentiation.

The gradient of a batch is computed once with its graph kept; each Hessian-vector product is then
one more backward pass. A product for one layer uses that layer's block of the Hessian alone,
exactly. One pass over all layers at once costs about as much as a few of them, and adds the cross
terms between layers to the result, as noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..errors import MeasureError, first_line
from .subject import Batch, Subject


class GradientError(MeasureError):
    """A loss without a gradient in the weights, or with one that cannot be differentiated again."""


Product = Callable[[Tensor], Tensor]  # of a matrix with a flat vector
Direction = Sequence[Tensor | None]  # a part for each point; None leaves the point unchanged


@dataclass(frozen=True)
class Slope:
    """A batch's loss gradient, kept so that it can be differentiated again.

    A layer's points are its weight and, where requested, its input at each of its calls.
    """

    name: str  # of the model, for messages
    points: Mapping[str, Sequence[Tensor]]
    gradients: Mapping[str, Sequence[Tensor]]

    def rise(self, layer: str, direction: Direction) -> tuple[float, float]:
        """g·d and dᵀHd: the first and second derivative of the loss along a direction of one
        layer's points.
        """
        moved = [
            (point, gradient, part)
            for point, gradient, part in zip(
                self.points[layer], self.gradients[layer], direction, strict=True
            )
            if part is not None
        ]
        first = sum(dot(gradient, part) for _, gradient, part in moved)
        products = self._products(
            [point for point, _, _ in moved], [(gradient, part) for _, gradient, part in moved]
        )
        return first, sum(
            dot(product, part) for product, (_, _, part) in zip(products, moved, strict=True)
        )

    def product(self, layer: str, vector: Tensor) -> Tensor:
        """The Hessian of one layer's weights times a vector of their shape."""
        return self._products([self.points[layer][0]], [(self.gradients[layer][0], vector)])[0]

    def flat_block(self, layer: str) -> tuple[Product, Tensor]:
        """The same Hessian as a product of flat vectors, and the layer's weight as one."""
        weight = self.points[layer][0].detach()

        def product(vector: Tensor) -> Tensor:
            return self.product(layer, vector.reshape(weight.shape)).flatten()

        return product, weight.flatten()

    def joint_products(self, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The joint Hessian of these layers' weights times a vector, in a single pass."""
        points = [self.points[layer][0] for layer in vectors]
        pairs = [(self.gradients[layer][0], vector) for layer, vector in vectors.items()]
        return dict(zip(vectors, self._products(points, pairs), strict=True))

    def _products(self, points: list[Tensor], pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        curved = [(gradient, part) for gradient, part in pairs if gradient.requires_grad]
        if not curved:
            return [torch.zeros_like(point) for point in points]
        try:
            products = torch.autograd.grad(
                [gradient for gradient, _ in curved],
                points,
                [part for _, part in curved],
                retain_graph=True,
                allow_unused=True,
            )
        except RuntimeError as error:
            raise _not_twice(self.name, error) from error
        return [
            torch.zeros_like(point) if product is None else product.detach()
            for point, product in zip(points, products, strict=True)
        ]


def slope(
    subject: Subject, batch: Batch, layers: Iterable[str], *, with_inputs: Iterable[str] = ()
) -> Slope:
    """Run a batch, and compute the loss's gradient in these layers' weights and in the inputs of
    some of them.
    """
    weights = {name: subject.layers[name].weight.requires_grad_() for name in layers}
    inputs: dict[str, list[Tensor]] = {name: [] for name in weights}

    def record(name: str, values: Tensor) -> Tensor:
        # a copy: other readers of the values, such as a skip connection, are not this layer's input
        own = values.clone()
        inputs[name].append(own if own.requires_grad else own.requires_grad_())
        return own

    inputs_of = {name: partial(record, name) for name in with_inputs}
    with torch.enable_grad():
        with subject.changed(weights, inputs_of):
            loss = subject.loss(batch)
        subject.checked_value(loss, batch)
        points = {name: (weight, *inputs[name]) for name, weight in weights.items()}
        flat = gradient(
            subject.work.name,
            loss,
            [point for group in points.values() for point in group],
            again=True,
        )
    _check_twice(subject.work.name, flat)
    remaining = iter(flat)
    return Slope(
        subject.work.name,
        points,
        {name: [next(remaining) for _ in group] for name, group in points.items()},
    )


def gradients(subject: Subject, batch: Batch, layers: Iterable[str]) -> dict[str, Tensor]:
    """The gradient of the loss in these layers' weights; parameters' own `grad` is not changed."""
    weights = {name: subject.layers[name].weight.requires_grad_() for name in layers}
    with torch.enable_grad(), subject.changed(weights, {}):
        loss = subject.loss(batch)
        subject.checked_value(loss, batch)
        slopes = gradient(subject.work.name, loss, list(weights.values()))
    return dict(zip(weights, slopes, strict=True))


def gradient(
    name: str, loss: Tensor, points: Sequence[Tensor], *, again: bool = False
) -> tuple[Tensor, ...]:
    """The loss's gradient in some points, zero where it does not depend on them; `again` keeps the
    graph for a second differentiation.
    """
    if not loss.requires_grad:
        raise GradientError(
            f"the loss of {name} has no gradient in its weights (is something detached, or an "
            "argmax taken?); "
            "make it differentiable, or use methods=('ablation',), or for channels "
            "method='magnitude'."
        )
    try:
        return torch.autograd.grad(
            loss, points, create_graph=again, allow_unused=True, materialize_grads=True
        )
    except RuntimeError as error:
        raise _not_twice(name, error) from error


def _check_twice(name: str, gradients: Iterable[Tensor]) -> None:
    """Raise where an operator is marked as differentiable once: autograd would silently treat its
    gradient as a constant.
    """
    pending, seen = [tensor.grad_fn for tensor in gradients], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        if node.name() == "torch::autograd::Error":
            raise _not_twice(
                name, RuntimeError("one of its operators is marked as differentiable once")
            )
        seen.add(node)
        pending += [following for following, _ in node.next_functions]


def dot(left: Tensor, right: Tensor) -> float:
    """The dot product, summed in double precision."""
    return float((left.detach().double() * right.detach().double()).sum())


def _not_twice(name: str, error: RuntimeError) -> GradientError:
    return GradientError(
        f"the loss of {name} cannot be differentiated as required "
        f"({first_line(error).rstrip('.')}); use methods=('ablation',) or ('output',), "
        "which need no gradient, or for channels method='magnitude'."
    )

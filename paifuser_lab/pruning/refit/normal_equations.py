"""Linear least squares from sums over rows, in float64; pure arithmetic.

The weights W and the bias b of a layer shall make W x + b nearest to y, where x is what the layer
is given after the cut and y is what it answered before. Sums of products of x and y say everything
about that: they fit new weights, and they judge any. What the rows say little about is to stay near
the weights that there are: they, not zero, are where the ridge pulls to.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SLIGHT = 1e-10  # of the square of what it shall answer
RIDGES = (1.0, 0.1, 0.01, 0.001)  # of the mean square of what the layer is given


@dataclass
class Sums:
    """Over rows, group by group: their number, and sums of x (groups, inputs), y (groups, outputs)
    and their products.
    """

    count: int
    x: Tensor
    y: Tensor
    xx: Tensor
    xy: Tensor
    yy: Tensor

    @classmethod
    def none(cls, groups: int, inputs: int, outputs: int, like: Tensor) -> Sums:
        """Before the first row."""
        shapes = ((inputs,), (outputs,), (inputs, inputs), (inputs, outputs), (outputs,))
        return cls(
            0,
            *(
                torch.zeros(groups, *shape, dtype=torch.float64, device=like.device)
                for shape in shapes
            ),
        )

    def add(self, x: Tensor, y: Tensor) -> None:
        """Rows more: (groups, rows, inputs) and (groups, rows, outputs)."""
        x, y = x.double(), y.double()
        self.count += x.shape[1]
        self.x += x.sum(1)
        self.y += y.sum(1)
        self.xx += x.transpose(1, 2) @ x
        self.xy += x.transpose(1, 2) @ y
        self.yy += y.square().sum(1)

    def errors(self, weight: Tensor, bias: Tensor) -> Tensor:
        """The squared error of each output, (groups, outputs), with weights (groups, outputs,
        inputs).
        """
        quadratic = ((weight @ self.xx) * weight).sum(2)
        crossed = (weight * self.xy.transpose(1, 2)).sum(2) + bias * self.y
        shifted = 2 * bias * (weight @ self.x.unsqueeze(2)).squeeze(2) + self.count * bias.square()
        return (self.yy - 2 * crossed + quadratic + shifted).clamp(min=0)


@dataclass(frozen=True)
class Fit:
    """Weights and a bias, and their squared error over the rows that judge, before and now."""

    weight: Tensor
    bias: Tensor
    before: float
    after: float

    @property
    def is_better(self) -> bool:
        """Whether something was gained; what never was wrong is left alone."""
        return self.after < self.before


def fit(learned: Sums, judging: Sums, weight: Tensor, bias: Tensor, *, may_shift: bool) -> Fit:
    """For each output the best of what is there, the same with another bias, and weights by ridges
    of several strengths.
    """
    found = [(weight, bias)]
    x_mean, y_mean = learned.x / max(1, learned.count), learned.y / max(1, learned.count)
    xx, xy = learned.xx, learned.xy
    if may_shift:
        found.append((weight, y_mean - _applied(weight, x_mean)))
        xx = xx - learned.count * x_mean.unsqueeze(2) * x_mean.unsqueeze(1)
        xy = xy - learned.count * x_mean.unsqueeze(2) * y_mean.unsqueeze(1)
    else:
        xy = xy - learned.x.unsqueeze(2) * bias.unsqueeze(1)
    for ridge in RIDGES:
        new = weight + _step(xx, xy - xx @ weight.transpose(1, 2), ridge).transpose(1, 2)
        found.append((new, y_mean - _applied(new, x_mean) if may_shift else bias))
    errors = torch.stack([judging.errors(*one) for one in found])
    errors[0] -= SLIGHT * judging.yy  # so little is rounding, for which no weight is changed
    best = errors.argmin(0, keepdim=True)
    weights = (
        torch.stack([one for one, _ in found])
        .gather(0, best.unsqueeze(-1).expand(1, *weight.shape))
        .squeeze(0)
    )
    biases = torch.stack([one for _, one in found]).gather(0, best).squeeze(0)
    return Fit(weights, biases, float(errors[0].sum()), float(errors.gather(0, best).sum()))


def _applied(weight: Tensor, x: Tensor) -> Tensor:
    return (weight @ x.unsqueeze(2)).squeeze(2)


def _step(xx: Tensor, missing: Tensor, ridge: float) -> Tensor:
    """What to add to the weights, (groups, inputs, outputs)."""
    mean = xx.diagonal(dim1=1, dim2=2).mean(1)
    damping = torch.where(mean > 0, ridge * mean, 1.0).reshape(-1, 1, 1)
    factor = torch.linalg.cholesky(
        xx + damping * torch.eye(xx.shape[1], dtype=xx.dtype, device=xx.device)
    )
    return torch.cholesky_solve(missing, factor)

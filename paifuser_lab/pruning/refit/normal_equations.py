"""Linear least squares from sums over rows, in float64; pure arithmetic.

Find the weights W and the bias b of a layer with W x + b closest to y, where x is the layer's input
after the cut and y its output before. Sums of products of x and y suffice: they fit new weights,
and give the error of any weights. The ridge pulls towards the current weights, not zero, so that
directions that the rows hardly cover stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDING = 1e-10  # of the squared target output
RIDGES = (1.0, 0.1, 0.01, 0.001)  # of the mean square of the layer's inputs


@dataclass
class Sums:
    """Over rows, per group: their number, and sums of x (groups, inputs), y (groups, outputs) and
    their products.
    """

    count: int
    x: Tensor
    y: Tensor
    xx: Tensor
    xy: Tensor
    yy: Tensor

    @classmethod
    def zeros(cls, groups: int, inputs: int, outputs: int, like: Tensor) -> Sums:
        """The sums of no rows."""
        shapes = ((inputs,), (outputs,), (inputs, inputs), (inputs, outputs), (outputs,))
        return cls(
            0,
            *(
                torch.zeros(groups, *shape, dtype=torch.float64, device=like.device)
                for shape in shapes
            ),
        )

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add rows: (groups, rows, inputs) and (groups, rows, outputs)."""
        x, y = x.double(), y.double()
        self.count += x.shape[1]
        self.x += x.sum(1)
        self.y += y.sum(1)
        self.xx += x.transpose(1, 2) @ x
        self.xy += x.transpose(1, 2) @ y
        self.yy += y.square().sum(1)

    def errors(self, weight: Tensor, bias: Tensor) -> Tensor:
        """The squared error of each output, (groups, outputs), for weights (groups, outputs,
        inputs).
        """
        quadratic = ((weight @ self.xx) * weight).sum(2)
        crossed = (weight * self.xy.transpose(1, 2)).sum(2) + bias * self.y
        shifted = 2 * bias * (weight @ self.x.unsqueeze(2)).squeeze(2) + self.count * bias.square()
        return (self.yy - 2 * crossed + quadratic + shifted).clamp(min=0)


@dataclass(frozen=True)
class Fit:
    """Weights and a bias, and their squared error over the held-out rows, before and after."""

    weight: Tensor
    bias: Tensor
    before: float
    after: float

    @property
    def is_better(self) -> bool:
        """Whether the error fell by more than rounding."""
        return self.after < self.before


def fit(train: Sums, held_out: Sums, weight: Tensor, bias: Tensor, *, may_shift: bool) -> Fit:
    """For each output, by the error over the held-out rows, the best of: the current weights, the
    same with a new bias, and ridge solutions of several strengths.
    """
    candidates = [(weight, bias)]
    x_mean, y_mean = train.x / max(1, train.count), train.y / max(1, train.count)
    xx, xy = train.xx, train.xy
    if may_shift:
        candidates.append((weight, y_mean - _applied(weight, x_mean)))
        xx = xx - train.count * x_mean.unsqueeze(2) * x_mean.unsqueeze(1)
        xy = xy - train.count * x_mean.unsqueeze(2) * y_mean.unsqueeze(1)
    else:
        xy = xy - train.x.unsqueeze(2) * bias.unsqueeze(1)
    for ridge in RIDGES:
        new = weight + _step(xx, xy - xx @ weight.transpose(1, 2), ridge).transpose(1, 2)
        candidates.append((new, y_mean - _applied(new, x_mean) if may_shift else bias))
    errors = torch.stack([held_out.errors(*candidate) for candidate in candidates])
    errors[0] -= ROUNDING * held_out.yy  # no weight is changed for a gain within rounding
    best = errors.argmin(0, keepdim=True)
    weights = (
        torch.stack([candidate for candidate, _ in candidates])
        .gather(0, best.unsqueeze(-1).expand(1, *weight.shape))
        .squeeze(0)
    )
    biases = torch.stack([candidate for _, candidate in candidates]).gather(0, best).squeeze(0)
    return Fit(weights, biases, float(errors[0].sum()), float(errors.gather(0, best).sum()))


def _applied(weight: Tensor, x: Tensor) -> Tensor:
    return (weight @ x.unsqueeze(2)).squeeze(2)


def _step(xx: Tensor, missing: Tensor, ridge: float) -> Tensor:
    """The change of the weights, (groups, inputs, outputs)."""
    mean = xx.diagonal(dim1=1, dim2=2).mean(1)
    damping = torch.where(mean > 0, ridge * mean, 1.0).reshape(-1, 1, 1)
    factor = torch.linalg.cholesky(
        xx + damping * torch.eye(xx.shape[1], dtype=xx.dtype, device=xx.device)
    )
    return torch.cholesky_solve(missing, factor)

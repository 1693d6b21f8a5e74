"""New weights for the layers that lost inputs, so that each layer's output on the cut model's
activations is closest to its output before the cut.

Fitting the remaining channels of a layer to the outputs by least squares is from He et al. (2017),
"Channel Pruning for Accelerating Very Deep Neural Networks", arXiv:1707.06168. Here the layers are
refit in the order in which they run, each just before it is called, so that each also compensates
the remaining error of those before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...model.fold import plan_fold
from ...model.watch import watching
from ...progress import progress
from ...quantization import trace_graph
from ...quantization.compensation.context import Outcome
from ...quantization.compensation.operands import layer_operands
from ...records import counted
from ...workload import running
from ..groups.trace_labels import by_single_operators
from .shrunk_layers import RefitContext, ShrunkLayer, record_targets

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
        """The squared errors (groups, outputs), for weights (groups, outputs, inputs)."""
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


ROWS_AT_ONCE = 2048


def refit(context: RefitContext) -> Outcome:
    """Run the model once; every layer that lost inputs is refit at its first call."""
    lost = context.lost
    record_targets(context.before, context.samples, lost)
    usable = {
        name: shrunk
        for name, shrunk in lost.items()
        if shrunk.is_usable and shrunk.targets is not None
    }
    # by layer, the batch-norm that is its only reader, whose mean can replace a bias
    norms = dict(plan_fold(context.model, trace_graph(context.work, context.model)).pairs)
    shifts: dict[str, Tensor] = {}
    better: list[str] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        shrunk = usable.pop(layer, None)
        if shrunk is None:
            return
        norm = norms.get(layer) if shrunk.layer.bias is None else None
        bias, is_better = _refit_layer(
            shrunk, (*args, *kwargs.values())[0], may_shift=norm is not None
        )
        if norm is not None:
            shifts[norm] = bias.flatten()
            _shift(context.model, norm, shifts[norm])
        better.extend([layer] * is_better)
        shown.advance(doing=layer)

    watched = watching(context.model, enter, lambda layer, output: None)
    with (
        progress("refitting", len(usable)) as shown,
        running(context.model),
        by_single_operators(),
        watched,
    ):
        context.samples.inputs.clone()(context.model)
    for norm, bias in shifts.items():  # `running` restored the statistics after the run
        _shift(context.model, norm, bias)
    if not better:
        return Outcome(
            0, f"least squares tried {counted(len(lost), 'layer')} and found no better weights"
        )
    kept = len(lost) - len(better)
    rest = f" ({counted(kept, 'layer')} kept what they had)" if kept else ""
    return Outcome(
        len(better), f"least squares gave {counted(len(better), 'layer')} new weights{rest}"
    )


def _refit_layer(shrunk: ShrunkLayer, inputs: Tensor, *, may_shift: bool) -> tuple[Tensor, bool]:
    """Set new weights; returns the new bias, and whether the held-out error is smaller."""
    weight = shrunk.matrix
    has_bias = shrunk.layer.bias is not None
    bias = (
        shrunk.layer.bias.detach().double()
        if has_bias
        else torch.zeros(weight.shape[:2].numel(), dtype=torch.float64).to(weight.device)
    )
    train, held_out = (
        Sums.zeros(shrunk.groups, weight.shape[2], weight.shape[1], weight) for _ in range(2)
    )
    assert shrunk.rows is not None and shrunk.targets is not None
    for sums, low, high in ((train, 0, shrunk.border), (held_out, shrunk.border, len(shrunk.rows))):
        for start in range(low, high, ROWS_AT_ONCE):
            part = slice(start, min(high, start + ROWS_AT_ONCE))
            targets = shrunk.targets[part]
            targets = targets.reshape(len(targets), shrunk.groups, -1).transpose(0, 1)
            rows = shrunk.rows[part].to(inputs.device)
            sums.add(layer_operands(shrunk.layer, inputs, rows), targets)
    is_finite = torch.isfinite(train.xx).all() and torch.isfinite(held_out.xx).all()
    if not bool(is_finite):
        return bias, False
    fitted = fit(
        train, held_out, weight, bias.reshape(weight.shape[:2]), may_shift=may_shift or has_bias
    )
    shrunk.write(fitted.weight, fitted.bias)
    shrunk.targets = None  # they are large
    return fitted.bias, fitted.is_better


def _shift(model: nn.Module, norm: str, bias: Tensor) -> None:
    with torch.no_grad():
        model.get_submodule(norm).get_buffer("running_mean").sub_(bias)

"""New weights for the layers that lost inputs, so that each answers, given what the cut model gives
it, nearest to what it answered before.

That the other channels of a layer can stand in for those that are gone, by least squares over its
answers, is He et al. (2017), "Channel Pruning for Accelerating Very Deep Neural Networks",
arXiv:1707.06168. Here the layers are repaired in the order in which they run, each just before it
is called, so that it also makes up for what those before it still get wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ...model.fold import plan_fold
from ...model.graph import observe
from ...model.watch import watching
from ...progress import progress
from ...quantization.compensation.operands import layer_operands
from ...records import counted
from ...workload import running
from ..groups.trace_labels import by_single_operators
from .context import RefitContext, RefitResult
from .normal_equations import Sums, fit
from .shrunk_layers import ShrunkLayer, remember

ROWS_AT_ONCE = 2048


def refit(context: RefitContext) -> RefitResult:
    """Run the model once on the samples; every layer that lost inputs gets its weights at its first
    call.
    """
    lost = context.lost
    remember(context.before, context.samples, lost)
    usable = {name: one for name, one in lost.items() if one.is_usable and one.answers is not None}
    norms = _norms_behind(context)
    shifts: dict[str, Tensor] = {}
    better: list[str] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        one = usable.pop(layer, None)
        if one is None:
            return
        norm = norms.get(layer) if one.layer.bias is None else None
        bias, is_better = _repair(one, (*args, *kwargs.values())[0], may_shift=norm is not None)
        if norm is not None:
            shifts[norm] = bias.flatten()
            _shift(context.model, norm, shifts[norm])
        better.extend([layer] * is_better)
        shown.advance(doing=layer)

    watched = watching(context.model, enter, lambda layer, answer: None)
    with (
        progress("refitting", len(usable)) as shown,
        running(context.model),
        by_single_operators(),
        watched,
    ):
        context.samples.inputs.clone()(context.model)
    for norm, bias in shifts.items():  # the run put back the statistics that it found
        _shift(context.model, norm, bias)
    if not better:
        return RefitResult(
            0, f"least squares tried {counted(len(lost), 'layer')} and found no better weights"
        )
    kept = len(lost) - len(better)
    rest = f" ({counted(kept, 'layer')} kept what they had)" if kept else ""
    return RefitResult(
        len(better), f"least squares gave {counted(len(better), 'layer')} new weights{rest}"
    )


def _repair(one: ShrunkLayer, given: Tensor, *, may_shift: bool) -> tuple[Tensor, bool]:
    """The layer's new weights, the bias that it would have, and whether the rows that judge find
    that better.
    """
    weight = one.matrix
    has_bias = one.layer.bias is not None
    bias = (
        one.layer.bias.detach().double()
        if has_bias
        else torch.zeros(weight.shape[:2].numel(), dtype=torch.float64).to(weight.device)
    )
    learned, judging = (
        Sums.none(one.groups, weight.shape[2], weight.shape[1], weight) for _ in range(2)
    )
    for sums, (x, y) in _rows(one, given, learned, judging):
        sums.add(x, y)
    if not bool(
        torch.isfinite(learned.xx).all() and torch.isfinite(judging.xx).all()
    ):  # an infinity says nothing about weights
        return bias, False
    found = fit(
        learned, judging, weight, bias.reshape(weight.shape[:2]), may_shift=may_shift or has_bias
    )
    one.write(found.weight, found.bias)
    one.answers = None  # they are large
    return found.bias, found.is_better


def _rows(
    one: ShrunkLayer, given: Tensor, learned: Sums, judging: Sums
) -> Iterator[tuple[Sums, tuple[Tensor, Tensor]]]:
    """What it is given and what it shall answer, some rows at a time: (groups, rows, columns)
    each.
    """
    assert one.rows is not None and one.answers is not None
    for sums, low, high in ((learned, 0, one.border), (judging, one.border, len(one.rows))):
        for start in range(low, high, ROWS_AT_ONCE):
            part = slice(start, min(high, start + ROWS_AT_ONCE))
            wanted = one.answers[part]
            wanted = wanted.reshape(len(wanted), one.groups, -1).transpose(0, 1)
            yield sums, (layer_operands(one.layer, given, one.rows[part].to(given.device)), wanted)


def _norms_behind(context: RefitContext) -> dict[str, str]:
    """Layer → the batch-norm that alone reads it, whose mean can take the place of a bias."""
    inputs = context.inputs.clone()
    with running(context.model):
        graph = observe(context.model, lambda: inputs(context.model))
    return dict(plan_fold(context.model, graph).pairs)


def _shift(model: nn.Module, norm: str, bias: Tensor) -> None:
    with torch.no_grad():
        model.get_submodule(norm).get_buffer("running_mean").sub_(bias)

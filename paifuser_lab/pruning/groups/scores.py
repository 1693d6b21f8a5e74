"""How much each unit of each group matters: summed over the group's weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import StepError, first_line
from ...workload import Inputs, Loss, Workload
from ...workload.data import first_batches
from .grouping import Structure

Importance = Literal["magnitude", "taylor", "batch-norm", "random"]
Scores = NDArray[numpy.float64]  # by class of atoms
BATCHES = 4
FORMULAS: dict[Importance, str] = {
    "magnitude": (
        "the length of all weights of a unit, what makes and what reads it in every layer of its "
        "group"
    ),
    "taylor": (
        f"|Σ g·w| over what makes a unit in every layer of its group, of up to {BATCHES} train "
        "batches"
    ),
    "batch-norm": "the scales of the batch-norms in a group, and magnitude where it has none",
    "random": "drawn at random from the seed of the step",
}
BY_DEFAULT = "taylor where there is a loss and train data, else by magnitude"


def unit_scores(
    work: Workload, model: nn.Module, structure: Structure, importance: Importance, seed: int
) -> list[Scores]:
    """For each group a score a unit, with a mean of one."""
    found = _SCORES[importance](work, model, structure, seed)
    return [_normalised(found[numpy.array(units)]) for units in structure.units]


def default_importance(work: Workload) -> Importance:
    """Taylor where there is a loss and data to take its gradient on, else magnitude."""
    return "taylor" if work.loss is not None and work.train is not None else "magnitude"


def described(importance: Importance) -> str:
    """An importance with the formula by which the step prune takes it."""
    return f"{importance}: {FORMULAS[importance]}"


def as_importance(method: str) -> Importance | None:
    """The importance of the step prune that has a method's name; None where it has none."""
    return next((one for one in get_args(Importance) if one == method), None)


def shown_and_cut(method: str, importance: Importance | None) -> str:
    """What to read beside scores: the step prune cuts by others, even under the same name."""
    by = BY_DEFAULT if importance is None else described(importance)
    return f"Shown: {method}, each layer by itself. The step prune cuts by {by}."


def _normalised(scores: Scores) -> Scores:
    mean = float(scores.mean())
    return scores / mean if mean > 0 else scores


def _magnitude(work: Workload, model: nn.Module, structure: Structure, seed: int) -> Scores:
    squares = _summed(model, structure, ("rows", "columns"), lambda name, weight: weight.square())
    return numpy.sqrt(squares)


def _batch_norm(work: Workload, model: nn.Module, structure: Structure, seed: int) -> Scores:
    """The scales of batch-norms, and the magnitude of what has none."""
    norms = {
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
    }

    def scale(name: str, weight: Tensor) -> Tensor:
        layer, _, leaf = name.rpartition(".")
        return weight.abs() if layer in norms and leaf == "weight" else torch.zeros_like(weight)

    scales = _summed(model, structure, ("rows",), scale)
    return numpy.where(scales > 0, scales, _magnitude(work, model, structure, seed))


def _random(work: Workload, model: nn.Module, structure: Structure, seed: int) -> Scores:
    return numpy.random.default_rng(seed).random(len(structure.classes)) + 1e-3


def _taylor(work: Workload, model: nn.Module, structure: Structure, seed: int) -> Scores:
    """How much the loss changes, to first order, without the unit's rows."""
    if work.loss is None or work.train is None:
        raise StepError(
            "importance 'taylor' needs the workload's loss and train data; give them, or choose "
            "'magnitude'."
        )
    batches = list(itertools.islice(first_batches(work.train, work.device, "train data"), BATCHES))
    if not batches:
        raise StepError(
            "the train data hold no batch; give at least one pair of inputs and target, or choose "
            "importance 'magnitude'."
        )
    total = numpy.zeros(len(structure.classes))
    for inputs, target in batches:
        gradients = _gradients(work.loss, model, inputs, target)
        total += numpy.abs(_summed(model, structure, ("rows",), partial(_first_order, gradients)))
    if not numpy.isfinite(total).all():
        raise StepError(
            "importance 'taylor': a gradient is NaN or infinite; look for one in the train data, "
            "or choose importance 'magnitude'."
        )
    return total


def _first_order(gradients: dict[str, Tensor], name: str, weight: Tensor) -> Tensor:
    return weight * gradients[name] if name in gradients else torch.zeros_like(weight)


def _gradients(loss: Loss, model: nn.Module, inputs: Inputs, target: Any) -> dict[str, Tensor]:
    names = [
        (name, weight) for name, weight in model.named_parameters() if weight.is_floating_point()
    ]
    frozen = [weight for _, weight in names if not weight.requires_grad]
    try:
        for weight in frozen:
            weight.requires_grad_(True)
        with torch.enable_grad():
            lost = _lost(loss, model, inputs, target)
            found = torch.autograd.grad(lost, [weight for _, weight in names], allow_unused=True)
    except (
        RuntimeError,
        TypeError,
    ) as error:  # of autograd, where a layer has no gradients or the loss is not one number
        raise StepError(
            f"importance 'taylor' finds no gradient ({type(error).__name__}: "
            f"{first_line(error).rstrip('.')}); "
            "choose importance 'magnitude', and put 'prune' before 'precision' and 'qat'."
        ) from error
    finally:
        for weight in frozen:
            weight.requires_grad_(False)
    return {
        name: gradient
        for (name, _), gradient in zip(names, found, strict=True)
        if gradient is not None
    }


def _lost(loss: Loss, model: nn.Module, inputs: Inputs, target: Any) -> Tensor:
    try:
        return loss(inputs(model), target)
    except Exception as error:  # whatever the model's code, or that of the loss, raises
        reason = f"{type(error).__name__}: {first_line(error).rstrip('.')}"
        raise StepError(
            f"the model or its loss fails on the train data ({reason}); mend them, or choose "
            "importance 'magnitude'."
        ) from error


def _summed(
    model: nn.Module,
    structure: Structure,
    kinds: tuple[str, ...],
    value: Callable[[str, Tensor], Tensor],
) -> Scores:
    """A figure a weight, added up for each class over the members of these kinds."""
    weights = dict(model.named_parameters())
    total = numpy.zeros(len(structure.classes))
    members = {
        (one.weight, one.dimension, one.kind) for group in structure.groups for one in group.members
    }
    for span in structure.spans:
        if (
            any((span.weight, span.dimension, kind) in members for kind in kinds)
            and span.weight in weights
        ):
            figures = value(span.weight, weights[span.weight].detach()).double()
            others = [dim for dim in range(figures.ndim) if dim != span.dimension]
            places = (figures.sum(others) if others else figures).cpu().numpy()
            numpy.add.at(total, structure.classes[span.start : span.stop], places)
    return total


_SCORES: dict[str, Callable[[Workload, nn.Module, Structure, int], Scores]] = {
    "magnitude": _magnitude,
    "taylor": _taylor,
    "batch-norm": _batch_norm,
    "random": _random,
}

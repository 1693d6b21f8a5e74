"""Check a cut model against zeros in place of what was removed; groups that differ stay."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations, islice

import torch
from torch import Tensor, nn

from ...errors import MeasureError, first_line
from ...measure import output_error
from ...model.weights import float_dtype
from ...workload import Inputs, running
from .grouping import CutProblem
from .removal import cut, mask
from .trace_labels import sign_flipped, tensors_in
from .width_attributes import candidates, pattern

# models with more weights are compared in their own format instead of float64
MOST_DOUBLE = 50_000_000
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
HALF_TOLERANCE = 5e-2
MOST_ATTEMPTS = 64

Removals = dict[int, set[int]]  # by a group's index: the units to remove


@dataclass
class Proven:
    """The groups cut without a difference, the attributes left alone, and why others stay."""

    accepted: set[int] = field(default_factory=set)
    left_alone: tuple[str, ...] = ()
    refused: dict[int, str] = field(default_factory=dict)


def prove(problem: CutProblem, removals: Removals) -> Proven:
    """Try all groups at once, and bisect what fails until each is accepted or refused."""
    trial = _Trial(problem, removals)
    ordered = sorted(removals, key=lambda index: (pattern(problem.groups[index].name), index))
    trial.settle(ordered)
    return trial.proven


class _Trial:
    """The groups accepted so far, and the copy in which the next ones are tried."""

    def __init__(self, problem: CutProblem, removals: Removals) -> None:
        self.structure, self.removals, self.proven = problem.structure, removals, Proven()
        self.model, self.inputs = exact_copy(problem.model, problem.work.inputs)
        self.tolerance = TOLERANCE.get(float_dtype(self.model), HALF_TOLERANCE)

    def settle(self, groups: list[int]) -> None:
        """Accept these groups, or else each half of them separately."""
        if not groups or (problem := self._problem(groups)) is None:
            self.proven.accepted.update(groups)
        elif len(groups) == 1:
            self.proven.refused[groups[0]] = problem
        else:
            middle = len(groups) // 2
            self.settle(groups[:middle])
            self.settle(groups[middle:])

    def _problem(self, groups: list[int]) -> str | None:
        """Why these groups cannot be cut together with the accepted ones; None where they can, with
        some choice of attributes.
        """
        removed = {
            unit for index in {*groups, *self.proven.accepted} for unit in self.removals[index]
        }
        try:
            expected = self._expected(removed)
        except Exception as error:
            return f"with zeros in its place the model fails ({first_line(error)[:160]})"
        first = None
        for left_alone in self._attempts(removed):
            smaller = copy.deepcopy(self.model)
            cut(smaller, self.structure, removed, left_alone)
            problem = difference(
                expected, smaller, self.inputs, self.tolerance, "with the smaller layers"
            )
            if problem is None:
                self.proven.left_alone = left_alone
                return None
            first = first or problem
        return first

    def _expected(self, removed: set[int]) -> list[list[Tensor]]:
        masked = copy.deepcopy(self.model)
        mask(masked, self.structure, removed)
        return [outputs_of(masked, inputs) for inputs in self.inputs]

    def _attempts(self, removed: set[int]) -> Iterator[tuple[str, ...]]:
        """Which attributes to leave as they are: as before, then none, one, two …; an equal number
        may mean something else than the width.
        """
        names = sorted(candidates(self.model, self.structure, removed))
        subsets = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
        before = self.proven.left_alone
        yield before
        yield from (subset for subset in islice(subsets, MOST_ATTEMPTS) if subset != before)


def exact_copy(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, list[Inputs]]:
    """A copy in float64 where that is cheap and runs, and the inputs to compare it on: as they are,
    and with their signs flipped.
    """
    if sum(weight.numel() for weight in model.parameters()) <= MOST_DOUBLE:
        double = copy.deepcopy(model).double()
        double_inputs = inputs.map(
            lambda tensor: tensor.double() if tensor.is_floating_point() else tensor
        )
        if _runs(double, double_inputs):  # else the code fixes a format, and it is compared in that
            model, inputs = double, double_inputs
    flipped = sign_flipped(inputs)
    return model, [inputs, flipped] if flipped is not None and _runs(model, flipped) else [inputs]


def _runs(model: nn.Module, inputs: Inputs) -> bool:
    """Whether the model accepts these inputs and returns finite numbers."""
    try:
        return all(
            bool(torch.isfinite(tensor).all())
            for tensor in outputs_of(model, inputs)
            if tensor.is_floating_point()
        )
    except Exception:
        return False


def outputs_of(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """The tensors of a model's output."""
    own_inputs = inputs.clone()
    with running(model):
        return tensors_in(own_inputs(model))


def difference(
    expected: list[list[Tensor]],
    changed: nn.Module,
    examples: list[Inputs],
    tolerance: float,
    how: str,
) -> str | None:
    """Why a model that was changed does not output what it should; None where it does."""
    try:
        for reference, inputs in zip(expected, examples, strict=True):
            gap = _relative_gap(reference, outputs_of(changed, inputs))
            if not gap <= tolerance:
                return f"without it the output differs by {gap:.0e} from the output with zeros"
    except Exception as error:  # whatever the model's code raises
        return f"the model's code fails {how} ({first_line(error)[:160]})"
    return None


def _relative_gap(reference: list[Tensor], outputs: list[Tensor]) -> float:
    """The relative L2 difference of the outputs; infinite where their shapes differ."""
    try:
        return output_error(reference, outputs)[0]
    except MeasureError:
        return float("inf")

"""A cut model against the same model with zeros in place of what was removed: what differs is not
cut at all.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations, islice

import torch
from torch import Tensor, nn

from ...errors import first_line
from ...workload import Inputs, running
from .grouping import Structure
from .removal import cut, mask
from .trace_labels import tensors_in, turned_of
from .width_attributes import candidates, pattern

MOST_DOUBLE = (
    50_000_000  # weights that are copied in float64; larger models are compared in their own format
)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
HALF_TOLERANCE = 5e-2
MOST_ATTEMPTS = 64

Wanted = dict[int, set[int]]  # of a group, by number: the units to remove


@dataclass
class Proven:
    """Which groups were cut without a difference, which attributes do not follow, and why the
    others stay.
    """

    accepted: set[int] = field(default_factory=set)
    left_alone: tuple[str, ...] = ()
    refused: dict[int, str] = field(default_factory=dict)


def prove(model: nn.Module, inputs: Inputs, structure: Structure, wanted: Wanted) -> Proven:
    """Try all groups at once, and halve what fails until each group is accepted or refused by
    itself.
    """
    trial = _Trial(model, inputs, structure, wanted)
    ordered = sorted(wanted, key=lambda index: (pattern(structure.groups[index].name), index))
    trial.settle(ordered)
    return trial.proven


class _Trial:
    """What has been accepted so far, and the copy in which the next is tried."""

    def __init__(
        self, model: nn.Module, inputs: Inputs, structure: Structure, wanted: Wanted
    ) -> None:
        self.structure, self.wanted, self.proven = structure, wanted, Proven()
        self.model, self.inputs = exact_copy(model, inputs)
        self.tolerance = TOLERANCE.get(format_of(self.model), HALF_TOLERANCE)

    def settle(self, groups: list[int]) -> None:
        """Accept these groups, or halves of them."""
        if not groups or (problem := self._problem(groups)) is None:
            self.proven.accepted.update(groups)
        elif len(groups) == 1:
            self.proven.refused[groups[0]] = problem
        else:
            middle = len(groups) // 2
            self.settle(groups[:middle])
            self.settle(groups[middle:])

    def _problem(self, groups: list[int]) -> str | None:
        """What is wrong with cutting these beside those accepted; None where some way of following
        is right.
        """
        removed = {
            unit for index in {*groups, *self.proven.accepted} for unit in self.wanted[index]
        }
        try:
            expected = self._expected(removed)
        except Exception as error:
            return f"with zeros in its place the model fails ({first_line(error)[:160]})"
        first = None
        for left_alone in self._attempts(removed):
            problem = self._difference(expected, removed, left_alone)
            if problem is None:
                self.proven.left_alone = left_alone
                return None
            first = first or problem
        return first

    def _expected(self, removed: set[int]) -> list[list[Tensor]]:
        masked = copy.deepcopy(self.model)
        mask(masked, self.structure, removed)
        return [answers_of(masked, given) for given in self.inputs]

    def _attempts(self, removed: set[int]) -> Iterator[tuple[str, ...]]:
        """Which attributes stay as they are: as before, then none, one, two …; the same number may
        stand for two things.
        """
        names = sorted(candidates(self.model, self.structure, removed))
        subsets = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
        before = self.proven.left_alone
        yield before
        yield from (one for one in islice(subsets, MOST_ATTEMPTS) if one != before)

    def _difference(
        self, expected: list[list[Tensor]], removed: set[int], left_alone: tuple[str, ...]
    ) -> str | None:
        smaller = copy.deepcopy(self.model)
        cut(smaller, self.structure, removed, left_alone)
        try:
            for given, wanted in zip(self.inputs, expected, strict=True):
                error = relative_gap(wanted, answers_of(smaller, given))
                if not error <= self.tolerance:
                    return f"without it the answer differs by {error:.0e} from that with zeros"
        except Exception as error:
            return f"the model's code does not take it smaller ({first_line(error)[:160]})"
        return None


def exact_copy(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, list[Inputs]]:
    """A copy in float64 where that is cheap and runs, and the inputs to compare it on: as they are,
    and with their signs turned.
    """
    if sum(weight.numel() for weight in model.parameters()) <= MOST_DOUBLE:
        double = copy.deepcopy(model).double()
        given = inputs.map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
        if _runs(double, given):  # else the code names a format, and it is compared in that
            model, inputs = double, given
    turned = turned_of(inputs)
    return model, [inputs, turned] if turned is not None and _runs(model, turned) else [inputs]


def _runs(model: nn.Module, inputs: Inputs) -> bool:
    """Whether the model takes such inputs and answers in numbers; whatever its code raises means
    that it does not.
    """
    try:
        return all(
            bool(torch.isfinite(one).all())
            for one in answers_of(model, inputs)
            if one.is_floating_point()
        )
    except Exception:
        return False


def format_of(model: nn.Module) -> torch.dtype:
    return next(
        (weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32
    )


def answers_of(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    given = inputs.clone()
    with running(model):
        return tensors_in(given(model))


def relative_gap(wanted: list[Tensor], got: list[Tensor]) -> float:
    """The relative L2 difference of the answers; infinite where their shapes differ."""
    if [one.shape for one in wanted] != [one.shape for one in got]:
        return float("inf")
    gap = sum(
        float((one.double() - other.double()).square().sum())
        for one, other in zip(wanted, got, strict=True)
    )
    total = sum(float(one.double().square().sum()) for one in wanted)
    return float((gap / total) ** 0.5) if total else float(gap**0.5)

"""Which format for which layer: an exact integer program. Stands on scipy's milp (HiGHS).

A variable says that a layer has a format; one more for each pair of neighbours that saves a
conversion is the product of two such, made linear. Pure numbers: what they mean is settled in
costs.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from ...errors import MeasureError

SECONDS = 10.0  # for one program at most
SLACK = 1e-9  # of the largest number of its kind: so much past a limit is the arithmetic's
# the solver keeps limits to a millionth; where that lets it past one, the limit is drawn in by so
# much
TIGHTER = 3e-6

Vector = NDArray[numpy.float64]


class Cost(NamedTuple):
    """What a choice costs: in loss, in time and in bytes."""

    loss: float = 0.0
    latency_ms: float = 0.0
    size_bytes: float = 0.0


class Saving(NamedTuple):
    """Two layers, by their places, that save time when each has the format named."""

    first: int
    first_format: str
    second: int
    second_format: str
    ms: float


@dataclass(frozen=True)
class Program:
    """The formats that each layer can have, with what each adds to a base; and what pairs of them
    save.
    """

    options: Sequence[Mapping[str, Cost]]
    savings: Sequence[Saving] = ()
    base: Cost = Cost()

    def total(self, formats: Sequence[str]) -> Cost:
        """What a choice costs in all."""
        chosen = [options[name] for options, name in zip(self.options, formats, strict=True)]
        saved = sum(one.ms for one in self.savings if _is_saved(one, formats))
        loss, ms, size = (sum(values) for values in zip(self.base, *chosen, strict=True))
        return Cost(loss, ms - saved, size)


@dataclass(frozen=True)
class Solution:
    """A format for each layer; whether nothing can be better."""

    formats: tuple[str, ...]
    cost: Cost
    is_proven: bool = True


def solve(program: Program, minimise: str, limits: Mapping[str, float]) -> Solution | None:
    """The choice that costs least within the limits; None where no choice is within them."""
    return _Matrix(program).solve(minimise, limits)


def solve_in_order(
    program: Program, minimise: Sequence[str], limits: Mapping[str, float]
) -> Solution | None:
    """The choice that costs least in the first regard, and among those equal in it least in the
    next.
    """
    matrix, best, bounds = _Matrix(program), None, dict(limits)
    for name in minimise:
        found = matrix.solve(name, bounds)
        if found is None:
            return best
        best = found
        bounds[name] = min(bounds.get(name, numpy.inf), getattr(best.cost, name))
    return best


def is_within(cost: Cost, limits: Mapping[str, float]) -> bool:
    """Whether a cost keeps the limits, up to the arithmetic's last digits."""
    return all(
        getattr(cost, name) <= limit + SLACK * max(1e-6, abs(limit))
        for name, limit in limits.items()
    )


class _Matrix:
    """A program as the solver reads it: choices first, then products."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.choices = [
            (layer, name) for layer, options in enumerate(program.options) for name in options
        ]
        self.index_of = {choice: index for index, choice in enumerate(self.choices)}
        self.savings = [
            one
            for one in program.savings
            if (one.first, one.first_format) in self.index_of
            and (one.second, one.second_format) in self.index_of
        ]
        self.width = len(self.choices) + len(self.savings)

    def solve(self, minimise: str, limits: Mapping[str, float]) -> Solution | None:
        """Ask the solver, and once more within tighter limits if it went past one by its own
        tolerance.
        """
        found = self._solve(minimise, limits)
        if found is None or is_within(found.cost, limits):
            return found
        drawn_in = {
            name: limit - TIGHTER * self._scale(self._row(name)) for name, limit in limits.items()
        }
        return self._solve(minimise, drawn_in)

    def _solve(self, minimise: str, limits: Mapping[str, float]) -> Solution | None:
        from scipy.optimize import Bounds, milp

        goal = self._row(minimise)
        found = milp(
            goal / self._scale(goal),
            integrality=numpy.ones(self.width),
            bounds=Bounds(0, 1),
            constraints=[*self._one_format_each(), *self._products(), *self._limits(limits)],
            options={"time_limit": SECONDS, "mip_rel_gap": 0.0},
        )
        if found.x is None:
            if found.status == 2:
                return None
            raise MeasureError(
                f"the program of {len(self.program.options)} layers was not solved: {found.message}"
            )
        return self._read(found.x, is_proven=found.status == 0)

    def _read(self, values: Vector, *, is_proven: bool) -> Solution:
        best: dict[int, tuple[float, str]] = {}
        for (layer, name), value in zip(self.choices, values, strict=False):
            best[layer] = max(best.get(layer, (-1.0, name)), (float(value), name))
        formats = tuple(best[layer][1] for layer in range(len(self.program.options)))
        return Solution(formats, self.program.total(formats), is_proven)

    def _row(self, name: str) -> Vector:
        """What each variable adds of one kind of cost."""
        row = numpy.zeros(self.width)
        row[: len(self.choices)] = [
            getattr(self.program.options[layer][name_of], name) for layer, name_of in self.choices
        ]
        if name == "latency_ms":
            row[len(self.choices) :] = [-one.ms for one in self.savings]
        return row

    @staticmethod
    def _scale(row: Vector) -> float:
        """Losses are near a millionth and bytes near a million; the solver's tolerances are for
        numbers near one.
        """
        return float(numpy.abs(row).max(initial=0.0)) or 1.0

    def _one_format_each(self) -> list[Any]:
        from scipy.optimize import LinearConstraint

        rows = numpy.zeros((len(self.program.options), self.width))
        for index, (layer, _) in enumerate(self.choices):
            rows[layer, index] = 1
        return [LinearConstraint(rows, 1, 1)]

    def _products(self) -> list[Any]:
        """A product is at most either factor, and at least what both are beyond one."""
        from scipy.optimize import LinearConstraint

        if not self.savings:
            return []
        rows = numpy.zeros((3 * len(self.savings), self.width))
        most = numpy.tile([0.0, 0.0, 1.0], len(self.savings))
        for index, one in enumerate(self.savings):
            product = len(self.choices) + index
            first, second = (
                self.index_of[one.first, one.first_format],
                self.index_of[one.second, one.second_format],
            )
            rows[3 * index, [product, first]] = 1, -1
            rows[3 * index + 1, [product, second]] = 1, -1
            rows[3 * index + 2, [first, second, product]] = 1, 1, -1
        return [LinearConstraint(rows, -numpy.inf, most)]

    def _limits(self, limits: Mapping[str, float]) -> list[Any]:
        from scipy.optimize import LinearConstraint

        found = []
        for name, limit in limits.items():
            row = self._row(name)
            scale = self._scale(row)
            found.append(
                LinearConstraint(
                    row / scale, -numpy.inf, (limit - getattr(self.program.base, name)) / scale
                )
            )
        return found


def _is_saved(one: Saving, formats: Sequence[str]) -> bool:
    return formats[one.first] == one.first_format and formats[one.second] == one.second_format

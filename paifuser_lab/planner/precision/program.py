"""Choose a format for each layer by an exact integer program, built on scipy's milp (HiGHS).

A binary variable says that a layer has a format; for each pair of neighbours that saves a
conversion another one is the product of two of these, linearised. The meaning of the numbers is
defined in costs.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from ...errors import MeasureError

SECONDS = 10.0  # for one program at most
SLACK = 1e-9  # of a limit: exceeding it by less is rounding
# the solver's tolerance is a millionth; where it exceeds a limit by that, the limit is tightened by
# this
TIGHTENING = 3e-6

Vector = NDArray[numpy.float64]
Rows = tuple[Vector, float, float | Vector]  # of a constraint, with their least and most


class Cost(NamedTuple):
    """The cost of a choice: loss, time and bytes."""

    loss: float = 0.0
    latency_ms: float = 0.0
    size_bytes: float = 0.0


class Saving(NamedTuple):
    """Two layers, by index, that save time when each has the named format."""

    first: int
    first_format: str
    second: int
    second_format: str
    ms: float


@dataclass(frozen=True)
class Program:
    """The formats that each layer can have, each with its cost over a base; savings of pairs, and
    pairs that have the same options and the same format.
    """

    options: Sequence[Mapping[str, Cost]]
    savings: Sequence[Saving] = ()
    base: Cost = Cost()
    equal: Sequence[tuple[int, int]] = ()

    def total(self, formats: Sequence[str]) -> Cost:
        """The total cost of a choice."""
        chosen = [options[name] for options, name in zip(self.options, formats, strict=True)]
        saved = sum(saving.ms for saving in self.savings if _is_saved(saving, formats))
        loss, ms, size = (sum(values) for values in zip(self.base, *chosen, strict=True))
        return Cost(loss, ms - saved, size)


@dataclass(frozen=True)
class Solution:
    """A format for each layer, and whether it is proven optimal."""

    formats: tuple[str, ...]
    cost: Cost
    is_proven: bool = True


def solve(program: Program, minimise: str, limits: Mapping[str, float]) -> Solution | None:
    """The choice of least cost within the limits; None where no choice is within them."""
    return _Matrix(program).solve(minimise, limits)


def solve_in_order(
    program: Program, minimise: Sequence[str], limits: Mapping[str, float]
) -> Solution | None:
    """Minimise the first cost, then the next among the choices equal in it, and so on."""
    matrix, best, bounds = _Matrix(program), None, dict(limits)
    for name in minimise:
        solution = matrix.solve(name, bounds)
        if solution is None:
            return best
        best = solution
        bounds[name] = min(bounds.get(name, numpy.inf), getattr(best.cost, name))
    return best


def is_within(cost: Cost, limits: Mapping[str, float]) -> bool:
    """Whether a cost keeps the limits, up to rounding."""
    return all(
        getattr(cost, name) <= limit + SLACK * max(1e-6, abs(limit))
        for name, limit in limits.items()
    )


class _Matrix:
    """A program as the solver reads it: the columns are choices, then products."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.choices = [
            (layer, name) for layer, options in enumerate(program.options) for name in options
        ]
        self.index_of = {choice: index for index, choice in enumerate(self.choices)}
        self.savings = [
            saving
            for saving in program.savings
            if (saving.first, saving.first_format) in self.index_of
            and (saving.second, saving.second_format) in self.index_of
        ]
        self.width = len(self.choices) + len(self.savings)

    def solve(self, minimise: str, limits: Mapping[str, float]) -> Solution | None:
        """Solve, and again with tightened limits if one is exceeded by the solver's tolerance."""
        solution = self._solve(minimise, limits)
        if solution is None or is_within(solution.cost, limits):
            return solution
        tightened = {
            name: limit - TIGHTENING * self._scale(self._row(name))
            for name, limit in limits.items()
        }
        return self._solve(minimise, tightened)

    def _solve(self, minimise: str, limits: Mapping[str, float]) -> Solution | None:
        from scipy.optimize import Bounds, LinearConstraint, milp

        goal = self._row(minimise)
        result = milp(
            goal / self._scale(goal),
            integrality=numpy.ones(self.width),
            bounds=Bounds(0, 1),
            constraints=[
                LinearConstraint(*rows)
                for rows in (
                    *self._one_format_each(),
                    *self._equal(),
                    *self._products(),
                    *self._limits(limits),
                )
            ],
            options={"time_limit": SECONDS, "mip_rel_gap": 0.0},
        )
        if result.x is None:
            if result.status == 2:
                return None
            raise MeasureError(
                f"the program of {len(self.program.options)} layers was not solved: "
                f"{result.message}"
            )
        return self._read(result.x, is_proven=result.status == 0)

    def _read(self, values: Vector, *, is_proven: bool) -> Solution:
        best: dict[int, tuple[float, str]] = {}
        for (layer, name), value in zip(self.choices, values, strict=False):
            best[layer] = max(best.get(layer, (-1.0, name)), (float(value), name))
        formats = tuple(best[layer][1] for layer in range(len(self.program.options)))
        return Solution(formats, self.program.total(formats), is_proven)

    def _row(self, name: str) -> Vector:
        """The coefficient of each variable for one kind of cost."""
        row = numpy.zeros(self.width)
        row[: len(self.choices)] = [
            getattr(self.program.options[layer][name_of], name) for layer, name_of in self.choices
        ]
        if name == "latency_ms":
            row[len(self.choices) :] = [-saving.ms for saving in self.savings]
        return row

    @staticmethod
    def _scale(row: Vector) -> float:
        """The largest coefficient: losses are near 1e-6 and bytes near 1e6, and the solver's
        tolerances are for numbers near one.
        """
        return float(numpy.abs(row).max(initial=0.0)) or 1.0

    def _one_format_each(self) -> Iterator[Rows]:
        rows = numpy.zeros((len(self.program.options), self.width))
        for index, (layer, _) in enumerate(self.choices):
            rows[layer, index] = 1
        yield rows, 1.0, 1.0

    def _equal(self) -> Iterator[Rows]:
        """A format of one layer of a pair is that of the other."""
        for first, second in self.program.equal:
            for name in self.program.options[first]:
                row = numpy.zeros(self.width)
                row[self.index_of[first, name]] = 1
                row[self.index_of[second, name]] = -1
                yield row, 0.0, 0.0

    def _products(self) -> Iterator[Rows]:
        """A product is at most either factor, and at least their sum minus one."""
        for index, saving in enumerate(self.savings):
            product = len(self.choices) + index
            first = self.index_of[saving.first, saving.first_format]
            second = self.index_of[saving.second, saving.second_format]
            rows = numpy.zeros((3, self.width))
            rows[0, [product, first]] = 1, -1
            rows[1, [product, second]] = 1, -1
            rows[2, [first, second, product]] = 1, 1, -1
            yield rows, -numpy.inf, numpy.array([0.0, 0.0, 1.0])

    def _limits(self, limits: Mapping[str, float]) -> Iterator[Rows]:
        for name, limit in limits.items():
            row = self._row(name)
            scale = self._scale(row)
            yield row / scale, -numpy.inf, (limit - getattr(self.program.base, name)) / scale


def _is_saved(saving: Saving, formats: Sequence[str]) -> bool:
    return (
        formats[saving.first] == saving.first_format
        and formats[saving.second] == saving.second_format
    )

"""A race between ways to run a loop: blocks of steps in turn, compared within each round.

A way is a set of switches in force together. The ratio of two ways is taken within each round, so
that the machine's drift cancels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy

from ..measure.timing import median_interval
from .losses import leaves_band

Way = frozenset[str]
PLAIN: Way = frozenset()
MIN_ROUNDS, MAX_ROUNDS = 3, 8
HOPELESS = 1.5  # times slower than the reference: dropped after one block
MAX_COST = 0.98  # a switch that saves memory may be so much slower


@dataclass(frozen=True)
class Offer:
    """A switch that this loop can have; an exact one changes no result beyond rounding in fp32."""

    name: str
    is_exact: bool = True
    saves_memory: bool = False


@dataclass(frozen=True)
class Block:
    """Some steps in one way: the seconds and losses of each, and those of the step that changed
    into it, which count as cost only.
    """

    way: Way
    seconds: tuple[float, ...]
    losses: tuple[float, ...] = ()
    warm_s: float = 0.0
    peak_bytes: int | None = None

    @property
    def median_s(self) -> float:
        return float(numpy.median(self.seconds))


@dataclass(frozen=True)
class Verdict:
    """The decision about one switch, with the measurement behind it."""

    is_kept: bool
    why: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    without_s: float | None = None
    with_s: float | None = None
    without_bytes: int | None = None
    with_bytes: int | None = None


@dataclass
class Race:
    """Blocks of several ways in turn; the first way is the reference."""

    ways: Sequence[Way]
    offers: Mapping[str, Offer]
    blocks: dict[Way, list[Block]] = field(default_factory=dict)
    dropped: dict[Way, str] = field(default_factory=dict)
    is_over: bool = False

    def __post_init__(self) -> None:
        self.blocks = {way: [] for way in self.ways}

    @property
    def reference(self) -> Way:
        return self.ways[0]

    def next_way(self) -> Way | None:
        """The way of the next block; None when the race is decided. Each round goes through the
        ways in the other direction, so that one at its turn runs on without a change.
        """
        alive = [way for way in self.ways if way not in self.dropped]
        done = min(len(self.blocks[way]) for way in alive)
        due = [way for way in alive if len(self.blocks[way]) == done]
        if self.is_over or len(alive) == 1 or (len(due) == len(alive) and done >= MAX_ROUNDS):
            return None
        return due[0] if done % 2 == 0 else due[-1]

    def add(self, block: Block) -> None:
        """Take in a block; ways that cannot win any more are dropped."""
        way = block.way
        if way not in self.blocks or way in self.dropped:
            return
        self.blocks[way].append(block)
        first = self.blocks[self.reference]
        if way != self.reference and first and block.median_s > HOPELESS * first[0].median_s:
            self.drop(way, f"{block.median_s / first[0].median_s:.1f} times slower at once")
        self._check_losses(way)
        counts = {len(self.blocks[other]) for other in self.ways if other not in self.dropped}
        if len(counts) == 1 and counts.pop() >= MIN_ROUNDS:
            self._check_round()

    def drop(self, way: Way, why: str) -> None:
        """Run a way no more; the reference stays."""
        if way != self.reference:
            self.dropped.setdefault(way, why)

    def compared(self, without: Way, with_: Way) -> tuple[float, tuple[float, float]] | None:
        """How many times faster the second way is, with its 95% interval; None before two rounds
        of both.
        """
        pairs = list(zip(self.blocks.get(without, ()), self.blocks.get(with_, ()), strict=False))
        if len(pairs) < 2:
            return None
        ratios = [slow.median_s / fast.median_s for slow, fast in pairs]
        return median_interval(numpy.asarray(ratios))

    def best(self) -> Way:
        """The fastest way, less every switch in it that is not faster by more than its interval."""
        ratios = {
            way: compared[0]
            for way in self.ways[1:]
            if way not in self.dropped and (compared := self.compared(self.reference, way))
        }
        best = max(ratios, key=lambda way: ratios[way], default=self.reference)
        while smaller := self._without_unproven(best):
            best = smaller[0]
        return best

    def verdict(self, name: str) -> Verdict:
        """The decision about one switch of this race, given the best way."""
        best = self.best()
        pairs = [(way - {name}, way) for way in self.ways if name in way]
        pairs = [pair for pair in pairs if pair[0] in self.blocks] or [
            (self.reference, way) for way in self.ways if name in way
        ]
        pair = next((pair for pair in pairs if best in pair), pairs[0])
        compared = self.compared(*pair)
        is_kept = name in best
        figures = {
            "without_s": _median(self.blocks[pair[0]]),
            "with_s": _median(self.blocks[pair[1]]),
            "ratio": compared[0] if compared else None,
            "interval": compared[1] if compared else None,
            "without_bytes": _peak(self.blocks[pair[0]]),
            "with_bytes": _peak(self.blocks[pair[1]]),
        }
        beside = f" beside {' and '.join(sorted(pair[0]))}" if pair[0] else ""
        return Verdict(is_kept=is_kept, why=self._why(name, pair[1], is_kept) + beside, **figures)  # type: ignore[arg-type]

    def _why(self, name: str, way: Way, is_kept: bool) -> str:
        if is_kept:
            saves = self.offers[name].saves_memory
            return "less memory, and hardly slower" if saves else "faster by more than its interval"
        if way in self.dropped:
            return self.dropped[way]
        if self.compared(self.reference, way) is None:
            return "too few steps to judge it"
        return "not faster by more than its interval"

    def _without_unproven(self, way: Way) -> list[Way]:
        smaller: list[Way] = []
        for name in sorted(way - self.reference):
            rest = way - {name}
            compared = self.compared(rest, way) if rest not in self.dropped else None
            if rest in self.blocks and rest not in self.dropped and not self._keeps(name, compared):
                smaller.append(rest)
        return smaller

    def _keeps(self, name: str, compared: tuple[float, tuple[float, float]] | None) -> bool:
        if compared is None:
            return False
        return compared[0] > MAX_COST if self.offers[name].saves_memory else compared[1][0] > 1

    def _check_losses(self, way: Way) -> None:
        if all(self.offers[name].is_exact for name in way - self.reference):
            return
        reference, recent = self._losses(self.reference), self._losses(way)
        if leaves_band(reference, recent):
            middle = numpy.median(reference) if reference else math.nan
            self.drop(
                way,
                f"the loss left the band of the reference ({numpy.median(recent):.3g} against "
                f"{middle:.3g})",
            )

    def _losses(self, way: Way) -> list[float]:
        return [loss for block in self.blocks[way] for loss in block.losses]

    def _check_round(self) -> None:
        """Drop ways that are clearly slower than the reference or than the leader; end when only
        proven differences are left.
        """
        alive = [way for way in self.ways[1:] if way not in self.dropped]
        ratios = {
            way: compared for way in alive if (compared := self.compared(self.reference, way))
        }
        if not ratios:
            return
        leader = max(alive, key=lambda way: ratios[way][0])
        for way in alive:
            is_slower = ratios[way][1][1] < 1 and not self._saves(way)
            beaten = self.compared(way, leader) if way != leader else None
            if is_slower or (beaten is not None and beaten[1][0] > 1 and not way < leader):
                self.dropped[way] = "slower" if is_slower else "slower than another choice"
        rest = [way for way in alive if way not in self.dropped and way != leader]
        is_proven = ratios[leader][1][0] > 1
        parts = [self.compared(way, leader) for way in rest if way < leader]
        if is_proven and len(parts) == len(rest) and all(part and part[1][0] > 1 for part in parts):
            self.is_over = True

    def _saves(self, way: Way) -> bool:
        return any(self.offers[name].saves_memory for name in way)


def _median(blocks: Sequence[Block]) -> float | None:
    return float(numpy.median([block.median_s for block in blocks])) if blocks else None


def _peak(blocks: Sequence[Block]) -> int | None:
    peaks = [block.peak_bytes for block in blocks if block.peak_bytes is not None]
    return max(peaks, default=None)

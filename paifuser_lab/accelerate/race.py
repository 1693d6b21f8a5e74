"""A race between ways to run a loop, by blocks of steps in turn; and the band of its losses.

A way is a set of switches in force together. The ratio of two ways is taken within each round, so
that the machine's drift cancels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median  # of few numbers, much faster than numpy's

import numpy

from ..measure.timing import median_interval
from ..records import readable_bytes

Way = frozenset[str]
PLAIN: Way = frozenset()
MIN_ROUNDS, ROUNDS, MAX_ROUNDS = 3, 8, 27
LOOKS = frozenset((*range(MIN_ROUNDS, ROUNDS + 1), 12, 18))  # rounds after which it may be decided
WORTH = 1.02  # what seems to gain less after `ROUNDS` is not worth more of them
HOPELESS = 1.5  # times slower than the reference: dropped after one block
RUINOUS = 3.0  # times slower: after a step, and with it every way with those switches and more
MAX_COST = 0.98  # a switch that saves memory may be so much slower
NOT_FASTER = "not faster by more than its interval"
BAND_WIDTH, BAND_SHARE, LEAST_REFERENCE, LEAST_RECENT = 4.0, 0.05, 6, 4
WINDOW = 16  # losses that are compared at once after a decision


@dataclass(frozen=True)
class Offer:
    """A switch that this loop can have; an exact one changes no result beyond rounding in fp32.

    One of the optimizers changes how long their own steps take and nothing else. One that saves
    memory and has a limit is for a loop whose peak is above it, whatever it costs.
    """

    name: str
    is_exact: bool = True
    saves_memory: bool = False
    is_of_optimizers: bool = False
    limit_bytes: int | None = None


@dataclass(frozen=True)
class Block:
    """Some steps in one way, with the seconds and losses of each."""

    way: Way
    seconds: tuple[float, ...]
    losses: tuple[float, ...] = ()
    warm_s: float = 0.0  # of the step that changed into the way, which counts as cost only
    peak_bytes: int | None = None
    optimizer_s: tuple[float, ...] = ()  # of each step, in the optimizers; empty if not measured

    @property
    def median_s(self) -> float:
        return float(numpy.median(self.seconds))

    @property
    def optimizer_median_s(self) -> float:
        return float(numpy.median(self.optimizer_s))


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
    rounds: int = ROUNDS  # at most
    first_round: int = 0  # since it was left the last time

    def __post_init__(self) -> None:
        self.blocks = {way: [] for way in self.ways}

    @property
    def reference(self) -> Way:
        return self.ways[0]

    @property
    def reference_s(self) -> float | None:
        """What a step of the reference takes, by its last block; None before that."""
        blocks = self.blocks[self.reference]
        return blocks[-1].median_s if blocks else None

    @property
    def has_limit(self) -> bool:
        """Whether the peak of memory decides it."""
        new = {name for way in self.ways for name in way - self.reference}
        return any(self.offers[name].limit_bytes is not None for name in new)

    def next_way(self) -> Way | None:
        """The way of the next block; None when the race is decided. Each round goes through the
        ways in the other direction, so that one at its turn runs on without a change.
        """
        alive = self.alive
        done = min(len(self.blocks[way]) for way in alive)
        due = [way for way in alive if len(self.blocks[way]) == done]
        is_last = len(due) == len(alive) and done >= self.rounds
        if self.is_over or len(alive) == 1 or is_last:
            return None
        return due[0] if (done - self.first_round) % 2 == 0 else due[-1]

    def leave_round(self) -> None:
        """Forget the blocks of a round that is not complete, as those of one are neighbours in
        time. The next one begins with the reference.
        """
        self.first_round = min(len(self.blocks[way]) for way in self.alive)
        for way in self.alive:
            del self.blocks[way][self.first_round :]

    @property
    def alive(self) -> list[Way]:
        """The ways that may yet win, and the reference."""
        return [way for way in self.ways if way not in self.dropped]

    def add(self, block: Block) -> None:
        """Take in a block; ways that cannot win any more are dropped."""
        way = block.way
        if way not in self.blocks or way in self.dropped:
            return
        slower = block.median_s / (self.reference_s or block.median_s)
        self.blocks[way].append(block)
        if way != self.reference and slower > HOPELESS and not self.has_limit:
            others = [other for other in self.ways if way < other and slower > RUINOUS]
            for hopeless in (way, *others):
                self.drop(hopeless, f"{slower:.1f} times slower at once")
        self._check_losses(way)
        counts = {len(self.blocks[other]) for other in self.alive}
        if len(counts) == 1 and (done := counts.pop()) in LOOKS:
            self._check_round(done)

    def drop(self, way: Way, why: str) -> None:
        """Run a way no more; the reference stays."""
        if way != self.reference:
            self.dropped.setdefault(way, why)

    def compared(self, without: Way, with_: Way) -> tuple[float, tuple[float, float]] | None:
        """How many times faster the second way is, with its interval; None before two rounds.

        Ways that differ in the optimizers alone are compared by the time of their steps, beside a
        rest that is the same for both: what disturbs the rest does not disturb the comparison.
        """
        pairs = list(zip(self.blocks.get(without, ()), self.blocks.get(with_, ()), strict=False))
        if len(pairs) < 2:
            return None
        is_timed = all(self.offers[name].is_of_optimizers for name in without ^ with_) and all(
            block.optimizer_s for pair in pairs for block in pair
        )
        ratio = _ratio_by_optimizers if is_timed else _ratio
        return median_interval(numpy.asarray([ratio(slow, fast) for slow, fast in pairs]))

    def best(self) -> Way:
        """The fastest way with its proven switches alone; the reference where it is no faster."""
        ratios = {
            way: compared[0]
            for way in self.alive[1:]
            if (compared := self.compared(self.reference, way))
        }
        best = max(ratios, key=lambda way: ratios[way], default=self.reference)
        while smaller := self._without_unproven(best):
            best = smaller[0]
        compared = self.compared(self.reference, best)
        is_proven = self._saves(best - self.reference) or (compared and compared[1][0] > 1)
        return best if is_proven else self.reference

    def verdict(self, name: str) -> Verdict:
        """The decision about one switch of this race, given the best way."""
        without, with_ = self._pair(name)
        ratio, interval = self.compared(without, with_) or (None, None)
        is_kept = name in self.best()
        beside = f" beside {' and '.join(sorted(without))}" if without else ""
        return Verdict(
            is_kept,
            self._why(name, without, with_, is_kept) + beside,
            ratio,
            interval,
            _median(self.blocks[without]),
            _median(self.blocks[with_]),
            _peak(self.blocks[without]),
            _peak(self.blocks[with_]),
        )

    def _pair(self, name: str) -> tuple[Way, Way]:
        """The ways that tell most about a switch: without it and with it, beside the best."""
        best = self.best()
        pairs = [(way - {name}, way) for way in self.ways if name in way]
        pairs = [pair for pair in pairs if pair[0] in self.blocks] or [
            (self.reference, way) for way in self.ways if name in way
        ]
        return next((pair for pair in pairs if best in pair), pairs[0])

    def is_undecided(self, name: str) -> bool:
        """Whether more rounds may prove a switch that these have not: it seems to be worth it."""
        without, with_ = self._pair(name)
        compared = self.compared(without, with_)
        if name in self.best() or self.offers[name].saves_memory or with_ in self.dropped:
            return False
        return compared is not None and compared[0] > WORTH

    def _why(self, name: str, without: Way, way: Way, is_kept: bool) -> str:
        offer = self.offers[name]
        limit = readable_bytes(offer.limit_bytes)
        if is_kept and offer.limit_bytes is not None:
            return f"without it the peak is above the limit of {limit}"
        if is_kept and offer.saves_memory:
            if self._lowers_peak(without, way):
                return "less memory, and hardly slower"
            return "hardly slower; no lower peak was measured"
        if is_kept:
            timed = ", timed in the optimizer's step" if offer.is_of_optimizers else ""
            return f"faster by more than its interval{timed}"
        if way in self.dropped:
            return self.dropped[way]
        if offer.limit_bytes is not None:
            return f"the peak is within the limit of {limit} without it, or no lower with it"
        return NOT_FASTER

    def _without_unproven(self, way: Way) -> list[Way]:
        smaller: list[Way] = []
        for name in sorted(way - self.reference):
            rest = way - {name}
            is_alive = rest in self.blocks and rest not in self.dropped
            if is_alive and not self._keeps(name, rest, way):
                smaller.append(rest)
        return smaller

    def _keeps(self, name: str, rest: Way, way: Way) -> bool:
        """Whether a switch is proven to help a way that is otherwise `rest`."""
        offer, compared = self.offers[name], self.compared(rest, way)
        if compared is None:
            return False
        if offer.limit_bytes is not None:
            before = _peak(self.blocks[rest]) or 0
            return before > offer.limit_bytes and self._lowers_peak(rest, way)
        return compared[0] > MAX_COST if offer.saves_memory else compared[1][0] > 1

    def _lowers_peak(self, rest: Way, way: Way) -> bool:
        """Whether the peaks of both ways are known, and that of the second one is lower."""
        before, after = _peak(self.blocks[rest]), _peak(self.blocks[way])
        return before is not None and after is not None and after < before

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

    def _check_round(self, done: int) -> None:
        """Drop ways that are clearly slower; end when no difference is left worth more rounds."""
        alive = self.alive[1:]
        ratios = {
            way: compared for way in alive if (compared := self.compared(self.reference, way))
        }
        if not ratios:
            return
        if self.has_limit:
            self.is_over = True  # the peaks are known
            return
        leader = max(alive, key=lambda way: ratios[way][0])
        for way in alive:
            is_slower = ratios[way][1][1] < 1 and not self._saves(way)
            beaten = self.compared(way, leader) if way != leader else None
            if is_slower or (beaten is not None and beaten[1][0] > 1 and not way < leader):
                self.dropped[way] = "slower" if is_slower else "slower than another choice"
        if done >= ROUNDS and ratios[leader][0] <= WORTH:
            self.is_over = True
        rest = [way for way in alive if way not in self.dropped and way != leader]
        is_proven = ratios[leader][1][0] > 1
        parts = [self.compared(way, leader) for way in rest if way < leader]
        if is_proven and len(parts) == len(rest) and all(part and part[1][0] > 1 for part in parts):
            self.is_over = True

    def _saves(self, way: Way) -> bool:
        return any(self.offers[name].saves_memory for name in way)


def _ratio(slow: Block, fast: Block) -> float:
    return slow.median_s / fast.median_s


def _ratio_by_optimizers(slow: Block, fast: Block) -> float:
    rests = [block.median_s - block.optimizer_median_s for block in (slow, fast)]
    rest = max(0.0, sum(rests) / 2)
    return (rest + slow.optimizer_median_s) / (rest + fast.optimizer_median_s)


def _median(blocks: Sequence[Block]) -> float | None:
    return float(numpy.median([block.median_s for block in blocks])) if blocks else None


def _peak(blocks: Sequence[Block]) -> int | None:
    peaks = [block.peak_bytes for block in blocks if block.peak_bytes is not None]
    return max(peaks, default=None)


def leaves_band(reference: Sequence[float], recent: Sequence[float]) -> bool:
    """Whether recent losses are no longer in the band around those of the reference."""
    if not all(map(math.isfinite, recent)):
        return True
    finite = [loss for loss in reference if math.isfinite(loss)]
    if len(finite) < LEAST_REFERENCE or len(recent) < LEAST_RECENT:
        return False
    centre = median(finite)
    spread = 1.4826 * median(abs(loss - centre) for loss in finite)
    return median(recent) > centre + BAND_WIDTH * spread + BAND_SHARE * abs(centre)


class LossWatch:
    """Watch losses after a decision: against the best window of them so far."""

    def __init__(self) -> None:
        self._best: list[float] = []
        self._recent: list[float] = []
        self._high = 0  # windows in a row that were out of the band

    def see(self, loss: float) -> str:
        """Take in a loss; why the switches in force are to be taken back, or nothing."""
        if not math.isfinite(loss):
            return f"the loss became {loss}"
        self._recent.append(loss)
        if len(self._recent) < WINDOW:
            return ""
        recent, self._recent = self._recent, []
        is_high = leaves_band(self._best, recent)
        self._high = self._high + 1 if is_high else 0
        if not self._best or median(recent) < median(self._best):
            self._best = recent
        if self._high < 2:
            return ""
        self._high = 0
        now, before = median(recent), median(self._best)
        return f"the loss left its band ({now:.3g} after {before:.3g})"

"""Which switches make a training loop faster: decided by blocks of steps, without any clock.

The judge says in which way the next block is to run, is told what that block took and which losses
it had, and keeps a switch only if the loop is faster by more than the interval of its measurement.
What it may cost grows with the loop: once that is spent, it waits until the steps have paid for
another round.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations

from .race import MAX_ROUNDS, PLAIN, ROUNDS, Block, Offer, Race, Verdict, Way

TOO_COARSE = "the clock is too coarse for steps as short as these"
FIRST_STEPS, BUDGET = 200, 0.1  # judging may add this share to the time of the first steps
RESERVE = 10  # steps, of the reference, to spend again before judging goes on


class Judge:
    """Races one after another: the first switches in every combination, each later group on top of
    the best so far; then once more, and longer, the switches that seemed to help without a proof.
    """

    def __init__(self, together: Sequence[Offer], later: Iterable[Sequence[Offer]] = ()) -> None:
        self.offers = {offer.name: offer for offer in together}
        self.best: Way = PLAIN
        self.verdicts: dict[str, Verdict] = {}
        self.race: Race | None = None
        self.judged_steps = 0
        self.spent_steps = 0.0  # beyond those of the references, in steps of theirs
        self.goes_on_at = 0  # the step of the loop until which it waits
        self._waiting: deque[Sequence[Offer]] = deque()
        self._again: deque[Offer] = deque()  # those without a proof
        self._prices: dict[Way, float] = {}  # what its last block has spent
        if together:
            # lower precision last: where a processor emulates it, nothing costs more to try
            names = sorted(self.offers, key=lambda name: (not self.offers[name].is_exact, name))
            ways = [
                frozenset(chosen)
                for count in range(len(names) + 1)
                for chosen in combinations(names, count)
            ]
            self.race = Race(ways, self.offers)
        for group in later:
            self.add_offer(*group)

    def add_offer(self, *offers: Offer) -> None:
        """Race these switches, of which one at most can be in force, when the others are done."""
        if offers:
            self.offers |= {offer.name: offer for offer in offers}
            self._waiting.append(offers)

    @property
    def names_waiting(self) -> set[str]:
        """The switches that no race has begun with, or that are to have another."""
        return {offer.name for group in (*self._waiting, self._again) for offer in group}

    def next_way(self, steps: int) -> Way | None:
        """The way of the next block after `steps` steps; None where `best` holds for now."""
        while True:
            way = self.race.next_way() if self.race is not None else None
            if self.race is not None and way is None:
                self._finish(self.race)
                continue
            is_done = self.race is None and not self._waiting and not self._again
            if is_done or self.is_waiting(steps):
                return None
            if way is not None:
                return way
            self._begin_race()

    def add(self, block: Block, steps: int) -> None:
        """Take in a block after `steps` of the loop; where the budget is spent, the race waits."""
        if self.race is None:
            return
        self.judged_steps += len(block.seconds) + bool(block.warm_s)
        if not block.median_s:
            for way in self.race.ways:
                self.race.drop(way, TOO_COARSE)
            return
        self._count_cost(block, self.race)
        self.race.add(block)
        if self.is_spent(steps):
            self._wait(self.race)

    def share(self, steps: int) -> float | None:
        """The time that judging added, as a share of the first 200 steps, or of all past those."""
        return self.spent_steps / max(FIRST_STEPS, steps) if self.judged_steps else None

    def is_spent(self, steps: int) -> bool:
        """Whether judging has used what it may."""
        share = self.share(steps)
        return share is not None and share > BUDGET

    def is_waiting(self, steps: int) -> bool:
        """Whether the loop has yet to pay for what is to be judged next."""
        return steps < self.goes_on_at

    def _wait(self, race: Race) -> None:
        """Let what is proven be in force until the steps have paid for another round."""
        race.leave_round()
        price = sum(self._prices.get(way, 0.0) for way in race.alive)
        self.goes_on_at = math.ceil((self.spent_steps + max(RESERVE, price)) / BUDGET)
        self.best = race.best()

    def _begin_race(self) -> None:
        """Race what waits, on top of the best so far."""
        group = self._waiting.popleft() if self._waiting else [self._again.popleft()]
        ways = [self.best, *(self.best | {offer.name} for offer in group)]
        is_again = any(offer.name in self.verdicts for offer in group)
        self.race = Race(ways, self.offers, rounds=MAX_ROUNDS if is_again else ROUNDS)

    def fail(self, way: Way, why: str) -> None:
        """A way cannot run: its race goes on without what is new in it."""
        new = way - self.race.reference if self.race is not None else PLAIN
        if self.race is None or not new:
            self.withdraw(way, why)
            return
        for other in self.race.ways:
            if new <= other:
                self.race.drop(other, why)

    def withdraw(self, names: Iterable[str], why: str) -> None:
        """Take switches back, whatever was measured."""
        for name in names:
            if name in self.offers:
                before = self.verdicts.get(name)
                figures = {} if before is None else vars(before)
                self.verdicts[name] = Verdict(**{**figures, "is_kept": False, "why": why})
        gone = set(names)
        self.best -= gone
        self._waiting = deque(
            kept
            for group in self._waiting
            if (kept := [offer for offer in group if offer.name not in gone])
        )
        self._again = deque(offer for offer in self._again if offer.name not in gone)
        if self.race is not None and any(gone & way for way in self.race.ways):
            ways = list(dict.fromkeys(way - gone for way in self.race.ways))
            known = {way: blocks for way, blocks in self.race.blocks.items() if not gone & way}
            dropped = {way: text for way, text in self.race.dropped.items() if not gone & way}
            self.race = Race(ways, self.offers, rounds=self.race.rounds)
            self.race.blocks |= known
            self.race.dropped |= dropped

    def _count_cost(self, block: Block, race: Race) -> None:
        """Count by how many of the reference's steps this block was longer than them."""
        step_s = race.reference_s or block.median_s
        price = max(0.0, block.warm_s / step_s - 1)
        if block.way != race.reference:
            price += max(0.0, sum(block.seconds) / step_s - len(block.seconds))
        self.spent_steps += price
        self._prices[block.way] = price

    def _finish(self, race: Race) -> None:
        self.best = race.best()
        for name in sorted({name for way in race.ways for name in way - race.reference}):
            verdict, is_again = race.verdict(name), name in self.verdicts
            if not is_again and race.is_undecided(name):
                self._again.append(self.offers[name])
            if not is_again or verdict.ratio is not None:
                self.verdicts[name] = verdict
        self.race = None

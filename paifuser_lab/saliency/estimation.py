"""A judge is asked for samples until every mean is known as well as asked, or until the time is
over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..progress import Progress, progress
from ..records import Method, Sensitivity
from .methods import Judge
from .running_mean import Tally
from .subject import Key, Subject


@dataclass
class Hearing:
    """One judge, and the means of what it has said so far."""

    judge: Judge
    tallies: dict[Key, Tally]
    seconds: float = 0.0
    _began: float = field(default=0.0, repr=False)

    @classmethod
    def of(cls, judge: Judge, earlier: Sensitivity | None) -> Hearing:
        """A hearing that goes on from where an earlier record ends."""
        known = judge.earlier(earlier) if earlier else {}
        tallies = {key: Tally.of(known[key]) if key in known else Tally() for key in judge.keys}
        before = (
            [method.seconds for method in earlier.methods if method.name == judge.name]
            if earlier
            else []
        )
        return cls(judge, tallies, sum(before))

    @property
    def subject(self) -> Subject:
        """What it is about."""
        return self.judge.subject

    @property
    def most(self) -> int:
        """Samples of a key at most."""
        return self.judge.most_samples or len(self.subject.batches)

    @property
    def open(self) -> list[Key]:
        """What is not known well enough yet."""
        return [
            key
            for key, tally in self.tallies.items()
            if tally.count < self.most and not tally.is_within(self.subject.error)
        ]

    @property
    def unsure(self) -> int:
        """How many means are known less well than asked."""
        return sum(
            not tally.is_within(self.subject.error)
            for tally in self.tallies.values()
            if tally.count
        )

    @property
    def method(self) -> Method:
        """How it went, for the record."""
        most = max((tally.count for tally in self.tallies.values()), default=0)
        return Method(name=self.judge.name, seconds=self.seconds, samples=most)

    def hear(self, deadline: float, stop_if_asked: Callable[[], None]) -> None:
        """Sample after sample; every key is heard once even where the time is over, and an
        interrupt leaves what there is.
        """
        began = time.perf_counter()
        try:
            with progress(self.judge.name, self.most * len(self.tallies)) as shown:
                while (still := self.open) and not self._is_late(deadline):
                    self._round(still, shown, deadline, stop_if_asked)
        finally:
            self.seconds += time.perf_counter() - began

    def _round(
        self, still: list[Key], shown: Progress, deadline: float, stop_if_asked: Callable[[], None]
    ) -> None:
        """A batch more for the keys that have seen the fewest."""
        fewest = min(self.tallies[key].count for key in still)
        turn = [key for key in still if self.tallies[key].count == fewest]
        batch = self.subject.batches[fewest % len(self.subject.batches)]
        for key, value in self.judge.samples(batch, turn):
            self.tallies[key].add(value)
            shown.advance(doing=f"{key.layer} {key.format}".rstrip())
            stop_if_asked()
            if self._is_late(deadline):
                return

    def _is_late(self, deadline: float) -> bool:
        return time.perf_counter() > deadline and all(
            tally.count for tally in self.tallies.values()
        )

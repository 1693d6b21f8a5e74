"""One candidate of a search: applied, timed in turn with the unchanged model, and judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import MeasureError, PaifuserError, ShouldStop, StoppedError, first_line
from ..records import Candidate, Comparison, Measurement, SearchGoal
from ..variant import Variant, apply_as_timed
from ..variant.comparison import compare
from ..variant.recipe import Recipe
from ..workload import Workload
from ..workload.batching import example_batch, repeated
from .halves import Judge
from .ranking import EXACT, WIDE_OPEN
from .space import Change

SCREEN_ROUNDS = 5
THROUGHPUT_BATCH = 8  # times the example's batch


class Screened(NamedTuple):
    """A candidate, measured or refused, and what it was measured by."""

    row: Candidate
    compared: Comparison | None = None
    variant: Variant | None = None


@dataclass
class Screen:
    """Measures candidates of a workload. For throughput that has a larger batch, if the model takes
    one.
    """

    seen: Workload
    goal: SearchGoal
    timed: Workload = field(init=False)
    batch: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.judge = Judge(self.seen)
        self.timed, self.batch = self.seen, _batch(self.seen)
        if self.goal == "throughput":
            self._enlarge()

    def _enlarge(self) -> None:
        try:
            example = example_batch(self.seen)
            larger = self.seen.copied()
            larger.inputs = repeated(self.seen.inputs, example, THROUGHPUT_BATCH * example)
            larger.output()
        except PaifuserError:  # a model of one batch size
            return
        self.timed, self.batch = larger, THROUGHPUT_BATCH * example

    def screened(
        self, change: Change, predicted: float, seconds: float, should_stop: ShouldStop
    ) -> Screened | None:
        """A change applied and timed in a few rounds; None if it was stopped before that."""
        refused = Candidate(
            label=change.label,
            steps=change.steps,
            why=change.why,
            status="refused",
            predicted=predicted,
        )
        try:
            recipe = Recipe(change.steps, workload=self.seen.name, limit=WIDE_OPEN)
            variant = apply_as_timed(self.timed, recipe, should_stop=should_stop)
            compared = self.compared({change.label: variant}, SCREEN_ROUNDS, seconds, should_stop)
            row = compared[change.label]
            if row.failure:
                return Screened(refused.model_copy(update={"reason": row.failure}))
            candidate = self.candidate(refused, row, compared)
            if (candidate.relative_error or 0.0) > EXACT:
                candidate = self.judge.judged(candidate, variant)
        except StoppedError:
            return None
        except PaifuserError as error:
            return Screened(refused.model_copy(update={"reason": first_line(error)}))
        return Screened(candidate, compared, variant)

    def compared(
        self, variants: dict[str, Any], rounds: int, seconds: float, should_stop: ShouldStop
    ) -> Comparison:
        """Variants timed in turn; quality and limits are the search's to decide."""
        return compare(
            self.timed,
            rounds=rounds,
            seconds=seconds,
            metric=False,
            should_stop=should_stop,
            **variants,
        )

    def candidate(self, row: Candidate, timed: Measurement, compared: Comparison) -> Candidate:
        """The row with what was timed."""
        verdict = compared.verdict(timed)
        per_second = (
            1e3 * self.batch / timed.latency_ms if self.batch and timed.latency_ms else None
        )
        return row.model_copy(
            update={
                "status": "measured",
                "latency_ms": timed.latency_ms,
                "before_ms": compared[compared.baseline].latency_ms,
                "speedup": timed.speedup,
                "interval": timed.speedup_interval,
                "word": verdict.word,
                "tone": verdict.tone,
                "sentence": verdict.sentence,
                "per_second": per_second,
                "relative_error": timed.relative_error,
                "size_bytes": timed.size_bytes,
                "peak_bytes": timed.peak_bytes,
                "rounds": compared.rounds,
            }
        )


def _batch(work: Workload) -> int | None:
    try:
        return example_batch(work)
    except MeasureError:
        return None

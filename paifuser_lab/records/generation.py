"""Text of a model and its variants: speed, perplexity, and where the texts part."""

from __future__ import annotations

import math
from statistics import median
from typing import Literal

from pydantic import Field

from .quality import Quality, Verdict, verdict
from .record import AboutWorkload, Record, TableRecord, row_of
from .text import readable_bytes, readable_ms, readable_rate, readable_share, without_empty


class Phase(Record):
    """The median time of a phase, and its speed-up over the baseline's in the same rounds."""

    ms: float  # of a prompt, or of a token
    tokens_per_s: float
    speedup: float | None = None
    interval: tuple[float, float] | None = None


class GenerationRow(Record):
    """A model in a runtime."""

    name: str
    engine: str
    threads: int
    prefill: Phase | None = None
    decode: Phase | None = None
    size_bytes: int | None = None
    loss: float | None = None  # the cross-entropy of each next token
    agreement: float | None = None  # of the likeliest next tokens, with the baseline's
    text: str = ""
    same_tokens: int | None = None  # of the text, before it parts from the baseline's
    parts_at: int | None = None  # the characters before that; None if it does not part
    pace: tuple[tuple[int, float], ...] = ()  # tokens of context, and the ms of a token after them
    failure: str | None = None

    @property
    def early_and_late(self) -> tuple[float, float] | None:
        """The tokens a second of the first and of the last third of the text, as context grows."""
        third = len(self.pace) // 3
        if not third:
            return None
        taken = [ms for _, ms in self.pace]
        return 1e3 / median(taken[:third]), 1e3 / median(taken[-third:])

    @property
    def perplexity(self) -> float | None:
        """How many tokens the model wavers between."""
        return None if self.loss is None else math.exp(self.loss)


class GenerationComparison(TableRecord):
    """A language model and its variants, each in one or several runtimes, timed in turn."""

    text_columns = ("name", "engine", "note")

    workload: AboutWorkload
    machine: str
    prompt_tokens: int
    new_tokens: int
    evaluated_tokens: int = 0
    bytes_per_token: int
    rounds: int
    is_interrupted: bool = False
    quality: Quality | None = None
    prompt: str = ""
    rows: tuple[GenerationRow, ...] = Field(min_length=1)

    def __getitem__(self, name: str) -> GenerationRow:
        return row_of(self.rows, "name", name)

    @property
    def baseline(self) -> GenerationRow:
        """The unchanged model in torch."""
        return self.rows[0]

    def verdict(
        self, row: GenerationRow, phase: Literal["prefill", "decode"] = "decode"
    ) -> Verdict:
        """Whether a row is faster than the baseline in a phase, if that can be told."""
        before, now = getattr(self.baseline, phase), getattr(row, phase)
        if now is None or before is None or row is self.baseline:
            return verdict(None, None if now is None else now.ms, None, None)
        return verdict(before.ms, now.ms, now.speedup, now.interval, self.quality)

    @property
    def title(self) -> str:
        cache = readable_bytes(self.bytes_per_token * (self.prompt_tokens + self.new_tokens))
        return (
            f"{self.workload}: {self.new_tokens} tokens after a prompt of {self.prompt_tokens}, on "
            f"{self.machine}; its cache takes {cache}"
            + (f"; perplexity of {self.evaluated_tokens:,} tokens" if self.evaluated_tokens else "")
            + (" · stopped early" if self.is_interrupted else "")
        )

    def table(self) -> list[dict[str, str]]:
        return without_empty([self._readable(row) for row in self.rows])

    def _readable(self, row: GenerationRow) -> dict[str, str]:
        def cells(phase: Phase | None) -> tuple[str, str]:
            if phase is None:
                return "", ""
            return readable_ms(phase.ms), readable_rate(phase.tokens_per_s)

        (prefill_ms, prompt_rate), (token_ms, rate) = cells(row.prefill), cells(row.decode)
        ends = row.early_and_late
        verdict = self.verdict(row).sentence if row is not self.baseline else "the original"
        return {
            "name": row.name,
            "engine": row.engine,
            "prefill ms": prefill_ms,
            "prompt tokens/s": prompt_rate,
            "ms a token": token_ms,
            "tokens/s": rate,
            "first → last third": " → ".join(map(readable_rate, ends or ())),
            "weights": "" if row.size_bytes is None else readable_bytes(row.size_bytes),
            "perplexity": "" if row.perplexity is None else f"{row.perplexity:.2f}",
            "agrees": "" if row.agreement is None else readable_share(row.agreement),
            "note": row.failure or verdict,
        }

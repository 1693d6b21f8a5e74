"""Speculative decoding: how many tokens of a draft its model accepts, and what that gains."""

from __future__ import annotations

from pydantic import Field

from .quality import Quality, Verdict, verdict
from .record import AboutWorkload, Record, TableRecord
from .text import readable_ms, readable_rate, readable_share


class SpeculationRow(Record):
    """A number of tokens that the draft guesses at a time."""

    draft_tokens: int  # at most; 0 is plain greedy decoding
    drafted: int
    accepted: int
    calls: int  # of the model, for all tokens
    token_ms: float
    speedup: float | None = None  # over plain greedy decoding, in the same rounds
    interval: tuple[float, float] | None = None

    @property
    def acceptance(self) -> float | None:
        """The share of the draft's tokens that the model would have written itself."""
        return self.accepted / self.drafted if self.drafted else None


class Speculation(TableRecord):
    """A language model whose tokens a draft guesses, timed in turn with greedy decoding."""

    text_columns = ("note",)

    workload: AboutWorkload
    draft: AboutWorkload
    machine: str
    prompt_tokens: int
    new_tokens: int
    rounds: int
    is_interrupted: bool = False
    quality: Quality | None = None
    rows: tuple[SpeculationRow, ...] = Field(min_length=1)

    def __getitem__(self, draft_tokens: int) -> SpeculationRow:
        return {row.draft_tokens: row for row in self.rows}[draft_tokens]

    def verdict(self, row: SpeculationRow) -> Verdict:
        """Whether a row is faster than plain greedy decoding, if that can be told."""
        return verdict(self.rows[0].token_ms, row.token_ms, row.speedup, row.interval, self.quality)

    @property
    def title(self) -> str:
        return (
            f"{self.workload}, its next tokens guessed by {self.draft}: the same {self.new_tokens} "
            f"tokens as greedy decoding, after a prompt of {self.prompt_tokens}, on {self.machine}"
            + (" · stopped early" if self.is_interrupted else "")
        )

    def table(self) -> list[dict[str, str]]:
        return [
            {
                "draft tokens": str(row.draft_tokens),
                "accepted": readable_share(row.acceptance),
                "tokens a call": f"{self.new_tokens / row.calls:.2f}",
                "ms a token": readable_ms(row.token_ms),
                "tokens/s": readable_rate(1e3 / row.token_ms),
                "note": self.verdict(row).sentence if row.draft_tokens else "greedy decoding",
            }
            for row in self.rows
        ]

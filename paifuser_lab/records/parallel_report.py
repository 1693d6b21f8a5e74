"""What one rank of a parallel training sent, waited for and computed, step by step."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from pydantic import Field

from .table import TableRecord
from .text import counted, readable_bytes, readable_share

if TYPE_CHECKING:
    import pandas


class ParallelReport(TableRecord):
    """One rank of a parallel training. Columns have a value for each step.

    Bytes are those that the exchange's algorithm sends from this rank: a mean of N bytes over W
    ranks is 2 (W − 1) / W · N.
    """

    text_columns = ("what",)

    strategy: str
    rank: int = Field(default=0, ge=0)
    world: int = Field(default=1, ge=1)
    start_bytes: int = Field(default=0, description="sent before the first step")
    end_bytes: int = Field(default=0, description="sent after the last step")
    sent_bytes: tuple[int, ...] = ()
    waited_ms: tuple[float, ...] = ()
    computed_ms: tuple[float, ...] = ()
    exchanges: int = Field(default=0, description="how often weights or gradients were averaged")
    weights_bytes: int = 0
    optimizer_bytes: int = Field(default=0, description="of this rank's optimizer state")
    mapped_bytes: int = Field(default=0, description="of batches read in shared memory")
    copied_bytes: int = Field(default=0, description="of batches copied out of shared memory")
    notes: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """All that this rank has sent."""
        return self.start_bytes + sum(self.sent_bytes) + self.end_bytes

    @property
    def wait_share(self) -> float | None:
        """The share of the time in which it waited for the others."""
        total = sum(self.waited_ms) + sum(self.computed_ms)
        return sum(self.waited_ms) / total if total > 0 else None

    @property
    def step_bytes(self) -> float:
        """What it sends in a step, on average."""
        return sum(self.sent_bytes) / max(1, len(self.sent_bytes))

    @property
    def row(self) -> dict[str, str]:
        """What this rank did, as a row of text."""
        return {
            "rank": str(self.rank),
            "steps": str(len(self.sent_bytes)),
            "sent": readable_bytes(self.total_bytes),
            "sent a step": readable_bytes(round(self.step_bytes)),
            "computes, ms a step": f"{median(self.computed_ms):.3g}" if self.computed_ms else "–",
            "waits, ms a step": f"{median(self.waited_ms):.3g}" if self.waited_ms else "–",
            "waited": "–" if self.wait_share is None else readable_share(self.wait_share),
        }

    @property
    def title(self) -> str:
        """The strategy, the rank, and what was sent, in a line."""
        return (
            f"{self.strategy} · rank {self.rank} of {self.world} · "
            f"{counted(len(self.sent_bytes), 'step')} · {readable_bytes(self.total_bytes)} sent"
        )

    @property
    def line(self) -> str:
        """What this rank did, in a few words."""
        waited = "" if self.wait_share is None else f" · waited {readable_share(self.wait_share)}"
        computed = f" · {median(self.computed_ms):.3g} ms a step" if self.computed_ms else ""
        return f"rank {self.rank}: {readable_bytes(self.total_bytes)} sent{computed}{waited}"

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per step."""
        import pandas

        names = ("sent_bytes", "waited_ms", "computed_ms")
        return pandas.DataFrame({name: getattr(self, name) for name in names}).rename_axis("step")

    def table(self) -> list[dict[str, str]]:
        """The figures as text."""
        share = self.wait_share
        rows = {
            "sent a step": readable_bytes(round(self.step_bytes)),
            "averaged": f"{self.exchanges} times",
            "computed a step": f"{median(self.computed_ms):.3g} ms" if self.computed_ms else "",
            "waited": "" if share is None else readable_share(share),
            "weights": readable_bytes(self.weights_bytes),
            "optimizer's state here": readable_bytes(self.optimizer_bytes),
            "batches in shared memory": readable_bytes(self.mapped_bytes)
            if self.mapped_bytes
            else "",
            "copied out of it": readable_bytes(self.copied_bytes) if self.mapped_bytes else "",
        }
        return [{"what": name, "value": value} for name, value in rows.items() if value]

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes."""
        return self.notes

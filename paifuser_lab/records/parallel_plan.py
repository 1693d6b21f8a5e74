"""How fast each way to train on several processes would be, and which is fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from .record import Record
from .table import TableRecord
from .text import readable_bytes
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas


class Link(Record):
    """What connects two processes: the time until a message arrives, and bits a second."""

    latency_us: float = Field(ge=0, description="of an empty message")
    gbit_per_s: float = Field(gt=0, description="10^9 bits a second in one direction")
    source: str = Field(default="given", description="given, or measured between which processes")

    def transfer_s(self, size_bytes: float) -> float:
        """Seconds until a message of this size has arrived."""
        return self.latency_us * 1e-6 + size_bytes * 8e-9 / self.gbit_per_s

    def ring_s(self, size_bytes: float, processes: int, passes: int = 2) -> float:
        """Seconds of a collective around a ring: an all-reduce has two passes, a gather one."""
        return passes * (processes - 1) * self.transfer_s(size_bytes / processes)

    def __str__(self) -> str:
        return f"{self.gbit_per_s:.3g} Gbit/s, {self.latency_us:.3g} µs ({self.source})"


class ParallelOption(Record):
    """One strategy: the predicted time of a step over the same examples, and where it goes."""

    strategy: str
    step_ms: float | None = None
    compute_ms: float = 0.0
    wait_ms: float = 0.0
    sent_bytes: float = Field(default=0.0, description="by each process in a step")
    state_bytes: int = Field(default=0, description="weights, gradients, optimizer, a process")
    reason: str = ""

    @property
    def is_possible(self) -> bool:
        """Whether the model can be trained so."""
        return self.step_ms is not None


class ParallelPlan(TableRecord):
    """The strategies by predicted time of a step; one process is among them."""

    text_columns = ("strategy", "why")

    workload: AboutWorkload
    machine: str
    processes: int
    threads: int = Field(description="of one process; each of several has a share of them")
    slowdown: float = Field(
        default=1.0, description="of a process while the others compute on the same machine"
    )
    link: Link
    options: tuple[ParallelOption, ...]

    def __getitem__(self, strategy: str) -> ParallelOption:
        for option in self.options:
            if option.strategy == strategy:
                return option
        raise KeyError(
            f"no strategy {strategy!r}; there are "
            f"{', '.join(option.strategy for option in self.options)}"
        )

    @property
    def fastest(self) -> ParallelOption:
        """The possible strategy with the least time of a step."""
        return min(
            (option for option in self.options if option.is_possible),
            key=lambda option: option.step_ms or 0.0,
        )

    @property
    def title(self) -> str:
        """The workload, the processes and the link, in a line."""
        return f"{self.workload} on {self.processes} processes · {self.link}"

    @property
    def sentence(self) -> str:
        """Which strategy is fastest, and why."""
        best = self.fastest
        return f"Fastest here: {best.strategy}, {best.step_ms:.3g} ms a step: {best.reason}."

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per strategy, as plain numbers."""
        import pandas

        rows = [option.model_dump() for option in self.options]
        return pandas.DataFrame(rows).set_index("strategy")

    def table(self) -> list[dict[str, str]]:
        """A row per strategy, the fastest first."""
        return [
            {
                "strategy": option.strategy,
                "step ms": "–" if option.step_ms is None else f"{option.step_ms:.3g}",
                "compute ms": f"{option.compute_ms:.3g}" if option.is_possible else "–",
                "waits ms": f"{option.wait_ms:.3g}" if option.is_possible else "–",
                "sent": readable_bytes(round(option.sent_bytes)) if option.is_possible else "–",
                "state": readable_bytes(option.state_bytes) if option.is_possible else "–",
                "why": option.reason,
            }
            for option in self.options
        ]

    @property
    def remarks(self) -> tuple[str, ...]:
        """The sentence on what is fastest."""
        return (self.sentence,)

    def is_bold(self, row: dict[str, str]) -> bool:
        """Whether the strategy is the fastest."""
        return row["strategy"] == self.fastest.strategy

    def __repr__(self) -> str:
        return f"ParallelPlan({self.workload}: {self.sentence})"

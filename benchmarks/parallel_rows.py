"""The rows that `bench parallel` gives."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from pydantic import Field

from paifuser_lab.records import PipelineSchedule, Record, readable_bytes


class ParallelWay(Record):
    """One way to train, on the processes of this machine."""

    way: str
    sent_bytes: float
    steps_per_s: float
    ratio: float
    interval: tuple[float, float]
    wait_share: float | None = None
    weights_bytes: int = 0
    optimizer_bytes: int = 0
    losses: tuple[float, ...] = ()


class LinkStep(Record):
    """A step over a simulated link: by the simulation, and by real processes where it ran."""

    way: str
    ranks: int
    gbit_per_s: float
    simulated_ms: float
    measured_ms: float | None = None


class ParallelBench(Record):
    """The result of `python -m benchmarks parallel`."""

    machine: str
    model: str
    parameters: int
    processes: int
    steps: int
    alone: tuple[float, ...] = ()
    ways: tuple[ParallelWay, ...] = ()
    links: tuple[LinkStep, ...] = ()
    pipelines: tuple[PipelineSchedule, ...] = ()

    @property
    def title(self) -> str:
        """The title of the table."""
        return (
            f"{self.model} ({self.parameters:,} parameters) on {self.processes} processes of "
            f"{self.machine}"
        )

    def table(self) -> list[dict[str, str]]:
        """A row for each way."""
        return [
            {
                "way": row.way,
                "sent a step": readable_bytes(round(row.sent_bytes)),
                "steps/s": f"{row.steps_per_s:.3g}",
                "× DDP": f"{row.ratio:.2f} ({row.interval[0]:.2f}–{row.interval[1]:.2f})",
                "waits": "–" if row.wait_share is None else f"{row.wait_share:.0%}",
                "optimizer a rank": readable_bytes(row.optimizer_bytes),
                "loss": readable_losses(row.losses),
            }
            for row in self.ways
        ] or [{"way": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """The loss of one process, the pipelines, and how far the simulation is off."""
        lines = [f"one process over the same examples: loss {readable_losses(self.alone)}"]
        lines += [record.title for record in self.pipelines]
        checked = [row for row in self.links if row.measured_ms]
        for row in checked:
            lines.append(
                f"{row.way}, {row.ranks} processes at {row.gbit_per_s:g} Gbit/s: simulated "
                f"{row.simulated_ms:.3g} ms, measured {row.measured_ms:.3g} ms"
            )
        return "\n".join(lines)


class EqualRow(Record):
    """One strategy against one process. The difference is that of the weights, or of batch-norm's
    statistics where it is larger, as a share of how far the training moved them.
    """

    model: str
    processes: int
    strategy: str
    steps: int
    difference: float
    tolerance: float
    spread: float = Field(description="the largest difference between two processes' weights")

    @property
    def is_equal(self) -> bool:
        """Whether it is within its tolerance, and all processes end with the same weights."""
        return self.difference <= self.tolerance and self.spread == 0


class EqualBench(Record):
    """The result of `python -m benchmarks parallel --equal`."""

    machine: str
    rows: tuple[EqualRow, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether every strategy is."""
        return bool(self.rows) and all(row.is_equal for row in self.rows)

    @property
    def title(self) -> str:
        """How many strategies equal one process."""
        equal = sum(row.is_equal for row in self.rows)
        return f"{equal} of {len(self.rows)} trainings on {self.machine} equal one process"

    def table(self) -> list[dict[str, str]]:
        """A row for each strategy, a column for each model and number of processes."""
        lines: dict[str, dict[str, str]] = {}
        for row in self.rows:
            line = lines.setdefault(
                row.strategy,
                {"strategy": row.strategy, "steps": str(row.steps),
                 "tolerance": f"{row.tolerance:g}"},
            )  # fmt: skip
            mark = "" if row.is_equal else " (not equal)"
            line[f"{row.model}, {row.processes}"] = f"{row.difference:.1g}{mark}"
        return list(lines.values()) or [{"strategy": "nothing was trained"}]

    @property
    def summary(self) -> str:
        """What the figures are."""
        spread = max((row.spread for row in self.rows), default=0.0)
        return (
            "differences from one process's weights, as a share of how far they moved; between two "
            f"processes {spread:.1g} at most"
        )


def readable_losses(losses: Sequence[float]) -> str:
    """The mean and the range over seeds."""
    if not losses:
        return "–"
    return f"{fmean(losses):.3g} ({min(losses):.3g}–{max(losses):.3g})"

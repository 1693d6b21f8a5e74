"""Our FLOPs beside those of torch's FlopCounterMode, and what makes up the difference."""

from __future__ import annotations

from collections import Counter

from torch.utils.flop_counter import FlopCounterMode

from paifuser_lab.bench.each import measure_each
from paifuser_lab.loading.load import load, models
from paifuser_lab.machine import machine_label
from paifuser_lab.profiler import profile
from paifuser_lab.profiler.cost import is_counted_by_torch
from paifuser_lab.records import Profile, Record
from paifuser_lab.workload import Workload, running

SECONDS = 0.5  # operators are counted in the first run; further runs would only be timed


class FlopsRow(Record):
    """A model's FLOPs: ours in total, torch's, and ours by operator that torch does not count."""

    model: str
    ours: int
    torch: int
    beyond_torch: dict[str, int]

    @property
    def shared(self) -> int:
        """Our FLOPs of the operators that torch counts as well."""
        return self.ours - sum(self.beyond_torch.values())


class FlopsBench(Record):
    """The result of `python -m benchmarks profile --flops`."""

    machine: str
    rows: tuple[FlopsRow, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return "GFLOPs of one call, by this project and by torch's FlopCounterMode"

    def table(self) -> list[dict[str, str]]:
        """A row for each model."""
        rows = [
            {
                "model": row.model,
                "ours": f"{row.ours / 1e9:.3f}",
                "torch's": f"{row.torch / 1e9:.3f}",
                "ours of what torch counts": "equal"
                if row.shared == row.torch
                else f"{row.shared / 1e9:.3f}",
                "ours of the rest": ", ".join(
                    f"{name} {count / 1e6:.3g} M" for name, count in largest(row)
                ),
            }
            for row in self.rows
        ]
        return rows or [{"model": "nothing was counted"}]

    @property
    def summary(self) -> str:
        """The failures, a line each."""
        return "\n".join(f"{name}: {why}" for name, why in self.failures.items())


def bench(names: tuple[str, ...]) -> FlopsBench:
    """Count models one after another; a failure is recorded and the next one is counted."""
    rows: list[FlopsRow] = []

    def count(name: str) -> None:
        work = load(name)
        rows.append(counted_row(work, profile(work, runs=1, seconds=SECONDS)))

    failures = measure_each(names or full_size(), count)
    return FlopsBench(machine=machine_label(), rows=tuple(rows), failures=failures)


def full_size() -> tuple[str, ...]:
    """The zoo's full-size models, without data."""
    return tuple(
        name
        for name in models()
        if not any(part in name for part in ("-tiny", "-digits", "-streets", "-maps"))
    )


def counted_row(work: Workload, profiled: Profile) -> FlopsRow:
    """The row of a profiled model; torch's counter counts one more call."""
    with running(work.model), FlopCounterMode(display=False) as counter:
        work.inputs.clone()(work.model)
    operators = [operator for row in profiled for operator in row.operators]
    beyond: Counter[str] = Counter()
    for operator in operators:
        if not is_counted_by_torch(operator.name):
            beyond[operator.name] += operator.flops
    return FlopsRow(
        model=work.name,
        ours=sum(operator.flops for operator in operators),
        torch=int(counter.get_total_flops()),
        beyond_torch={name: count for name, count in beyond.most_common() if count},
    )


def largest(row: FlopsRow, most: int = 3) -> list[tuple[str, int]]:
    """The operators with the largest share of the difference."""
    return list(row.beyond_torch.items())[:most]

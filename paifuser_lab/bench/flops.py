"""Our FLOPs beside those of torch's FlopCounterMode, and what the difference consists of."""

from __future__ import annotations

from collections import Counter

from torch.utils.flop_counter import FlopCounterMode

from ..errors import PaifuserError
from ..machine import hardware
from ..profiler import profile
from ..profiler.cost import is_counted_by_torch
from ..progress import progress
from ..records import Profile, Record
from ..workload import Workload, running
from ..workload.load import load, models

SECONDS = 0.5  # operators are counted in the first run; more of them would only be timed


class FlopsRow(Record):
    """One model: all of our FLOPs, torch's, and ours of each operator that torch counts as
    nothing.
    """

    model: str
    ours: int
    torch: int
    beyond_torch: dict[str, int]

    @property
    def shared(self) -> int:
        """Ours of the operators that torch counts too."""
        return self.ours - sum(self.beyond_torch.values())


class FlopsBench(Record):
    """What `paifuser-lab bench profile --flops` counted."""

    machine: str
    rows: tuple[FlopsRow, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """What the table shows."""
        return "GFLOPs of one call, by this project and by torch's FlopCounterMode"

    def table(self) -> list[dict[str, str]]:
        """A row a model."""
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
        """What failed, a line each."""
        return "\n".join(f"{name}: {why}" for name, why in self.failures.items())


def bench(names: tuple[str, ...]) -> FlopsBench:
    """Count models one after another; one that fails is noted and the others go on."""
    rows: list[FlopsRow] = []
    failures: dict[str, str] = {}
    chosen = names or full_size()
    with progress("models", len(chosen)) as shown:
        for name in chosen:
            try:
                work = load(name)
                rows.append(counted_row(work, profile(work, runs=1, seconds=SECONDS)))
            except PaifuserError as error:
                failures[name] = str(error)
            except KeyboardInterrupt:
                break
            shown.advance(doing=name)
    return FlopsBench(machine=hardware().name, rows=tuple(rows), failures=failures)


def full_size() -> tuple[str, ...]:
    """The zoo's models of real size, without data."""
    return tuple(
        name
        for name in models()
        if not any(part in name for part in ("-tiny", "-digits", "-streets", "-maps"))
    )


def counted_row(work: Workload, seen: Profile) -> FlopsRow:
    """The row of a model that was profiled; torch's counter watches one more call."""
    with running(work.model), FlopCounterMode(display=False) as counter:
        work.inputs.clone()(work.model)
    operators = [one for row in seen for one in row.operators]
    beyond: Counter[str] = Counter()
    for one in operators:
        if not is_counted_by_torch(one.name):
            beyond[one.name] += one.flops
    return FlopsRow(
        model=work.name,
        ours=sum(one.flops for one in operators),
        torch=int(counter.get_total_flops()),
        beyond_torch={name: count for name, count in beyond.most_common() if count},
    )


def largest(row: FlopsRow, most: int = 3) -> list[tuple[str, int]]:
    """The operators that the difference mainly consists of."""
    return list(row.beyond_torch.items())[:most]

"""The overhead of profiling, whether its rows add up, and its FLOPs beside torch's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import torch
import typer
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from paifuser_lab.bench.runner import BenchRecord, Columns, Names, measured_rows
from paifuser_lab.bench.text import number
from paifuser_lab.profiler import profile
from paifuser_lab.profiler.cost import is_counted_by_torch
from paifuser_lab.records import Profile, Record
from paifuser_lab.variant.load import load, models
from paifuser_lab.views import figure
from paifuser_lab.workload import Workload, running

LAYERS = 1000
OPERATORS = {"_scaled_dot_product_flash_attention_for_cpu": "attention on a CPU"}
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

    @property
    def is_equal(self) -> bool:
        """Whether both counts of these are the same."""
        return self.shared == self.torch

    @property
    def counted(self) -> float:
        """The share of our FLOPs that torch counts."""
        return self.torch / self.ours

    @property
    def largest(self) -> tuple[str, float]:
        """The operator that torch leaves out with the most FLOPs, and its share of the rest."""
        name, count = next(iter(self.beyond_torch.items()), ("", 0))
        return OPERATORS.get(name, name), count / max(1, sum(self.beyond_torch.values()))


class FlopsBench(BenchRecord):
    """The result of `python -m benchmarks profile --flops`."""

    caption = "GFLOPs of one call, by this project and by torch's FlopCounterMode"
    rows: tuple[FlopsRow, ...]
    columns: ClassVar[Columns] = {
        "model": "model",
        "ours": lambda row: f"{row.ours / 1e9:.3f}",
        "torch's": lambda row: f"{row.torch / 1e9:.3f}",
        "ours of what torch counts": lambda row: (
            "equal" if row.shared == row.torch else f"{row.shared / 1e9:.3f}"
        ),
        "most of the rest": lambda row: "{} {:.0%}".format(*row.largest),
    }


class ProfileRow(Record):
    """The profile of one model; `flops` are ours of the operators that torch counts, `all_flops` of
    all.
    """

    model: str
    layers: int
    threads: int
    latency_ms: float
    slowdown_while_profiling: float
    rows_to_latency: float
    flops: int
    torch_flops: int
    all_flops: int | None = None
    beyond_torch: dict[str, int] = {}
    profile_s: float


class ProfileBench(BenchRecord):
    """The result of `python -m benchmarks profile`."""

    rows: tuple[ProfileRow, ...]
    thousand_layers_s: float | None = None
    thousand_layers_drawn_s: float | None = None
    columns: ClassVar[Columns] = {
        "model": "model",
        "layers": "layers",
        "latency": lambda row: f"{number(row.latency_ms)} ms ({row.threads}t)",
        "slower while profiling": lambda row: f"{row.slowdown_while_profiling:+.1%}",
        "sum of rows / latency": lambda row: f"{row.rows_to_latency:.3f}",
    }

    @property
    def thousand_layers(self) -> str:
        """A sentence on the model of 1,000 layers; '' where it was not measured."""
        if self.thousand_layers_s is None or self.thousand_layers_drawn_s is None:
            return ""
        return (
            f"A model of {LAYERS:,} tiny layers takes {self.thousand_layers_s:.1f} s to profile "
            f"(ten runs and the rest), and {self.thousand_layers_drawn_s:.1f} s to draw."
        )

    @property
    def summary(self) -> str:
        """The model of 1,000 layers, and the failures."""
        return "\n".join([self.thousand_layers, *self.failed])


def bench(
    names: Names = None,
    *,
    flops: Annotated[
        bool, typer.Option("--flops", help="Only count FLOPs, ours and torch's; nothing is timed.")
    ] = False,
) -> ProfileBench | FlopsBench:
    """Measure what profiling costs, whether its rows add up, and its FLOPs against torch's."""
    chosen = names or full_size()
    if flops:
        return FlopsBench(**measured_rows(chosen, lambda name: [_counted(load(name))]))
    measured = measured_rows(chosen, lambda name: [_row(load(name))])
    profiled_s, drawn_s = _thousand_layers()
    return ProfileBench(thousand_layers_s=profiled_s, thousand_layers_drawn_s=drawn_s, **measured)


def full_size() -> tuple[str, ...]:
    """The zoo's full-size models, without data."""
    return tuple(
        name
        for name in models()
        if not any(part in name for part in ("-tiny", "-digits", "-streets", "-maps"))
    )


def _counted(work: Workload) -> FlopsRow:
    return counted_row(work, profile(work, runs=1, seconds=SECONDS))


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


def _row(work: Workload) -> ProfileRow:
    seconds, profiled = timed(lambda: profile(work))
    counted = counted_row(work, profiled)
    return ProfileRow(
        model=work.name,
        layers=len(profiled),
        threads=profiled.threads,
        latency_ms=profiled.latency_ms,
        slowdown_while_profiling=profiled.slowdown_while_profiling,
        rows_to_latency=profiled.rows_to_latency,
        flops=counted.shared,
        torch_flops=counted.torch,
        all_flops=counted.ours,
        beyond_torch=counted.beyond_torch,
        profile_s=seconds,
    )


class _Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _thousand_layers() -> tuple[float, float]:
    """Seconds to profile a chain of 1,000 layers in ten runs, and to draw it as in a notebook."""
    work = Workload(_Chain(), torch.randn(1, 8), name="chain")
    profiled_s, profiled = timed(lambda: profile(work, runs=10))
    drawn_s, _ = timed(lambda: (profiled._repr_html_(), figure(profiled).png()))
    return profiled_s, drawn_s


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result

"""The overhead of profiling, whether its rows add up to the latency, and its FLOPs beside torch's:
over the zoo, and for a model of 1,000 layers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from paifuser_lab.bench.each import measure_each
from paifuser_lab.figures import figure
from paifuser_lab.loading.load import load
from paifuser_lab.machine import machine_label
from paifuser_lab.profiler import profile
from paifuser_lab.records import Profile, Record
from paifuser_lab.workload import Workload

from .flops import counted_row, full_size

LAYERS = 1000


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


class ProfileBench(Record):
    """The result of `python -m benchmarks profile`."""

    machine: str
    rows: tuple[ProfileRow, ...]
    thousand_layers_s: float | None = None
    thousand_layers_drawn_s: float | None = None
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"profiling on {self.machine}"

    def table(self) -> list[dict[str, str]]:
        """A row for each model."""
        rows = [
            {
                "model": f"{row.model} ({row.threads}t)",
                "layers": str(row.layers),
                "latency ms": f"{row.latency_ms:.3g}",
                "slower while profiling": f"{row.slowdown_while_profiling:+.1%}",
                "rows' sum / latency": f"{row.rows_to_latency:.3f}",
                "FLOPs / torch's": ""
                if row.all_flops is None
                else f"{row.all_flops / row.torch_flops:.4f}",
                "the same operators": "equal"
                if row.flops == row.torch_flops
                else f"{row.flops / row.torch_flops:.4f}",
                "seconds": f"{row.profile_s:.1f}",
            }
            for row in self.rows
        ]
        return rows or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """The model of 1,000 layers."""
        if self.thousand_layers_s is None or self.thousand_layers_drawn_s is None:
            return ""
        return (
            f"{LAYERS:,} tiny layers: ten runs and all else in {self.thousand_layers_s:.2f} s, "
            f"drawn as a tree and as a figure in {self.thousand_layers_drawn_s:.2f} s"
        )


def bench(names: tuple[str, ...]) -> ProfileBench:
    """Profile models one after another; a failure is recorded and the next one is profiled."""
    rows: list[ProfileRow] = []
    failures = measure_each(names or full_size(), lambda name: rows.append(_row(load(name))))
    profiled_s, drawn_s = _thousand_layers()
    return ProfileBench(
        machine=machine_label(),
        rows=tuple(rows),
        thousand_layers_s=profiled_s,
        thousand_layers_drawn_s=drawn_s,
        failures=failures,
    )


def _row(work: Workload) -> ProfileRow:
    seconds, profiled = _seconds(lambda: profile(work))
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
    profiled_s, profiled = _seconds(lambda: profile(work, runs=10))
    drawn_s, _ = _seconds(lambda: _draw(profiled))
    return profiled_s, drawn_s


def _draw(profiled: Profile) -> None:
    profiled._repr_html_()
    figure(profiled).png()


def _seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result

"""What binds a layer: its roofs, what lies around its operators, ceilings that a layer beats."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Workload
from paifuser_lab.profiler import layers, rows
from paifuser_lab.profiler.clock import Run
from paifuser_lab.profiler.observation import Observation
from paifuser_lab.records import Ceiling, OperatorProfile
from tests.support.advised import paper

CEILING = Ceiling(
    threads=1, fp32_gflops=100, bf16_gflops=200, fp16_gflops=50, int8_gops=400, bandwidth_gbs=10
)
RAN = (OperatorProfile(name="linear", calls=1, ms=1.0),)


def observation(model: nn.Module | None = None) -> Observation:
    return Observation(Workload(model or nn.Linear(4, 4), torch.randn(2, 4)), 1, paper(CEILING))


def bounds(
    monkeypatch: pytest.MonkeyPatch, outside_ms: float = 0.0, **facts: Any
) -> dict[str, Any]:
    """The bounds of a layer of 10 ms, on a machine where calling costs nothing."""
    monkeypatch.setattr(rows, "call_costs_ms", lambda: (0.0, 0.0))
    monkeypatch.setattr(rows, "operator_cost_ms", lambda: 0.0)
    layer = {"self_ms": 10.0, "flops": 0, "read_bytes": 0, "calls": 1, "dtype": "float32"} | facts
    return rows.limits_of(observation(), layer | {"written_bytes": 0}, RAN, outside_ms)


@pytest.mark.parametrize(
    ("flops", "moved", "roof_ms", "verdict"),
    [(400_000_000, 30_000_000, 4.0, "compute"), (300_000_000, 50_000_000, 5.0, "memory")],
)
def test_the_roof_is_the_longer_of_computing_and_moving_which_overlap(
    flops: int, moved: int, roof_ms: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = bounds(monkeypatch, flops=flops, read_bytes=moved)
    assert (figures["roof_ms"], figures["verdict"]) == (pytest.approx(roof_ms), verdict)


@pytest.mark.parametrize(("outside_ms", "overhead_ms"), [(2.0, 0.0), (6.0, 6.0), (40.0, 10.0)])
def test_time_around_the_operators_counts_beyond_the_noise_and_never_more_than_the_layer(
    outside_ms: float, overhead_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bounds(monkeypatch, outside_ms)["overhead_ms"] == overhead_ms


def test_a_busy_moment_of_the_operators_does_not_reduce_overhead() -> None:
    seen = observation()
    seen.operators.runs_ms = [
        {("a", "mm"): 5.0, ("a", "add"): 1.0},
        {("a", "mm"): 2.0, ("a", "add"): 1.0, ("b", "mm"): 1.0},
    ]
    assert rows.least_inside(seen, {"a": "a", "b": "b"}) == {"a": 3.0, "b": 0.0}


@pytest.mark.parametrize(("device", "overhead_ms"), [("cpu", 9.0), ("cuda", 0.0)])
def test_on_a_device_what_an_operator_takes_beyond_its_launch_is_no_overhead(
    device: str, overhead_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "call_costs_ms", lambda: (0.0, 0.0))
    monkeypatch.setattr(rows, "operator_cost_ms", lambda: 0.0)
    seen = observation()
    monkeypatch.setattr(Workload, "device", torch.device(device))
    seen.runs = [Run(own_ms={"": 10.0}, calls={"": 1}, calls_made={})]
    seen.operators.calls["", "linear"] = 1
    seen.operators.runs_ms = [{("", "linear"): 1.0}]
    (row,) = rows._all_rows(seen, 0.0)
    assert row.overhead_ms == overhead_ms


# A layer that beats the ceiling.


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, float]]]:
    """The rates kept for later runs, on a machine whose ceilings are far too low."""
    calls: list[tuple[int, dict[str, float]]] = []
    low = Ceiling(threads=1, fp32_gflops=1e-6, bandwidth_gbs=1e6)
    monkeypatch.setattr(layers, "hardware", lambda: paper(low))
    monkeypatch.setattr(
        rows, "keep_faster", lambda machine, count, rates: calls.append((count, rates))
    )
    monkeypatch.setattr(rows, "MAX_RATIO", float("inf"))
    monkeypatch.setattr(rows, "MIN_MS", 0.0)
    return calls


def look(runs: int = 5, threads: int = 1) -> lab.Profile:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    return lab.profile(Workload(model, torch.randn(64, 64)), runs=runs, threads=threads)


def test_a_layer_that_beats_the_ceiling_takes_its_place_here_and_later(
    raised: list[tuple[int, dict[str, float]]],
) -> None:
    seen = look()
    assert raised == [(1, {"fp32_gflops": seen["0"].gflops})]
    assert seen.ceiling.fp32_gflops == seen["0"].gflops
    assert seen["0"].roof_share == pytest.approx(1.0)


@pytest.mark.parametrize("doubt", ["other threads", "few runs", "a miscount", "rounded products"])
def test_a_doubtful_rate_raises_no_ceiling(
    doubt: str, raised: list[tuple[int, dict[str, float]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if doubt == "a miscount":
        monkeypatch.setattr(rows, "MAX_RATIO", 4.0)
    torch.set_float32_matmul_precision("medium" if doubt == "rounded products" else "highest")
    try:
        seen = look(runs=2 if doubt == "few runs" else 5, threads=1 + (doubt == "other threads"))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen.ceiling.fp32_gflops == 1e-6 and raised == []

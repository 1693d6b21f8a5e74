"""The clock: every moment goes to the layer on top, and watching is taken out again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from paifuser_lab.profiler import clock
from paifuser_lab.profiler.clock import Run, call_costs_ms, operator_cost_ms, watch_run

CPU = torch.device("cpu")
MS = 1_000_000


class Watch:
    """Time that passes only when a layer says so."""

    def __init__(self) -> None:
        self.now = 0

    def pass_by(self, ms: int) -> None:
        self.now += ms * MS


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    found = Watch()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=lambda: found.now))
    return found


class Taking(nn.Module):
    """Takes some time before, between and after its parts."""

    def __init__(self, watch: Watch, ms: int, *parts: nn.Module) -> None:
        super().__init__()
        self.watch, self.ms = watch, ms
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        self.watch.pass_by(self.ms)
        for part in self.parts:
            x = part(x)
            self.watch.pass_by(self.ms)
        return x


def run(model: nn.Module) -> Run:
    return watch_run(model, lambda: model(torch.ones(1)), CPU)


def test_each_layer_gets_the_time_that_it_took_itself(watch: Watch) -> None:
    model = Taking(watch, 1, Taking(watch, 10, Taking(watch, 100)), Taking(watch, 1000))
    seen = run(model)
    assert seen.own_ms == {"": 3.0, "parts.0": 20.0, "parts.0.parts.0": 100.0, "parts.1": 1000.0}
    assert seen.total_ms == 1123.0
    assert seen.calls == {"": 1, "parts.0": 1, "parts.0.parts.0": 1, "parts.1": 1}
    assert seen.calls_made == {"": 3, "parts.0": 1}, (
        "the model itself is called from outside, which is '' as well"
    )


class Raising(nn.Module):
    def __init__(self, watch: Watch, error: BaseException) -> None:
        super().__init__()
        self.watch, self.error = watch, error

    def forward(self, x: Tensor) -> Tensor:
        self.watch.pass_by(7)
        raise self.error


def test_time_stays_with_the_layer_when_the_model_catches_an_error(watch: Watch) -> None:
    class Trying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.risky = nn.Sequential(Raising(watch, ValueError("no")))
            self.safe = Taking(watch, 5)

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.risky(x)
            except ValueError:
                watch.pass_by(1)
                return self.safe(x)

    assert run(Trying()).own_ms == {"": 1.0, "risky": 0.0, "risky.0": 7.0, "safe": 5.0}


def test_a_run_that_fails_leaves_no_hook(watch: Watch) -> None:
    before = nn.Module.__call__
    with pytest.raises(ValueError, match="no"):
        run(nn.Sequential(Taking(watch, 3), Raising(watch, ValueError("no"))))
    assert nn.Module.__call__ is before


def test_the_cost_of_watching_is_split_between_caller_and_called_layer() -> None:
    seen = Run({"": 10.0, "a": 5.0, "b": 0.1}, {"": 1, "a": 2, "b": 3}, {"": 6})
    assert seen.corrected(0.0) == seen.own_ms
    assert seen.corrected(1.0) == {"": 6.5, "a": 4.0, "b": 0.0}, "no layer takes less than nothing"


def test_costs_of_calls_are_measured_and_small() -> None:
    call, watching = call_costs_ms()
    assert 0 < call < 1 and 0 <= watching < 1 and 0 < operator_cost_ms() < 1
    assert call_costs_ms() == (call, watching), "they are measured once"

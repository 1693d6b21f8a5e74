"""Timing in turn, ratios with intervals, memory, FLOPs and output error. The clock is a made-up
one: no test trusts the machine's.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from itertools import groupby, pairwise
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from paifuser_lab.errors import MeasureError
from paifuser_lab.measure import (
    Candidate,
    Samples,
    flops,
    output_error,
    peak_bytes,
    ratio_of_rounds,
    rounds_in_turn,
    timing,
)
from tests.support.models import Mapped, Small, ids, images


@pytest.fixture(autouse=True)
def whole_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns as long as outside the tests, which make them brief."""
    monkeypatch.setattr(timing, "TURN_S", 0.03)


class Clock:
    """Time that passes only when a candidate is called; the machine gets slower and slower."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns, self.log, self.drift = 0, [], 1.0
        monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: self.now_ns)
        monkeypatch.setattr(timing.time, "process_time_ns", lambda: 2 * self.now_ns)
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now_ns / 1e9)

    def candidate(self, name: str, ms: float, threads: int = 1) -> Candidate:
        def call() -> None:
            self.log.append(
                (name, torch.get_num_threads(), gc.isenabled(), torch.is_grad_enabled())
            )
            self.now_ns += round(ms * 1e6 * self.drift)

        return Candidate(name, call, threads)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def finish(
    candidates: list[Candidate], *, rounds: int = 6, seconds: float = 1e9
) -> dict[str, Samples]:
    return list(rounds_in_turn(candidates, rounds=rounds, seconds=seconds))[-1]


def test_candidates_take_turns_in_every_round_in_shuffled_order(clock: Clock) -> None:
    orders = []
    for _ in rounds_in_turn([clock.candidate(name, 4.0) for name in "abc"], rounds=12, seconds=1e9):
        turns = [entry[0] for entry in clock.log]
        orders.append(
            [name for index, name in enumerate(turns) if index == 0 or turns[index - 1] != name]
        )
        clock.log.clear()
    assert all(sorted(order[-3:]) == ["a", "b", "c"] for order in orders), "each once a round"
    assert len({tuple(order[-3:]) for order in orders}) > 2, "in an order that changes"


def test_a_turn_has_a_call_that_is_not_counted_and_quick_candidates_get_more_calls(
    clock: Clock,
) -> None:
    samples = finish(
        [
            clock.candidate("slow", 40.0),
            clock.candidate("quick", 2.0),
            clock.candidate("instant", 0.01),
        ],
        rounds=3,
    )
    assert [len(samples[name].calls_ms) for name in ("slow", "quick", "instant")] == [
        3,
        45,
        3 * timing.MAX_CALLS_PER_TURN,
    ]
    assert all(len(sample.rounds_ms) == 3 for sample in samples.values())
    calls = {name: [one for one, *_ in clock.log].count(name) for name in ("slow", "quick")}
    assert calls["slow"] == 2 + 3 * 2, "two to warm up, then one uncounted and one counted a round"
    assert calls["quick"] == 4 + 3 * 16, "four to warm up, since more than one fill a turn"


def test_samples_are_what_the_clock_says(clock: Clock) -> None:
    samples = finish([clock.candidate("a", 5.0)])["a"]
    assert (samples.median_ms, samples.best_ms, samples.spread_ms, samples.median_cpu_ms) == (
        5.0,
        5.0,
        (5.0, 5.0),
        10.0,
    )


def test_calls_run_with_their_own_threads_without_gradients_and_without_collection(
    clock: Clock,
) -> None:
    before = torch.get_num_threads()
    finish([clock.candidate("one", 3.0, 1), clock.candidate("three", 3.0, 3)])
    assert {(name, threads) for name, threads, *_ in clock.log} == {("one", 1), ("three", 3)}
    assert not any(grad for *_, grad in clock.log)
    assert not any(collecting for *_, collecting, _ in clock.log[-4:]) and gc.isenabled()
    assert torch.get_num_threads() == before


def test_drift_of_the_machine_cancels_in_the_ratio(clock: Clock) -> None:
    candidates = [clock.candidate("slow", 6.0), clock.candidate("fast", 3.0)]
    for samples in rounds_in_turn(candidates, rounds=20, seconds=1e9):  # noqa: B007 (read after the loop)
        clock.drift *= 1.3
    ratio, (low, high) = ratio_of_rounds(samples["slow"], samples["fast"])
    assert samples["slow"].rounds_ms[-1] > 50 * samples["slow"].rounds_ms[0] / 2
    assert (ratio, low, high) == pytest.approx((2.0, 2.0, 2.0), rel=1e-6)


def test_timing_ends_after_its_seconds_but_not_before_five_rounds(clock: Clock) -> None:
    assert len(finish([clock.candidate("a", 1000.0)], rounds=50, seconds=0.0)["a"].rounds_ms) == 5
    assert len(finish([clock.candidate("b", 1000.0)], rounds=50, seconds=25.0)["b"].rounds_ms) == 13


def test_the_caller_may_stop_and_settings_are_restored(clock: Clock) -> None:
    def failing() -> None:
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        finish([clock.candidate("a", 4.0, 2), Candidate("b", failing, 3)])
    assert torch.get_num_threads() == before and gc.isenabled()


def test_candidates_of_one_name_are_refused(clock: Clock) -> None:
    with pytest.raises(MeasureError, match="same name"):
        finish([clock.candidate("a", 1.0), clock.candidate("a", 1.0)])


def drawn(generator: numpy.random.Generator, ratio: float, count: int) -> tuple[Samples, Samples]:
    """Rounds whose speed drifts for both alike, with noise of each one's own."""
    drift = numpy.exp(numpy.cumsum(generator.normal(0, 0.2, count)))
    noise = generator.lognormal(0, 0.1, (2, count))
    return Samples(list(ratio * drift * noise[0])), Samples(list(drift * noise[1]))


def test_the_interval_holds_a_known_ratio_about_as_often_as_it_claims() -> None:
    generator = numpy.random.default_rng(1)
    held = [
        low <= 1.5 <= high
        for _, (low, high) in (ratio_of_rounds(*drawn(generator, 1.5, 30)) for _ in range(200))
    ]
    assert 0.88 <= numpy.mean(held) <= 0.999


def test_more_rounds_make_a_narrower_interval_around_the_ratio() -> None:
    generator = numpy.random.default_rng(2)
    ratio, few = ratio_of_rounds(*drawn(generator, 3.0, 8))
    closer, many = ratio_of_rounds(*drawn(generator, 3.0, 200))
    assert many[1] - many[0] < few[1] - few[0] and many[0] <= closer <= many[1]
    assert closer == pytest.approx(3.0, rel=0.05) and ratio == pytest.approx(3.0, rel=0.3)
    assert ratio_of_rounds(*drawn(numpy.random.default_rng(3), 2.0, 9)) == ratio_of_rounds(
        *drawn(numpy.random.default_rng(3), 2.0, 9)
    )


def autocorrelated(rng: numpy.random.Generator, correlation: float, count: int) -> Samples:
    """Rounds whose ratio to 1 ms wanders: each one's logarithm is so much like that of the round
    before.
    """
    steps = rng.normal(size=count + 50)
    for index in range(1, len(steps)):
        steps[index] = correlation * steps[index - 1] + (1 - correlation**2) ** 0.5 * steps[index]
    return Samples(list(numpy.exp(0.1 * steps[50:])))


def intervals(correlation: float, count: int, draws: int = 400) -> numpy.ndarray:
    """The intervals of many simulated comparisons whose true ratio is 1."""
    rng = numpy.random.default_rng(7)
    ones = Samples([1.0] * count)
    return numpy.array(
        [ratio_of_rounds(autocorrelated(rng, correlation, count), ones)[1] for _ in range(draws)]
    )


def coverage(bounds: numpy.ndarray) -> float:
    return float(((bounds[:, 0] <= 1) & (bounds[:, 1] >= 1)).mean())


@pytest.mark.parametrize("count", [5, 30])
def test_the_interval_holds_nine_times_in_ten_where_each_round_is_like_the_one_before(
    count: int,
) -> None:
    assert coverage(intervals(0.7, count)) >= 0.9


@pytest.mark.parametrize(("count", "most", "wider"), [(30, 0.99, 1.5), (5, 1.0, 2.8)])
def test_the_interval_of_independent_rounds_is_neither_narrow_nor_needlessly_wide(
    count: int, most: float, wider: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = intervals(0.0, count)
    assert 0.93 <= coverage(bounds) <= most
    monkeypatch.setattr(timing, "_widening", lambda values: 1.0)
    plain = intervals(0.0, count)
    assert numpy.mean(bounds[:, 1] - bounds[:, 0]) < wider * numpy.mean(plain[:, 1] - plain[:, 0])


def test_rounds_that_are_all_alike_have_an_interval_without_width_and_one_round_has_none() -> None:
    assert ratio_of_rounds(Samples([2.0] * 9), Samples([1.0] * 9)) == (2.0, (2.0, 2.0))
    assert ratio_of_rounds(Samples([3.0]), Samples([2.0])) == (1.5, (1.5, 1.5))


def test_rounds_that_one_of_two_lacks_are_left_out() -> None:
    assert ratio_of_rounds(Samples([2.0, 4.0, 99.0]), Samples([1.0, 2.0])) == (2.0, (2.0, 2.0))


KILO = 256 * 4  # bytes of 256 floats

PEAKS: dict[str, tuple[Callable[[], Any], int]] = {
    "nothing": (lambda: None, 0),
    "the output": (lambda: torch.empty(256), KILO),
    "two at once": (lambda: torch.empty(256) + torch.empty(256), 3 * KILO),
    "one after the other": (lambda: [torch.empty(256) is None, torch.empty(256) is None], KILO),
    "a view": (lambda: torch.empty(256).view(16, 16).t(), KILO),
}


@pytest.mark.parametrize(("call", "expected"), PEAKS.values(), ids=PEAKS)
def test_peak_memory_is_what_a_call_holds_at_once(call: Callable[[], Any], expected: int) -> None:
    assert peak_bytes(call, torch.device("cpu")) == expected


def test_memory_that_was_there_before_does_not_count() -> None:
    held = torch.ones(1 << 16)
    assert peak_bytes(lambda: held[:256].clone(), torch.device("cpu")) == KILO


class Twice(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(super().forward(x))


@pytest.mark.parametrize(
    ("module", "inputs", "expected"),
    [
        (nn.Linear(10, 20), torch.ones(3, 10), 2 * 3 * 10 * 20),
        (nn.Conv2d(3, 8, 3, bias=False), torch.ones(2, 3, 6, 6), 2 * 2 * 8 * 4 * 4 * 3 * 9),
        (nn.Conv2d(4, 8, 3, groups=4, bias=False), torch.ones(1, 4, 5, 5), 2 * 8 * 9 * 9),
        (Twice(5, 5), torch.ones(1, 5), 2 * 2 * 25),
        (nn.ReLU(), torch.ones(9), 0),
    ],
)
def test_flops_are_those_counted_by_hand(module: nn.Module, inputs: Tensor, expected: int) -> None:
    assert flops(module.eval(), lambda module: module(inputs)) == expected


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("expected", "actual", "relative", "largest"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0, 0.0),
        ([3.0, 4.0], [3.0, 9.0], 1.0, 5.0),
        ([0.0, 0.0], [0.0, 0.5], 0.5, 0.5),
        ([3.0, 4.0, INF], [3.0, 4.0, INF], 0.0, 0.0),
        ([3.0, 4.0, INF], [3.0, 4.0, 1.0], INF, INF),
        ([3.0, 4.0], [3.0, INF], INF, INF),
        ([3.0, 4.0], [NAN, 4.0], NAN, NAN),
        ([], [], 0.0, 0.0),
    ],
)
def test_output_error_is_relative_to_the_baseline(
    expected: list[float], actual: list[float], relative: float, largest: float
) -> None:
    assert output_error(torch.tensor(expected), torch.tensor(actual)) == pytest.approx(
        (relative, largest), nan_ok=True
    )


def test_output_error_is_over_all_tensors_of_any_type() -> None:
    reference = {"a": torch.tensor([3.0]), "b": (torch.tensor([4]), None, "text")}
    other = {
        "a": torch.tensor([3.0], dtype=torch.bfloat16),
        "b": (torch.tensor([9]), None, "other"),
    }
    assert output_error(reference, other) == (1.0, 5.0)
    assert (
        output_error((torch.ones(1), torch.tensor([NAN])), (torch.ones(1), torch.tensor([NAN])))[1]
        != 0
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (torch.ones(3), r"shape \(3,\) where the baseline's has \(2,\)"),
        ([torch.ones(2)] * 2, "2 tensors where the baseline's has 1"),
    ],
)
def test_outputs_of_another_structure_raise(other: Any, message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        output_error(torch.ones(2), other)


def test_what_is_measured_of_a_model_grows_with_its_batch() -> None:
    small, mapped = Small(), Mapped()
    counts = [flops(small, lambda model, batch=batch: model(images(batch))) for batch in (1, 2, 4)]
    assert (
        all(after == 2 * before for before, after in pairwise(counts))
        and flops(mapped, lambda model: model(ids=ids(1))) > 0
    )


def test_a_turn_waits_until_the_threads_of_the_previous_turn_sleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = iter([0.0, 0.012, 0.012, 0.024, 0.024, 0.024])
    naps: list[float] = []
    monkeypatch.setattr(timing.time, "process_time", lambda: next(busy))
    monkeypatch.setattr(timing.time, "sleep", naps.append)
    timing.wait_until_quiet()
    assert naps == [timing.SLEEP_S] * 3


def test_the_wait_for_a_busy_process_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naps: list[float] = []
    monkeypatch.setattr(timing.time, "process_time", lambda: float(len(naps)))
    monkeypatch.setattr(timing.time, "sleep", naps.append)
    timing.wait_until_quiet()
    assert len(naps) == timing.MAX_SLEEPS


class Attending(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize(
    ("module", "inputs", "expected"),
    [
        (Attending(), torch.ones(2, 3, 5, 8), 2 * 2 * 2 * 3 * 5 * 5 * 8),
        (
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
            torch.ones(2, 5, 8),
            2 * 2 * (5 * (4 * 64 + 2 * 128) + 2 * 5 * 5 * 8),
        ),
    ],
    ids=["attention", "fused encoder layer"],
)
def test_flops_are_those_of_fused_operators_too(
    module: nn.Module, inputs: Tensor, expected: int
) -> None:
    assert flops(module.eval(), lambda module: module(inputs)) == expected


def test_each_round_is_a_turn_and_waiting_for_it_takes_none_of_the_seconds(clock):
    class Turn:
        def __enter__(self):
            clock.now_ns += 10_000_000_000  # another thread's

        def __exit__(self, *error):
            clock.log.append("given up")

    both = [clock.candidate("a", 300.0), clock.candidate("b", 200.0)]
    done = list(rounds_in_turn(both, rounds=30, seconds=5.5, turn=Turn))
    # two calls a turn, the first a warm-up: a second a round
    assert len(done) == 6
    turns = [word for word, _ in groupby(clock.log, lambda one: one == "given up")]
    assert turns == [False, True] * 7, "one for the warm-up, one for each round"

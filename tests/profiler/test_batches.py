"""Which batches are tried and chosen, and that memory is never asked for past the limit."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

import paifuser_lab as lab
from paifuser_lab import arguments
from paifuser_lab.errors import MeasureError, PaifuserError
from paifuser_lab.measure import Samples
from paifuser_lab.profiler import batch_plan as plan
from paifuser_lab.profiler import batch_size, batches
from paifuser_lab.records import BatchRow, BatchSweep, readable_bytes
from paifuser_lab.workload import Inputs
from paifuser_lab.workload.batching import first_of, repeated
from tests.support.models import Small, images, unchecked


@pytest.fixture
def pace(monkeypatch):
    """Latency by a formula instead of a clock: 4 ms a call and 1 ms an example by default."""
    turns: list[tuple[int, ...]] = []
    formula = {"ms": lambda batch: 4.0 + batch, "now_s": 0.0, "calls_a_round": 0}

    def rounds(candidates, *, rounds, seconds):
        samples = {candidate.name: Samples() for candidate in candidates}
        turns.append(tuple(int(candidate.name) for candidate in candidates))
        for _ in range(min(rounds, 3)):
            for candidate in candidates:
                with torch.no_grad():
                    candidate.call()
                taken = formula["ms"](int(candidate.name))
                samples[candidate.name].rounds_ms.append(taken)
                formula["now_s"] += formula["calls_a_round"] * taken / 1e3
            yield samples

    monkeypatch.setattr(batches, "rounds_in_turn", rounds)
    clock = SimpleNamespace(perf_counter=lambda: formula["now_s"])
    monkeypatch.setattr(batches, "time", clock)
    formula["turns"] = turns
    return formula


class Fixed(nn.Module):
    """Eight examples or nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(8, 4) * 2


class Squeezing(nn.Module):
    """Loses the batch dimension if the batch is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.line(x).squeeze()
        return hidden.sum(1)


class Folding(nn.Module):
    """Answers for eight examples at the most, without a word."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(min(8, len(x)), -1).sum(1)


class Square(nn.Module):
    """Compares every example with every other: memory grows with the square of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.t()).softmax(1)


class Exhausted(nn.Module):
    """Runs out of memory above a batch of 8, with the words of some library."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 8:
            raise self.error
        return x * 2


def workload(model: nn.Module | None = None, inputs: object = None) -> lab.Workload:
    return lab.Workload(
        model or nn.Linear(4, 4), torch.randn(2, 4) if inputs is None else inputs, name="small"
    )


# What is tried and chosen: arithmetic.

CURVES = st.dictionaries(st.integers(1, 4096), st.floats(1e-3, 1e9), min_size=1, max_size=12)


@given(CURVES, st.floats(0.01, 1.0))
def test_the_knee_is_the_smallest_batch_that_reaches_the_plateau(curve, plateau):
    knee = plan.knee_of(curve, plateau)
    enough = plateau * max(curve.values())
    assert curve[knee] >= enough
    assert all(throughput < enough for batch, throughput in curve.items() if batch < knee)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ({1: 10.0}, False),
        ({1: 10.0, 2: 10.0}, False),
        ({1: 10.0, 2: 10.0, 4: 10.2}, True),
        ({1: 10.0, 2: 9.0, 4: 10.5}, False),
        ({1: 10.0, 2: 20.0, 4: 20.1, 8: 20.2}, True),
        ({1: 10.0, 2: 8.0, 4: 5.0}, True),
    ],
)
def test_a_plateau_is_two_doublings_that_brought_hardly_anything(curve, expected):
    assert plan.has_levelled_off(curve) is expected


def test_a_batch_of_one_that_needs_more_than_two_does_not_spoil_the_prediction():
    assert plan.predicted_bytes({0: 60, 1: 870, 2: 645}, 4) == 645 + 585
    assert plan.predicted_bytes({0: 60, 1: 600, 2: 645}, 4) == 645 + 585
    assert plan.predicted_bytes({0: 60, 1: 870, 2: 645, 4: 1160}, 8) >= 2190


def test_sizes_are_decimal_unless_they_say_otherwise():
    assert [arguments.bytes_of(size) for size in ("2 GB", "1.5 GiB", "300", 7)] == [
        2 * 10**9,
        3 * 2**29,
        300,
        7,
    ]


@pytest.mark.parametrize(
    "bad",
    ["2 GBs", "", "GB", "-1 GB", "1e3 MB", "2 GB 1", "nan", "1٣ MB", None, 2.5, True, b"2 GB"],
)
def test_an_invalid_size_is_quoted(bad):
    with pytest.raises(MeasureError, match=re.escape(repr(bad))):
        arguments.bytes_of(bad)


# Batches made from the example.


def test_batches_repeat_the_example_and_leave_other_tensors_alone():
    table, flag = torch.randn(5, 2), torch.tensor(3)
    inputs = Inputs(
        (torch.arange(3).unsqueeze(1), [table, 7]), {"flag": flag, "mask": torch.tensor([1, 0, 1])}
    )
    larger = repeated(inputs, 3, 7)
    assert larger.args[0].flatten().tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert larger.kwargs["mask"].tolist() == [1, 0, 1, 1, 0, 1, 1]
    assert (
        torch.equal(larger.args[1][0], table)
        and larger.args[1][1] == 7
        and torch.equal(larger.kwargs["flag"], flag)
    )
    assert repeated(inputs, 3, 2).args[0].flatten().tolist() == [0, 1]


def test_batches_keep_channels_last_and_share_no_memory_with_the_example():
    example = images(3, 8).to(memory_format=torch.channels_last)
    larger = repeated(Inputs((example,)), 3, 8)
    assert larger.args[0].is_contiguous(memory_format=torch.channels_last)
    assert repeated(Inputs((example,)), 3, 3).args[0].data_ptr() != example.data_ptr()


def test_a_smaller_batch_is_a_view_of_a_larger_one_even_where_a_table_is_as_long():
    example = Inputs((torch.randn(2, 4), torch.randn(8, 3)))
    larger = repeated(example, 2, 8)
    smaller = first_of(larger, example, 2, 4)
    assert [tuple(tensor.shape) for tensor in smaller.tensors] == [(4, 4), (8, 3)]
    assert smaller.args[0].data_ptr() == larger.args[0].data_ptr()


# Sweeps.


def test_the_knee_of_a_known_curve_is_found_between_the_doublings(pace):
    sweep = batch_size(workload(), plateau=0.85)
    assert [row.batch for row in sweep.ran][:5] == [1, 2, 4, 8, 16]
    assert all(
        row.throughput_per_s == pytest.approx(row.batch / (4 + row.batch) * 1e3)
        for row in sweep.ran
    )
    assert 20 <= sweep.knee <= 26, "b / (4 + b) reaches 85% at 23"
    assert (
        sweep.best.batch >= 64
        and sweep.best.is_timed_in_turn
        and sweep[sweep.knee].is_timed_in_turn
    )
    assert "two more doublings brought less than 3% more" in sweep.reason
    assert pace["turns"][-1] == tuple(row.batch for row in sweep.rows if row.is_timed_in_turn)


def test_a_variant_is_timed_with_its_own_threads(pace, monkeypatch):
    monkeypatch.setattr(batches, "thread_choices", lambda: (1, 3))
    recipe = lab.Recipe([{"backend": {"name": "eager", "threads": 1}}])
    variant = lab.apply(workload(Small(), images()), recipe)
    assert batch_size(variant, most=2).threads == 1


def test_batches_below_the_knee_miss_the_plateau_when_timed_in_turn(pace):
    lucky = iter(
        [0.5] * 3
    )  # 32 looked twice as good while it was timed alone, so that everything below it looked poor
    pace["ms"] = lambda batch: (
        (next(lucky, 1.0) if batch == 32 else 1.0) * batch / 1.05 ** math.log2(batch)
    )
    sweep = batch_size(workload(), most=32, plateau=0.75)
    assert sweep.knee == 1 and "78%" in sweep.reason, "1 / 1.05⁵, with the best as it is in turn"
    assert len([turn for turn in pace["turns"] if len(turn) > 1]) > 1


def test_the_sweep_stops_at_the_most(pace):
    pace["ms"] = lambda batch: 1.0
    sweep = batch_size(workload(), most=12)
    assert max(row.batch for row in sweep.rows) == 12 == sweep.best.batch
    assert "no batch above 12" in sweep.reason


@pytest.mark.parametrize(
    ("seconds", "largest", "is_in_turn"),
    [(30.0, 32, True), (2.0, 1, False)],
)
def test_the_sweep_stops_when_time_is_up(seconds, largest, is_in_turn, pace):
    pace["ms"] = lambda batch: 100.0 + 10 * batch
    pace["calls_a_round"] = 4
    sweep = batch_size(workload(), seconds=seconds)
    assert max(row.batch for row in sweep.ran) == largest and "no time" in sweep.reason
    assert any(row.is_timed_in_turn for row in sweep.rows) is is_in_turn
    assert pace["now_s"] < 1.5 * seconds


@pytest.mark.parametrize("model", [Small(), Square()], ids=["linear", "square"])
@pytest.mark.parametrize("share", [1.5, 11])
def test_no_batch_that_ran_exceeds_the_limit(model, share, pace):
    work = workload(model, images() if isinstance(model, Small) else torch.randn(2, 16))
    pace["ms"] = lambda batch: 1.0
    first = batch_size(work, most=1)[1].peak_bytes
    limit = int(share * first)
    sweep = batch_size(work, limit)
    assert sweep.ran and all(row.peak_bytes <= limit for row in sweep.ran)
    refused = [row for row in sweep.rows if row.failure]
    assert refused and all(readable_bytes(limit) in row.failure for row in refused)
    assert "would pass the memory limit" in sweep.reason
    assert all(row.failure.startswith("not tried") for row in refused if row.batch > 2)


def test_a_batch_predicted_beyond_the_limit_is_not_called(pace):
    called = []

    class Watched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not isinstance(x, FakeTensor):
                called.append(len(x))
            return x.repeat(1, 100)

    pace["ms"] = lambda batch: 1.0
    limit = 100_000
    sweep = batch_size(workload(Watched()), limit)
    per_example = 101 * 4 * 4
    assert max(called) * per_example <= limit < (max(called) * 1.3 + 1) * per_example, (
        "and it came near to the limit"
    )
    assert {row.batch for row in sweep.rows if row.failure}.isdisjoint(called)


def test_memory_counts_weights_inputs_and_what_a_call_needs(pace):
    sweep = batch_size(workload(nn.Linear(4, 4)), most=4)
    assert [row.peak_bytes for row in sweep.rows if row.batch in (1, 4)] == [
        80 + 16 + 16,
        80 + 64 + 64,
    ]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        RuntimeError("[enforce fail] not enough memory: you tried"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_running_out_of_memory_is_a_row_and_the_sweep_goes_on_below_it(error, pace):
    pace["ms"] = lambda batch: 1.0
    sweep = batch_size(workload(Exhausted(error)))
    assert sweep[16].failure.startswith("ran out of memory")
    assert sweep[8].failure is None and sweep.best.batch == 8
    assert any(8 < row.batch < 16 for row in sweep.rows), "below it, it was tried"
    assert not any(row.batch > 16 for row in sweep.rows)
    assert "memory does not hold larger batches" in sweep.reason


def test_a_model_too_large_for_a_single_example_raises():
    class Never(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise MemoryError("no room")

    with pytest.raises(
        MeasureError, match="with a batch of 1 ran out of memory: no room; free some"
    ):
        batch_size(workload(Never()))


def test_a_batch_fixed_in_the_model_is_reported_and_keeps_its_row(pace):
    sweep = batch_size(workload(Fixed(), torch.randn(8, 4)))
    assert [row.batch for row in sweep.ran] == [8] and sweep.knee == 8
    assert (
        "fails at the model itself (Fixed)" in sweep[4].failure
        and "invalid for input of size" in sweep[16].failure
    )
    assert "the model fails at a batch of 16" in sweep.reason


def test_a_model_that_cannot_take_one_example_is_swept_from_two(pace):
    sweep = batch_size(workload(Squeezing()), most=8)
    assert sweep[1].failure is not None and sweep[1].throughput_per_s is None
    assert [row.batch for row in sweep.ran][:3] == [2, 4, 6] or [row.batch for row in sweep.ran][
        :2
    ] == [2, 4]


def test_an_output_for_fewer_examples_than_the_input_is_a_failure(pace):
    pace["ms"] = lambda batch: 1.0
    sweep = batch_size(workload(Folding(), torch.randn(2, 4)))
    assert "the output is for 8 examples, the input has 16" in sweep[16].failure
    assert sweep.best.batch == 8


def test_an_output_without_a_batch_dimension_is_valid(pace):
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(0, keepdim=True)

    assert not [row for row in batch_size(workload(Mean()), most=32).rows if row.failure]


def test_interruption_keeps_what_was_measured_and_the_model_as_it_was(pace):
    model = Small().train()
    calls = []

    def ms(batch):
        calls.append(batch)
        if batch == 4:
            raise KeyboardInterrupt
        return 1.0

    pace["ms"] = ms
    sweep = batch_size(workload(model, images()))
    assert sweep.is_interrupted and [row.batch for row in sweep.rows] == [1, 2] and sweep.knee == 2
    assert "stopped early" in sweep.reason and "stopped early" in str(sweep)
    assert model.training


def test_interruption_before_anything_was_measured_is_an_interruption(pace):
    def ms(batch):
        raise KeyboardInterrupt

    pace["ms"] = ms
    with pytest.raises(KeyboardInterrupt):
        batch_size(workload())


def test_should_stop_keeps_the_rows_so_far(pace):
    sweep = batch_size(workload(), should_stop=lambda: True)
    assert sweep.is_interrupted and [row.batch for row in sweep.rows] == [1] and sweep.knee == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_limit": 10}, "80 B for its weights alone and the memory limit is 10 B"),
        (
            {"memory_limit": 100},
            "with a batch of 1 would need 112 B, more than the limit of 100 B; raise memory_limit",
        ),
        ({"memory_limit": "2 GBs"}, "'2 GBs' cannot be read"),
        ({"plateau": 0.0}, "plateau=0.0 is no share"),
        ({"plateau": 1.01}, "plateau=1.01"),
        ({"plateau": float("nan")}, "plateau=nan"),
        ({"seconds": 0}, "seconds=0 leaves no time"),
    ],
)
def test_invalid_options_are_refused_in_a_sentence(options, message, pace):
    with pytest.raises(MeasureError, match=re.escape(message)) as caught:
        batch_size(workload(), **options)
    assert not pace["turns"] and "\n" not in str(caught.value)


def test_inputs_without_a_batch_are_refused():
    class Constant(nn.Module):
        def forward(self, scale: float) -> float:
            return scale

    for inputs in ((2.0,), (torch.tensor(2.0),)):
        with pytest.raises(MeasureError, match="takes no tensor with a batch dimension"):
            batch_size(workload(Constant(), inputs))


def test_a_model_that_fails_on_its_own_example_raises_with_the_layer(pace):
    with pytest.raises(PaifuserError, match=r"fails on its example inputs at .*Linear"):
        batch_size(unchecked(nn.Sequential(nn.Linear(5, 4)), torch.randn(2, 4)))


def test_a_most_below_a_fixed_batch_raises_with_the_remedy(pace):
    with pytest.raises(MeasureError, match="so give most=8 or more"):
        batch_size(workload(Fixed(), torch.randn(8, 4)), most=4)


def test_a_sweep_on_the_real_clock_gives_a_whole_record():
    sweep = batch_size(workload(Small(), images()), most=4, seconds=120.0, threads=1)
    assert sweep.threads == 1 and {row.batch for row in sweep.ran} >= {1, 2, 4}
    for row in sweep.ran:
        low, high = row.spread_ms
        assert 0 < low <= row.latency_ms <= high and row.peak_bytes > 0 and row.utilisation is None
        assert row.throughput_per_s == pytest.approx(row.batch / row.latency_ms * 1e3)
    assert sweep.knee in {row.batch for row in sweep.ran}


# The record and its figure.


def timed(batch: int, latency_ms: float) -> BatchRow:
    return BatchRow(
        batch=batch,
        latency_ms=latency_ms,
        spread_ms=(latency_ms, latency_ms),
        throughput_per_s=batch / latency_ms * 1e3,
        peak_bytes=batch * 1_000_000,
        is_timed_in_turn=True,
    )


SWEEP = BatchSweep(
    workload="net",
    machine="a machine",
    threads=2,
    memory_limit_bytes=5_000_000,
    plateau=0.85,
    rows=(timed(1, 2.0), timed(2, 2.1), timed(4, 4.0), BatchRow(batch=8, failure="not tried")),
    knee=2,
    reason="A batch of 2 reaches 95% of the best throughput.",
)


def test_the_figure_marks_the_knee_and_the_limit():
    drawing = lab.figure(SWEEP)
    words = [text.get_text() for axes in drawing.axes for text in axes.texts]
    assert {"batch 2 · 952 a second", "85% of the best", "limit 5 MB"} <= set(words)

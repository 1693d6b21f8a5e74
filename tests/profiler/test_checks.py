"""The performance checklist on loops that pass, that fail, and that cannot tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import optimizer as optim
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

from paifuser_lab import Recipe, Workload, apply
from paifuser_lab.errors import ForwardError, MeasureError, WorkloadError
from paifuser_lab.machine import threads
from paifuser_lab.measure import Candidate, Samples, timing
from paifuser_lab.profiler import checklist
from paifuser_lab.profiler.checks import CHECKS
from paifuser_lab.profiler.checks import trace as spans
from paifuser_lab.profiler.checks.findings import (
    AS_IT_IS,
    CHANNELS_LAST,
    Findings,
    Subject,
    line_of,
    measure_subject,
    subject_of,
)
from paifuser_lab.profiler.checks.trace import BATCH, LOOP, MODEL, WATCHING, Trace
from paifuser_lab.profiler.checks.watch import GradientWatch, LoopRun, Memory, watch
from paifuser_lab.records import Check
from tests.support.models import Counting, Scribbling, Small, images, unchecked

QUICK = 0.0  # five rounds, and no more


class Sleepy(Dataset[tuple[Tensor, Tensor]]):
    """Four examples that take their time, far more than a tiny model's call."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(0.05)
        return torch.full((4,), float(index)), torch.ones(1)


class Slow(nn.Module):
    """A model next to which everything else in a tiny loop takes no time."""

    def __init__(self, seconds: float = 0.25) -> None:
        super().__init__()
        self.line, self.seconds = nn.Linear(4, 1), seconds

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.seconds)
        return self.line(x)


def pairs(count: int = 4) -> TensorDataset:
    return TensorDataset(torch.randn(count, 4), torch.randn(count, 1))


def training(
    model: nn.Module, data: Dataset[Any] | None = None, **change: Callable[..., Any]
) -> Callable[[], None]:
    """A plain loop; `after_step` and `on_loss` change what it does."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loop() -> None:
        for x, y in DataLoader(data or pairs(), batch_size=1):
            optimizer.zero_grad()
            loss = change.get("on_loss", lambda value: value)((model(x) - y).square().mean())
            loss.backward()
            optimizer.step()
            change.get("after_step", lambda value: None)(loss)

    return loop


def outcome_of(name: str, loop: Any, **options: Any) -> tuple[str, Check]:
    line = checklist(loop, seconds=QUICK, **options)[name]
    return line.outcome, line


def line(name: str, measured: Findings) -> Check:
    return line_of(name, CHECKS[name](measured))


@pytest.fixture
def traceless() -> Iterator[None]:
    """Whatever happens inside, nothing that was put in place to watch it may stay."""

    def state() -> tuple[Any, ...]:
        hooks = len(optim._global_optimizer_pre_hooks)
        flags = torch.is_grad_enabled(), torch.get_num_threads()
        return nn.Module.__call__, hooks, torch.autograd.profiler._is_profiler_enabled, flags

    before, threads = state(), set(threading.enumerate())
    yield
    assert state() == before and not set(threading.enumerate()) - threads


# What each check says of a loop or a workload: its outcome, and a part of its figure or remedy.


def line_layer() -> nn.Linear:
    return nn.Linear(4, 1)


def on_loss(change: Callable[[Tensor], Tensor]) -> Callable[[], None]:
    return training(line_layer(), on_loss=change)


def read_often(loss: Tensor) -> None:
    for _ in range(5):
        loss.item()
    (torch.ones(3) > 0).nonzero()


def dead_relu() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    with torch.no_grad():
        model[0].bias.fill_(-1e6)
    return model


def called(*layers: nn.Module, train: bool = False) -> Callable[[], Tensor]:
    model = nn.Sequential(*layers).train(train)
    return lambda: model(torch.ones(3, 4))


def one_thread() -> Any:
    recipe = Recipe([{"backend": {"name": "eager", "threads": 1}}])
    return apply(Workload(Small(), images()), recipe)


def no_optimizer() -> Any:
    return lambda: line_layer()(torch.ones(4)).sum().backward()


NOT = "not measurable"
OUTCOMES: list[tuple[str, Callable[[], Any], str, str]] = [
    ("data loading", lambda: training(line_layer(), Sleepy()), "failed", "num_workers"),
    ("data loading", lambda: training(Slow()), "passed", ""),
    ("data loading", lambda: called(nn.Linear(4, 1)), NOT, "no DataLoader ran"),
    (
        "beside the model",
        lambda: training(line_layer(), after_step=lambda loss: time.sleep(0.05)),
        "failed",
        "in plain Python",
    ),
    ("beside the model", lambda: training(line_layer(), Sleepy()), "failed", "for data (see data"),
    ("beside the model", lambda: training(Slow()), "passed", ""),
    ("beside the model", lambda: lambda: time.sleep(0.001), NOT, "no model"),
    (
        "host synchronisations",
        lambda: training(line_layer(), after_step=read_often),
        NOT,
        "6.25 a step",
    ),
    ("gradient synchronisation", lambda: training(line_layer()), NOT, "one process"),
    ("finite gradients", lambda: on_loss(lambda x: x * float("nan")), "failed", "weight, bias"),
    ("finite gradients", no_optimizer, NOT, ""),
    ("live gradients", lambda: training(dead_relu()), "failed", "3 of 4 parameters: 0.weight, 0."),
    ("live gradients", no_optimizer, NOT, ""),
    ("gradients in fp16", lambda: on_loss(lambda x: x * 1e-9), "failed", "100% would vanish"),
    ("gradients in fp16", lambda: on_loss(lambda x: x * 1e9), "failed", "100% would overflow"),
    ("gradients in fp16", no_optimizer, NOT, ""),
    ("eval mode", lambda: called(nn.Dropout(0.5), train=True), "failed", "1 layer"),
    ("eval mode", lambda: called(nn.BatchNorm1d(4), train=True), "failed", "1 layer"),
    ("eval mode", lambda: called(nn.Dropout(0.5)), "passed", ""),
    ("eval mode", lambda: called(nn.Dropout(0.0), train=True), "passed", ""),
    ("eval mode", lambda: training(nn.Sequential(nn.Linear(4, 1), nn.Dropout())), NOT, ""),
    ("gradients in inference", lambda: called(nn.Linear(4, 1)), "failed", "1 of 1 call"),
    ("gradients in inference", lambda: torch.no_grad()(called(nn.Linear(4, 1))), "passed", ""),
    ("gradients in inference", lambda: training(line_layer()), NOT, "the loop trains"),
    ("gradients in inference", lambda: Workload(line_layer(), torch.ones(4)), NOT, ""),
    (
        "memory layout",
        lambda: Workload(Small().to(memory_format=torch.channels_last), images()),
        "passed",
        "",
    ),
    ("memory layout", lambda: Workload(line_layer(), torch.ones(2, 4)), NOT, ""),
    ("memory layout", lambda: training(line_layer()), NOT, ""),
    ("threads", one_thread, NOT, "fixed the number of threads"),
]


@pytest.mark.parametrize(("name", "make", "outcome", "words"), OUTCOMES)
def test_a_check_tells_what_a_loop_does(
    name: str, make: Callable[[], Any], outcome: str, words: str
) -> None:
    seen = checklist(make(), seconds=QUICK)[name]
    assert seen.outcome == outcome, seen
    assert words in f"{seen.figure} {seen.remedy}"
    assert (seen.remedy is not None) is (outcome == "failed")


def test_the_wait_for_worker_processes_to_start_is_no_wait_for_data() -> None:
    ms = 1_000_000
    name = f"{BATCH}_MultiProcessingDataLoaderIter.__next__"
    waits = [(0, 500 * ms), (600 * ms, 605 * ms), (700 * ms, 705 * ms)]
    measured = findings(
        Trace((0, 1000 * ms), {LOOP: [(0, 1000 * ms)], name: waits, MODEL: [(505 * ms, 1000 * ms)]})
    )
    lines = {name: line(name, measured) for name in ("data loading", "beside the model")}
    assert lines["data loading"].value == pytest.approx(10 / 500)
    assert lines["beside the model"].value == pytest.approx(15 / 500)


def test_a_loop_of_seconds_is_told_without_an_exponent() -> None:
    whole, model = (0, 12_300_000_000), (0, 10_000_000_000)
    measured = findings(Trace(whole, {LOOP: [whole], MODEL: [model]}))
    figure = line("beside the model", measured).figure
    assert figure.startswith("12300 ms end to end, 10000 ms of it in models, backward passes")


def test_a_compiled_function_without_a_module_is_model_time_too() -> None:
    compiled = torch.compile(lambda x: (x @ x).sum(), backend="eager")
    compiled(torch.ones(8, 8))
    line = checklist(lambda: compiled(torch.ones(8, 8)), seconds=QUICK)["beside the model"]
    assert line.value is not None and 0 < line.value < 1


# Synchronisation


def test_reads_are_counted_a_step_without_those_of_the_loader_the_optimizer_and_our_own() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(
        model.parameters()
    )  # reads its count of steps, which lies on the host

    def loop() -> None:
        for x, y in DataLoader(pairs(), batch_size=1, shuffle=True):  # the sampler reads a seed
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()

    outcome, line = outcome_of("host synchronisations", loop)
    assert outcome == "passed" and line.value == pytest.approx(1.25), (
        "one a step, and one of the loader's beginning"
    )


@pytest.mark.parametrize(("waits", "outcome"), [(8, "failed"), (2, "passed")])
def test_waits_of_the_host_are_checked_on_a_gpu(waits: int, outcome: str) -> None:
    spans_of_waits = [(10 * index, 10 * index + 5) for index in range(waits)]
    trace = Trace(
        (0, 1000),
        {LOOP: [(0, 1000)], "cudaStreamSynchronize": spans_of_waits},
        {"gemm": [(0, 100)]},
    )
    seen = line("host synchronisations", findings(trace, optimizer_steps=2))
    assert (seen.outcome, seen.value) == (outcome, waits / 2)


def test_waiting_for_a_late_process_fails_gradient_synchronisation() -> None:
    with two_processes(late_s=0.05) as group:
        outcome, line = outcome_of(
            "gradient synchronisation",
            lambda: [group.allreduce([torch.ones(3)]).wait() for _ in range(3)],
        )
    assert outcome == "failed", line
    assert line.remedy is not None and "no_sync" in line.remedy


def test_a_short_gradient_exchange_passes() -> None:
    slow = Slow(0.2)
    with two_processes(late_s=0.0) as group:
        outcome, _ = outcome_of(
            "gradient synchronisation", lambda: [slow(group_sum(group)) for _ in range(3)]
        )
    assert outcome == "passed"


def group_sum(group: Any) -> Tensor:
    value = torch.ones(4)
    group.allreduce([value]).wait()
    return value


@contextmanager
def two_processes(late_s: float) -> Iterator[Any]:
    """Two ranks of gloo, the other one in a thread, which comes late to each of three exchanges."""
    store = dist.HashStore()

    def other() -> None:
        group = dist.ProcessGroupGloo(store, 1, 2, timedelta(seconds=30))
        for _ in range(3):
            time.sleep(late_s)
            group.allreduce([torch.ones(3 if late_s else 4)]).wait()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        yield dist.ProcessGroupGloo(store, 0, 2, timedelta(seconds=30))
    finally:
        thread.join()


# Gradients


def test_gradients_of_a_plain_loop_pass_all_three_lines() -> None:
    lines = checklist(training(nn.Linear(4, 1)), seconds=QUICK)
    assert [
        lines[name].outcome for name in ("finite gradients", "live gradients", "gradients in fp16")
    ] == ["passed"] * 3
    assert lines["finite gradients"].figure == "all 20 gradient values of 4 steps are finite"


def test_gradients_of_two_models_are_counted_apart_under_one_name() -> None:
    models = [nn.Linear(4, 1), nn.Linear(3, 1)]
    optimizer = torch.optim.SGD([weight for model in models for weight in model.parameters()])
    sum(model(torch.ones(1, model.in_features)) for model in models).sum().backward()
    watched = GradientWatch()
    watched.count(optimizer)
    counts = {name: found.values for name, found in watched.by_name(models).items()}
    assert counts == {
        "weight of model 1, Linear": 4,
        "bias of model 1, Linear": 1,
        "weight of model 2, Linear": 3,
        "bias of model 2, Linear": 1,
    }
    assert {"weight", "bias"} < set(watched.by_name(models[:1])), "one model's need no number"


# Modes


def test_a_workload_in_training_mode_fails_and_stays_in_it() -> None:
    work = Workload(Small().train(), images())
    outcome, line = outcome_of("eval mode", work)
    assert (
        outcome == "failed" and "norm (BatchNorm2d)" in line.figure and "puts back" in line.figure
    )
    assert all(module.training for module in work.model.modules())


# Numbers, accuracy and memory


def share_of_ones(predict: Callable[..., Any], batches: Any) -> float:
    return float(numpy.mean([float(predict(x).mean()) for x, _ in batches]))


def metric_work() -> Workload:
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.fill_(0.9)
    return Workload(
        model, torch.ones(2, 4), test=[(torch.ones(2, 4), torch.ones(2, 1))], metric=share_of_ones
    )


@pytest.mark.parametrize(
    ("baseline", "outcome"), [(0.9, "passed"), (0.905, "passed"), (0.5, "passed"), (0.95, "failed")]
)
def test_accuracy_is_compared_with_the_baseline_as_a_share_of_it(
    baseline: float, outcome: str
) -> None:
    result, line = outcome_of("accuracy", metric_work(), baseline_metric=baseline)
    assert result == outcome and line.value == pytest.approx((baseline - 0.9) / baseline, abs=1e-6)


def test_a_variant_is_compared_with_what_it_was_made_from() -> None:
    work = metric_work()
    variant = apply(work, Recipe([{"precision": {"default": "bf16"}}]))
    lines = checklist(variant, seconds=QUICK)
    assert lines["accuracy"].outcome == "passed" and "against 0.9000" in lines["accuracy"].figure
    with torch.no_grad():
        variant.module.bias.fill_(0.5)
    assert checklist(variant, seconds=QUICK)["accuracy"].outcome == "failed"


def test_a_metric_that_became_several_times_worse_is_said_in_whole_percents() -> None:
    def error(predict: Callable[..., Any], batches: Any) -> float:
        return 0.0

    error.smaller_is_better = True
    work = metric_work()
    work.metric = error
    measured = findings(Trace((0, 10), {LOOP: [(0, 10)]}), work)
    measured.metrics = (10.0, 35.0)
    judged = line("accuracy", measured)
    assert judged.outcome == "failed" and judged.figure.endswith(": 250% more")


@pytest.mark.parametrize(
    ("memory", "outcome"),
    [
        (Memory(600_000_000, 1_000_000_000, 300_000_000), "failed"),
        (Memory(900_000_000, 1_000_000_000, 50_000_000), "passed"),
        (Memory(1_000_000, 20_000_000, 15_000_000), "passed"),
    ],
)
def test_split_memory_is_checked_on_a_gpu(memory: Memory, outcome: str) -> None:
    measured = findings(Trace((0, 10), {LOOP: [(0, 10)]}, {"gemm": [(0, 5)]}), memory=memory)
    assert line("memory fragmentation", measured).outcome == outcome


# Settings, timed


class Minding(nn.Module):
    """Its call counts as longer with more threads, or where its weight is not channels-last."""

    last_ms = 0.0

    def __init__(self, *, threads: bool = False, layout: bool = False) -> None:
        super().__init__()
        self.conv, self.minds_threads, self.minds_layout = nn.Conv2d(3, 4, 3), threads, layout

    def forward(self, x: Tensor) -> Tensor:
        is_turned = self.conv.weight.is_contiguous(memory_format=torch.channels_last)
        Minding.last_ms = 10.0 * (torch.get_num_threads() if self.minds_threads else 1)
        Minding.last_ms += 20.0 if self.minds_layout and not is_turned else 0.0
        return self.conv(x)


@pytest.fixture
def counted_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call takes as long as the model above says."""

    def timed(candidate: Candidate) -> tuple[float, float]:
        candidate.call()
        return Minding.last_ms, Minding.last_ms

    monkeypatch.setattr(timing, "_timed", timed)


def test_fewer_threads_that_are_faster_fail_and_the_recipe_step_is_given(
    monkeypatch: pytest.MonkeyPatch, counted_ms: None
) -> None:
    monkeypatch.setattr("paifuser_lab.profiler.checks.findings.thread_choices", lambda: (1, 3))
    with threads(3):
        lines = checklist(Workload(Minding(threads=True), images(1)), seconds=QUICK)
        assert torch.get_num_threads() == 3
    assert lines["threads"].outcome == "failed"
    assert lines["threads"].step == {"backend": {"name": "eager", "threads": 1}}
    assert Recipe(list(lines.steps)).steps, "what it gives is a recipe"


def test_a_variant_is_timed_with_the_threads_that_its_backend_fixed(counted_ms: None) -> None:
    recipe = Recipe([{"backend": {"name": "eager", "threads": 1}}])
    variant = apply(Workload(Minding(threads=True), images(1)), recipe)
    with threads(3):
        measured = measure_subject(subject_of(variant, None), seconds=QUICK)
        assert torch.get_num_threads() == 3
    assert {ms for samples in measured.timed.values() for ms in samples.rounds_ms} == {10.0}
    assert "fixed the number of threads, 1" in measured.reasons["threads"]


def test_channels_last_that_is_faster_fails_and_the_model_itself_is_left_as_it_is(
    counted_ms: None,
) -> None:
    work = Workload(Minding(layout=True), images(1))
    line = checklist(work, seconds=QUICK)["memory layout"]
    assert (
        line.outcome == "failed"
        and line.step == {"layout": {}}
        and work.model.conv.weight.is_contiguous()
    )


@pytest.mark.parametrize(
    ("other_ms", "outcome"),
    [
        ([5.0] * 6, "failed"),
        ([9.8] * 6, "passed"),
        ([15.0] * 6, "passed"),
        ([5.0, 5.0, 5.0, 5.0, 50.0, 50.0, 50.0], "not measurable"),
    ],
)
def test_timings_are_compared_by_their_ratio_and_its_interval(
    other_ms: list[float], outcome: str
) -> None:
    def timed(ms: list[float]) -> Samples:
        return Samples(rounds_ms=ms, calls_ms=ms, cpu_ms=ms)

    measured = findings(Trace((0, 10), {LOOP: [(0, 10)]}), work=Workload(Small(), images()))
    measured.timed = {
        AS_IT_IS: timed([10.0] * 7),
        "7": timed(other_ms),
        CHANNELS_LAST: timed(other_ms),
    }
    assert line("threads", measured).outcome == outcome
    assert line("memory layout", measured).outcome == outcome


def findings(trace: Trace, work: Workload | None = None, **seen: Any) -> Findings:
    return Findings(Subject("made up", lambda: None, work), LoopRun(trace, **seen))


# Nothing is left behind, whatever happens


@pytest.mark.parametrize(
    "failure", [ValueError("theirs"), SystemExit(3), RuntimeError("CUDA error")]
)
def test_what_a_loop_raises_is_raised_on_unchanged(failure: BaseException, traceless: None) -> None:
    def fail(loss: Tensor) -> None:
        raise failure

    with pytest.raises(type(failure)) as caught:
        checklist(training(nn.Linear(4, 1), after_step=fail))
    assert caught.value is failure


def test_an_interrupt_keeps_the_observations_so_far(traceless: None) -> None:
    done: list[Tensor] = []

    def stop(loss: Tensor) -> None:
        done.append(loss)
        if len(done) == 2:
            raise KeyboardInterrupt

    lines = checklist(training(nn.Linear(4, 1), after_step=stop))
    assert lines.is_interrupted and "stopped early" in str(lines)
    assert lines["finite gradients"].figure == "all 10 gradient values of 2 steps are finite"


def test_an_interrupt_while_timing_keeps_what_was_watched(
    monkeypatch: pytest.MonkeyPatch, traceless: None
) -> None:
    def stop(*args: Any, **kwargs: Any) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("paifuser_lab.profiler.checks.findings.rounds_in_turn", stop)
    monkeypatch.setattr("paifuser_lab.profiler.checks.findings.thread_choices", lambda: (1, 2, 3))
    lines = checklist(metric_work(), baseline_metric=0.9)
    assert lines.is_interrupted and lines["eval mode"].outcome == "passed"
    assert lines["accuracy"].figure == "stopped before it was taken"


def test_a_training_loop_learns_the_same_watched_or_not(traceless: None) -> None:
    def learned(
        run: Callable[[Callable[[], None]], Any],
    ) -> tuple[list[Tensor], list[Tensor | None], list[bool]]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters())
        loader = DataLoader(pairs(12), batch_size=4, shuffle=True)

        def loop() -> None:
            for x, y in loader:
                optimizer.zero_grad()
                (model(x) - y).square().mean().backward()
                optimizer.step()

        run(loop)
        state = [*model.state_dict().values()]
        return (
            state,
            [weight.grad for weight in model.parameters()],
            [module.training for module in model.modules()],
        )

    plain, watched = (
        learned(lambda loop: loop()),
        learned(lambda loop: checklist(loop, seconds=QUICK)),
    )
    assert all(torch.equal(left, right) for left, right in zip(plain[0], watched[0], strict=True))
    assert all(
        left is not None and torch.equal(left, right)
        for left, right in zip(plain[1], watched[1], strict=True)
    )
    assert plain[2] == watched[2]


@pytest.mark.parametrize("model", [Counting(rebinds=True), Scribbling()])
def test_a_workload_is_left_as_it_was(model: nn.Module, traceless: None) -> None:
    work = Workload(model.train(), torch.ones(2, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    checklist(work, seconds=QUICK)
    assert model.training and all(
        torch.equal(value, before[name]) for name, value in model.state_dict().items()
    )
    assert torch.equal(work.inputs.tensors[0], torch.ones(2, 4)) and all(
        weight.grad is None for weight in model.parameters()
    )


# The subject


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (nn.Linear(4, 1), "wrap the model"),
        (3, "wrap the model"),
        (lambda model: None, "wrap it: lambda"),
        (lambda: (yield), "only begins when"),
    ],
)
def test_an_invalid_subject_is_refused_with_the_remedy(subject: Any, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        checklist(subject)


def test_a_baseline_that_is_no_number_and_a_profiler_already_running_are_refused(
    traceless: None,
) -> None:
    with pytest.raises(WorkloadError, match="finite"):
        checklist(metric_work(), baseline_metric=float("nan"))
    with torch.autograd.profiler.profile(), pytest.raises(MeasureError, match="already"):
        checklist(training(nn.Linear(4, 1)))


def test_a_loop_with_a_profiler_of_its_own_is_refused(traceless: None) -> None:
    def loop() -> None:
        with torch.autograd.profiler.profile():
            torch.ones(2).sum()

    with pytest.raises(MeasureError, match="profiler of its own"):
        checklist(loop)


def test_a_workload_that_fails_names_its_layer(traceless: None) -> None:
    with pytest.raises(ForwardError, match="layer '0'"):
        checklist(unchecked(nn.Sequential(nn.Linear(4, 1)), torch.ones(3, 3)))


def test_calls_inside_a_tracer_are_left_alone(traceless: None) -> None:
    model = nn.Linear(4, 1)
    made: list[Any] = []
    seen = watch(lambda: made.append(torch.jit.trace(model, torch.ones(4))))
    assert "aten::abs" not in str(made[0].inlined_graph) and seen.calls <= 3
    assert watch(lambda: timing.flops(model, lambda model: model(torch.ones(1, 4)))).calls == 0


def test_checkpointed_layers_are_not_counted_as_calls_of_the_loop() -> None:
    inner = nn.Linear(4, 1)

    class Outer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(inner, x, use_reentrant=False)

    outer = Outer()
    assert watch(lambda: outer(torch.ones(2, 4, requires_grad=True)).sum().backward()).calls == 1


# Stretches of time


stretches = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair))),
    max_size=8,
)


def moments(of: list[spans.Span]) -> set[int]:
    return {moment for begin, end in of for moment in range(begin, end)}


@given(stretches, stretches)
def test_stretches_behave_like_sets_of_moments(
    some: list[spans.Span], others: list[spans.Span]
) -> None:
    assert moments(spans.joined(some)) == moments(some)
    assert moments(spans.without(some, others)) == moments(some) - moments(others)
    assert spans.length(some) == len(moments(some))
    assert spans.inside(some, others) == sorted(span for span in some if span[0] in moments(others))


def test_what_an_operator_calls_on_its_way_is_counted_once_and_our_own_looking_not_at_all() -> None:
    trace = Trace(
        (0, 100),
        {
            "aten::item": [(0, 5), (10, 15), (50, 55)],
            "aten::_local_scalar_dense": [(1, 4), (20, 22)],
            WATCHING: [(49, 60)],
        },
    )
    assert trace.count("aten::item", "aten::_local_scalar_dense") == 3
    assert trace.wall_ms == pytest.approx(89 / 1e6)


# The record


def test_the_lines_come_in_the_registry_s_order_under_names_of_their_own() -> None:
    lines = checklist(training(Slow(0.0)), seconds=QUICK)
    assert len({line.name for line in lines.lines}) == len(CHECKS) == len(lines.lines)
    assert lines.subject == "loop" and all(line.figure for line in lines.lines)
    assert all(line.remedy for line in lines.failed)


def test_a_subject_is_known_by_its_name() -> None:
    def epoch() -> None:
        torch.ones(2).sum()

    assert checklist(epoch).subject == "epoch"
    assert checklist(lambda: epoch()).subject == "your loop"
    assert checklist(SimpleNamespace(__call__=epoch).__call__).subject == "epoch"

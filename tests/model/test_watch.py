"""Watching layers: every call is seen once, in this thread alone, and nothing of it stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paifuser_lab.model.dataflow import BlockTracer
from paifuser_lab.model.watch import (
    FAILED,
    TRACING,
    describe,
    failing_layer,
    first_nan,
    has_nan,
    watching,
    watching_outermost,
)

X = torch.ones(2, 4)


@contextmanager
def noted(model: nn.Module, into: list[str] | None = None) -> Iterator[list[str]]:
    """Note every call of a layer that is entered (+) and left (-, or ! by an error)."""
    seen = [] if into is None else into

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        seen.append(f"+{layer}")

    def leave(layer: str, output: Any) -> None:
        seen.append(f"{'!' if output is FAILED else '-'}{layer}")

    with watching(model, enter, leave):
        yield seen


def has_traces(model: nn.Module) -> bool:
    return any("_compiled_call_impl" in vars(module) for module in model.modules())


class Raising(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


class Recovering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.risky, self.safe = Raising(ValueError()), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.risky(x)
        except ValueError:
            return self.safe(x)


def test_every_call_is_entered_and_left() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
    with noted(model) as seen:
        model(X)
    assert seen == ["+", "+0", "-0", "+1", "+1.0", "-1.0", "-1", "-"]


def test_modules_of_others_are_not_seen() -> None:
    with noted(nn.ReLU()) as seen:
        nn.Tanh()(X)
    assert seen == []


@pytest.mark.parametrize(
    "error", [ValueError(), KeyboardInterrupt(), SystemExit()], ids=lambda one: type(one).__name__
)
def test_the_call_is_restored_after_any_error(error: BaseException) -> None:
    model = nn.Sequential(Raising(error))
    with pytest.raises(type(error)), noted(model) as seen:
        model(X)
    assert seen == ["+", "+0", "!0", "!"] and not has_traces(model)


def test_a_recovered_failure_of_a_layer_is_not_reported_as_open() -> None:
    model = Recovering()
    with noted(model) as seen:
        model(X)
    assert seen == ["+", "+risky", "!risky", "+safe", "-safe", "-"]


def test_watchers_may_be_nested_and_the_inner_one_sees() -> None:
    inner: list[str] = []
    model = nn.Sequential(nn.ReLU())
    with noted(model) as outer:
        model(X)
        with noted(model, inner):
            model(X)
            model.append(nn.Tanh())
            with noted(model, inner):
                model(X)
        model(X)
    assert outer == ["+", "+0", "-0", "-"] * 2
    assert inner == ["+", "+0", "-0", "-", "+", "+0", "-0", "+1", "-1", "-"]
    assert not has_traces(model)


def test_two_threads_watch_two_models_at_once() -> None:
    models = [nn.Sequential(*(nn.ReLU() for _ in range(count))) for count in (3, 5)]
    seen: list[list[str]] = [[], []]
    gate, errors = threading.Barrier(2), []

    def work(place: int) -> None:
        try:
            for _ in range(50):
                gate.wait(timeout=20)
                with noted(models[place]) as found:
                    models[place](X)
                    models[1 - place](X)
                seen[place] = found
                assert found[0] == "+" and len(found) == 2 + 2 * len(models[place])
        except BaseException as error:
            errors.append(error)
            gate.abort()

    threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not errors and not any(map(has_traces, models))
    assert [len(one) for one in seen] == [8, 12]


def test_another_thread_is_not_watched() -> None:
    model = nn.ReLU()
    with noted(model) as seen:
        other = threading.Thread(target=model, args=(X,))
        other.start()
        other.join()
    assert seen == []


def test_watchers_of_one_model_in_two_threads_end_in_any_order() -> None:
    model = nn.ReLU()
    began, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with noted(model):
            began.set()
            may_end.wait(20)

    thread = threading.Thread(target=other)
    with noted(model):
        thread.start()
        assert began.wait(20)
    assert has_traces(model)
    may_end.set()
    thread.join()
    assert not has_traces(model)


class Slow(nn.Module):
    """Waits while it is traced, so that another thread runs meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.ReLU()
        self.began, self.may_end = threading.Event(), threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        self.began.set()
        assert self.may_end.wait(20)
        return self.part(x)


@pytest.mark.parametrize("first", ["tracer", "watcher"])
def test_a_tracer_in_another_thread_and_a_watcher_begin_and_end_in_any_order(first: str) -> None:
    before = nn.Module.__call__
    slow, graphs = Slow(), []
    thread = threading.Thread(target=lambda: graphs.append(BlockTracer().trace(slow)))
    model = nn.Sequential(nn.Tanh())
    seen: list[str] = []
    with ExitStack() as stack:
        if first == "watcher":
            stack.enter_context(noted(model, seen))
        thread.start()
        assert slow.began.wait(20)
        if first == "tracer":
            stack.enter_context(noted(model, seen))
        assert torch.equal(model(X), X.tanh())
        if first == "watcher":
            stack.close()
        slow.may_end.set()
        thread.join()
        assert torch.equal(model(X), X.tanh())
    assert seen == ["+", "+0", "-0", "-"] * (1 if first == "watcher" else 2)
    assert [node.op for node in graphs[0].nodes] == ["placeholder", "call_module", "output"]
    assert nn.Module.__call__ is before and not has_traces(model)


def test_outermost_calls_are_seen_around_layers_and_the_call_is_restored() -> None:
    before = nn.Module.__call__
    seen: list[str] = []
    outermost: list[Any] = []
    model = nn.Sequential(nn.Tanh())
    for _ in range(2):
        with (
            watching_outermost(outermost.append, lambda module, output: None),
            noted(model, seen),
        ):
            model(X)
    assert outermost == [model] * 2 and seen == ["+", "+0", "-0", "-"] * 2
    assert nn.Module.__call__ is before


def test_an_outermost_watcher_waits_for_the_end_of_a_trace_in_another_thread() -> None:
    before = nn.Module.__call__
    slow, seen = Slow(), []

    def trace() -> None:
        with TRACING:
            BlockTracer().trace(slow)

    thread = threading.Thread(target=trace)
    thread.start()
    assert slow.began.wait(20)
    release = threading.Timer(0.1, slow.may_end.set)
    release.start()
    with watching_outermost(seen.append, lambda module, output: None):
        assert slow.may_end.is_set()
        slow.part(X)
    thread.join()
    assert seen == [slow.part] and nn.Module.__call__ is before


def test_a_compiler_reads_the_model_and_not_the_watcher() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    part = torch.compile(nn.Sequential(nn.ReLU(), nn.Tanh()), backend="eager", fullgraph=True)
    model = nn.Sequential(part)
    with noted(model) as seen, torch.no_grad():
        model(X)
    assert seen == ["+", "+0", "-0", "-"] and not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1
    with torch.no_grad():
        model(X)
    assert counters["stats"]["unique_graphs"] == 1, (
        "what was compiled while it was watched serves afterwards"
    )
    torch._dynamo.reset()


def test_the_failing_layer_is_the_innermost_with_its_input_shapes() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(5, 5)))
    assert failing_layer(model, lambda: model(X)) == ("1.0", ["2×4"])
    sound = Recovering()
    assert failing_layer(sound, lambda: sound(X)) == ("", [])


def test_a_failure_after_a_recovered_one_is_reported_itself() -> None:
    model = nn.Sequential(Recovering(), Raising(TypeError()))
    assert failing_layer(model, lambda: model(X))[0] == "1"


def test_the_first_nan_is_in_a_layer_whose_input_has_none() -> None:
    class Dividing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 0 / 0

    model = nn.Sequential(nn.ReLU(), nn.Sequential(Dividing()), nn.Tanh())
    assert first_nan(model, lambda: model(X)) == "1.0"
    assert first_nan(nn.ReLU(), lambda: None) is None
    assert has_nan({"a": [torch.tensor([1.0, float("nan")])]}) and not has_nan(
        (torch.ones(1, dtype=torch.long), "text", None)
    )


class ByName(nn.Module):
    """Makes a NaN itself, and passes it to its layer by name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(input=x / 0 * 0)


def test_a_nan_that_a_layer_got_by_name_is_not_its_own() -> None:
    model = nn.Sequential(ByName())
    assert first_nan(model, lambda: model(X)) == "0"


def test_a_module_compiled_in_place_stays_so_and_its_parts_are_not_watched() -> None:
    part = nn.Sequential(nn.ReLU())
    calls: list[Tensor] = []
    part._compiled_call_impl = lambda x: calls.append(x) or part._call_impl(x)
    compiled = part._compiled_call_impl
    model = nn.Sequential(part)
    with noted(model) as seen:
        model(X)
    assert seen == ["+", "+0", "-0", "-"] and len(calls) == 1
    assert part._compiled_call_impl is compiled


def test_a_layer_is_named_as_a_message_does() -> None:
    model = nn.Sequential(nn.ReLU())
    assert (
        describe(model, "0") == "layer '0' (ReLU)"
        and describe(model, "") == "the model itself (Sequential)"
    )

"""Watching layers: every call is seen once, in this thread alone, and nothing of it stays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paifuser_lab.model.watch import FAILED, describe, failing_layer, first_nan, has_nan, watching

X = torch.ones(2, 4)


def noted() -> tuple[list[str], Callable[..., None], Callable[..., None]]:
    seen: list[str] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        seen.append(f"+{layer}")

    def leave(layer: str, output: Any) -> None:
        seen.append(f"{'!' if output is FAILED else '-'}{layer}")

    return seen, enter, leave


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
    seen, enter, leave = noted()
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
    with watching(model, enter, leave):
        model(X)
    assert seen == ["+", "+0", "-0", "+1", "+1.0", "-1.0", "-1", "-"]


def test_modules_of_others_are_not_seen() -> None:
    seen, enter, leave = noted()
    with watching(nn.ReLU(), enter, leave):
        nn.Tanh()(X)
    assert seen == []


@pytest.mark.parametrize(
    "error", [ValueError(), KeyboardInterrupt(), SystemExit()], ids=lambda one: type(one).__name__
)
def test_the_call_is_restored_after_any_error(error: BaseException) -> None:
    seen, enter, leave = noted()
    before = nn.Module.__call__
    model = nn.Sequential(Raising(error))
    with pytest.raises(type(error)), watching(model, enter, leave):
        model(X)
    assert seen == ["+", "+0", "!0", "!"] and nn.Module.__call__ is before


def test_a_recovered_failure_of_a_layer_is_not_reported_as_open() -> None:
    seen, enter, leave = noted()
    model = Recovering()
    with watching(model, enter, leave):
        model(X)
    assert seen == ["+", "+risky", "!risky", "+safe", "-safe", "-"]


def test_watchers_may_be_nested_and_the_inner_one_sees() -> None:
    before = nn.Module.__call__
    outer, *on_outer = noted()
    inner, *on_inner = noted()
    model = nn.ReLU()
    with watching(model, *on_outer):
        model(X)
        with watching(model, *on_inner):
            model(X)
        model(X)
    assert outer == ["+", "-"] * 2 and inner == ["+", "-"] and nn.Module.__call__ is before


def test_two_threads_watch_two_models_at_once() -> None:
    before = nn.Module.__call__
    models = [nn.Sequential(*(nn.ReLU() for _ in range(count))) for count in (3, 5)]
    seen: list[list[str]] = [[], []]
    gate, errors = threading.Barrier(2), []

    def work(place: int) -> None:
        try:
            for _ in range(50):
                found, enter, leave = noted()
                gate.wait(timeout=20)
                with watching(models[place], enter, leave):
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
    assert not errors and nn.Module.__call__ is before
    assert [len(one) for one in seen] == [8, 12]


def test_another_thread_is_not_watched() -> None:
    seen, enter, leave = noted()
    model = nn.ReLU()
    with watching(model, enter, leave):
        other = threading.Thread(target=model, args=(X,))
        other.start()
        other.join()
    assert seen == []


def test_many_watchers_end_in_any_order() -> None:
    before = nn.Module.__call__
    with ExitStack() as stack:
        for _ in range(5):
            _, enter, leave = noted()
            stack.enter_context(watching(nn.ReLU(), enter, leave))
    assert nn.Module.__call__ is before


def test_a_compiler_reads_the_model_and_not_the_watcher() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    seen, enter, leave = noted()
    part = torch.compile(nn.Sequential(nn.ReLU(), nn.Tanh()), backend="eager", fullgraph=True)
    model = nn.Sequential(part)
    with watching(model, enter, leave), torch.no_grad():
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
    assert first_nan(nn.ReLU(), lambda: None) == ""
    assert has_nan({"a": [torch.tensor([1.0, float("nan")])]}) and not has_nan(
        (torch.ones(1, dtype=torch.long), "text", None)
    )


def test_a_layer_is_named_as_a_message_does() -> None:
    model = nn.Sequential(nn.ReLU())
    assert (
        describe(model, "0") == "layer '0' (ReLU)"
        and describe(model, "") == "the model itself (Sequential)"
    )

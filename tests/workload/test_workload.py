"""Workloads: inputs of every kind, a model that is unchanged, and errors that name the layer."""

from __future__ import annotations

import gc
import random
import weakref
from collections import UserDict
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Workload
from paifuser_lab.errors import (
    ForwardError,
    MeasureError,
    WorkloadError,
)
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.workload import UNSEEN, Inputs, changed_buffers, running, running_in_turns
from tests.support.models import Counting, Mapped, Scribbling, Small, Tied, ids, images


class Two(nn.Module):
    def forward(self, a: Tensor, b: Tensor | None = None) -> Tensor:
        return a if b is None else a - b


ONE, OTHER = torch.full((2, 3), 5.0), torch.ones(2, 3)


@pytest.mark.parametrize(
    ("inputs", "value"),
    [
        (ONE, 5.0),
        ((ONE, OTHER), 4.0),
        ([ONE, OTHER], 4.0),
        ({"b": OTHER, "a": ONE}, 4.0),
        (UserDict({"a": ONE, "b": OTHER}), 4.0),
        (Inputs((ONE,), {"b": OTHER}), 4.0),
    ],
    ids=["tensor", "tuple", "list", "dict", "a tokenizer's mapping", "both"],
)
def test_inputs_become_the_arguments_of_a_call(inputs: Any, value: float) -> None:
    work = Workload(Two(), inputs, name="two")
    assert torch.equal(work.output(), torch.full((2, 3), value))
    assert repr(work).startswith("Workload(two: 2×3")


def test_inputs_list_and_map_their_tensors_in_order() -> None:
    inputs = Inputs((ONE, [OTHER]), {"deep": {"x": OTHER}, "n": 3})
    assert len(inputs.tensors) == 3 and inputs.tensors[0] is ONE
    doubled = inputs.map(lambda tensor: tensor * 2)
    assert torch.equal(doubled.args[0], ONE * 2) and doubled.kwargs["n"] == 3
    assert inputs.clone().args[0] is not ONE


def model_with_flags() -> nn.Module:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), Counting())
    model.train()
    model[1].eval()
    return model


@pytest.mark.parametrize("rebinds", [False, True])
def test_running_restores_flags_and_buffers(rebinds: bool) -> None:
    model = model_with_flags()
    model[2].rebinds = rebinds
    buffers, flags, before = (
        list(model.buffers()),
        [module.training for module in model.modules()],
        weights_hash(model),
    )
    with running(model):
        assert (
            not any(module.training for module in model.modules()) and not torch.is_grad_enabled()
        )
        model(torch.randn(3, 4))
        assert model[2].calls.item() == 1
    assert [module.training for module in model.modules()] == flags and weights_hash(
        model
    ) == before
    assert all(module is other for module, other in zip(model.buffers(), buffers, strict=True))


def test_of_several_that_use_a_model_in_turns_the_last_one_restores_it() -> None:
    model = nn.BatchNorm1d(3)
    with running_in_turns(model):
        first, second = running_in_turns(model), running_in_turns(model)
        for user in (first, second):
            user.__enter__()
        assert not model.training and not torch.is_grad_enabled()
        model.running_mean.fill_(7)
        second.__exit__(None, None, None)
        first.__exit__(None, None, None)
        assert not model.training and float(model.running_mean.sum()) == 21
    assert model.training and not model.running_mean.any() and torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), running_in_turns(model):
        raise ZeroDivisionError
    assert model.training


def test_a_model_that_could_not_be_put_into_eval_mode_is_so_the_next_time(monkeypatch) -> None:
    model = nn.BatchNorm1d(3)
    with monkeypatch.context() as patch:
        patch.setattr(model, "buffers", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError), running_in_turns(model):
            pass
    with running_in_turns(model):
        assert not model.training
    assert model.training


def test_running_restores_them_after_an_error() -> None:
    model = model_with_flags()
    before = weights_hash(model)
    with pytest.raises(RuntimeError), running(model):  # noqa: PT012
        model(torch.randn(3, 4))
        model(torch.randn(3, 5))
    assert model.training and not model[1].training and weights_hash(model) == before


def test_a_buffer_that_a_forward_registers_is_removed_afterwards() -> None:
    class Caching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.register_buffer("cache", x * 2)
            return self.cache

    work = Workload(Caching(), ONE)
    work.output()
    assert not list(work.model.buffers()) and changed_buffers(work) == ()


@pytest.mark.parametrize("rebinds", [False, True])
def test_buffers_that_a_forward_writes_are_named(rebinds: bool) -> None:
    assert changed_buffers(Workload(Counting(rebinds=rebinds), torch.randn(2, 4))) == ("calls",)
    assert changed_buffers(Workload(Small(), images())) == ()


@pytest.mark.parametrize(
    "model",
    [Counting(), Counting(rebinds=True), Small(), Tied().train()],
    ids=lambda module: type(module).__name__,
)
def test_output_leaves_the_model_and_its_inputs_unchanged(model: nn.Module) -> None:
    inputs = {"Small": images(), "Tied": ids()}.get(type(model).__name__, torch.randn(2, 4))
    before, copy, flag = weights_hash(model), inputs.clone(), model.training
    work = Workload(model, inputs)
    first, second = work.output(), work.output()
    assert torch.equal(first, second) and weights_hash(model) == before and model.training is flag
    assert torch.equal(inputs, copy) and not any(
        module._forward_hooks or module._forward_pre_hooks for module in model.modules()
    )


def test_a_model_may_write_into_its_input() -> None:
    inputs = torch.zeros(2, 4)
    work = Workload(Scribbling(), inputs)
    assert torch.equal(work.output(), work.output()) and torch.equal(inputs, torch.zeros(2, 4))


class Nan(nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.first, self.second, self.where = (
            nn.Linear(4, 4),
            nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
            where,
        )
        if where == "weight":
            with torch.no_grad():
                self.second[0].weight[0, 0] = torch.nan

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.where == "between":
            x = x / 0 * 0
        return self.second(x)


@pytest.mark.parametrize(
    ("where", "layer", "named"),
    [
        ("weight", "second.0", r"layer 'second\.0' \(Linear\)"),
        ("between", "", r"the model itself \(Nan\)"),
    ],
)
def test_a_nan_names_the_layer_where_it_began(where: str, layer: str, named: str) -> None:
    with pytest.raises(
        ForwardError, match=rf"returns NaN on its example inputs, first at {named}"
    ) as caught:
        Workload(Nan(where), torch.randn(2, 4)).output()
    assert caught.value.layer == layer


def test_a_nan_deep_in_a_dict_is_found() -> None:
    model = Mapped()
    nn.init.constant_(model.line.bias, torch.nan)
    with pytest.raises(ForwardError, match="layer 'line'"):
        Workload(model, {"ids": ids()}).output()


@pytest.mark.parametrize(
    ("model", "inputs", "layer", "message"),
    [
        (
            Small(),
            torch.randn(2, 4, 8, 8),
            "conv",
            (
                r"fails on its example inputs at layer 'conv' \(Conv2d\), which received 2×4×8×8: "
                r".*channels"
            ),
        ),
        (
            nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(9, 2))),
            torch.randn(2, 4),
            "1.1",
            r"layer '1\.1' \(Linear\), which received 2×8",
        ),
        (
            Mapped(),
            {"ids": torch.tensor([[99]])},
            "table",
            r"layer 'table' \(Embedding\), which received 1×1: index out of range",
        ),
        (Two(), (ONE, torch.ones(7)), "", r"the model itself \(Two\), which received 2×3, 7"),
        (Two(), {"c": ONE}, "", "unexpected keyword argument 'c'"),
        (Two(), (), "", "missing 1 required positional argument"),
    ],
    ids=["channels", "nested", "an id too large", "no layer", "unknown keyword", "nothing given"],
)
def test_errors_for_wrong_inputs_name_the_layer_and_the_shapes(
    model: nn.Module, inputs: Any, layer: str, message: str
) -> None:
    with pytest.raises(ForwardError, match=message) as caught:
        Workload(model, inputs)
    assert caught.value.layer == layer and "\n" not in str(caught.value)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def meta_model() -> nn.Module:
    with torch.device("meta"):
        return nn.Linear(2, 2)


def lazy_model() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(3))


class Elsewhere(nn.Linear):
    """A layer on a device that does not exist here."""

    def parameters(self, recurse: bool = True) -> Any:
        return iter([torch.empty(1, device="meta")])


UNFIT: dict[str, tuple[Callable[[], Workload], str]] = {
    "meta weights": (
        lambda: Workload(meta_model(), torch.ones(1, 2)),
        "'weight' is on the meta device and has no values; load the weights",
    ),
    "meta input": (
        lambda: Workload(nn.Linear(2, 2), torch.ones(1, 2, device="meta")),
        "an input is on the meta device",
    ),
    "empty batch": (
        lambda: Workload(nn.Linear(2, 2), torch.ones(0, 2)),
        r"an input has shape \(0, 2\), a batch of zero",
    ),
    "empty batch in a dict": (lambda: Workload(Mapped(), {"ids": ids(0)}), "a batch of zero"),
    "two devices": (
        lambda: Workload(Elsewhere(2, 2), torch.ones(1, 2)),
        "is on meta and an input is on cpu; move one of them",
    ),
    "lazy": (
        lambda: Workload(lazy_model(), torch.ones(1, 2)),
        r"'0\.weight' of a lazy layer has no shape yet",
    ),
    "a function": (
        lambda: Workload(lambda x: x, torch.ones(1)),  # type: ignore[arg-type]
        "needs a torch.nn.Module, not a function",
    ),
    "a metric without data": (
        lambda: Workload(Small(), images(), metric=accuracy),
        r"Small has a metric and no data .*; give test=\[\(inputs, target\), …\] too, or leave",
    ),
    "a metric's name": (
        lambda: Workload(Small(), images(), metric="accuracy", test=[]),  # type: ignore[arg-type]
        r"the metric is of type str, .*; give a function that is called as metric\(predict, ",
    ),
    "a loss that is a number": (
        lambda: Workload(Small(), images(), loss=0.5),  # type: ignore[arg-type]
        r"the loss is of type float, .*; give a function that is called as loss\(output, targ",
    ),
    "train data of one use": (
        lambda: Workload(Small(), images(), train=iter([(images(), 0)])),  # type: ignore[arg-type]
        "Small: the train data can be iterated only once; give a list",
    ),
    "test data of one use": (
        lambda: Workload(Small(), images(), test=iter([(images(), 0)])),  # type: ignore[arg-type]
        "Small: the test data can be iterated only once; give a list",
    ),
    "batch 0": (lambda: lab.load("resnet18-tiny", batch=0), "batch=0 is not possible"),
    "batch -1": (lambda: lab.load("resnet18-tiny", batch=-1), "batch=-1 is not possible"),
}


@pytest.mark.parametrize(("make", "message"), UNFIT.values(), ids=UNFIT)
def test_workloads_that_cannot_run_are_refused_at_once(
    make: Callable[[], Workload], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        make()


class Observed(nn.Module):
    """Counts its calls and draws random numbers, as a layer with noise does."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.line, self.seen = nn.Linear(3, 3), []
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.count += 1
        self.seen.append(
            (self.training, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        )
        x += torch.rand(3) + random.random() + float(numpy.random.rand())
        return self.line(x)


@pytest.mark.parametrize("in_inference_mode", [False, True])
def test_a_new_workload_calls_its_model_once_and_nothing_remains_of_it(
    in_inference_mode: bool,
) -> None:
    model, inputs = Observed().train(), torch.zeros(2, 3)
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].copy()
    with torch.inference_mode(in_inference_mode):
        Workload(model, inputs)
    assert model.calls == 1 and model.seen == [(False, False, False)] and model.training
    assert model.count == 0 and torch.equal(inputs, torch.zeros(2, 3))
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert (numpy.random.get_state()[1] == states[2]).all()


def test_a_model_that_is_never_called_needs_no_inputs() -> None:
    model = Observed()
    assert Workload(model, UNSEEN).inputs is UNSEEN and model.calls == 0


def accuracy(predict: Callable[[Any], Tensor], test: Any) -> float:
    return sum(
        float((predict(batch).argmax(1) == labels).float().mean()) for batch, labels in test
    ) / len(test)


def test_the_metric_is_computed_for_the_given_model() -> None:
    model, other = Small().train(), Small()
    batch = images(6)
    labels = model.eval()(batch).argmax(1)
    work = Workload(model.train(), batch, test=[(batch, labels)], metric=accuracy)
    assert work.evaluate() == 1.0 and work.metric_name == "accuracy" and model.training
    assert work.evaluate(lambda x: -other(x)) < 1.0
    work.test = None
    assert work.evaluate() is None


def test_a_model_that_writes_into_its_input_leaves_the_test_data_as_they_were() -> None:
    batch = torch.zeros(2, 4)

    def total(predict: Callable[[Any], Tensor], test: Any) -> float:
        return float(predict(test[0][0]).sum())

    work = Workload(Scribbling(), batch, test=[(batch, None)], metric=total)
    assert work.evaluate() == work.evaluate() and torch.equal(batch, torch.zeros(2, 4))


def unkind(predict: Callable[[Any], Tensor], test: Any) -> float:
    raise ValueError("no labels here.\na long story")


def test_a_failing_metric_is_reported_with_its_error() -> None:
    work = Workload(Small(), images(), test=[(images(), None)], metric=unkind)
    message = (
        r"^metric 'unkind' of Small fails \(ValueError: no labels here\); correct it: it is called "
        r"as metric\(predict, test\)\.$"
    )
    with pytest.raises(MeasureError, match=message) as caught:
        work.evaluate()
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(MeasureError, match=message):
        lab.compare(work, rounds=1)


def test_a_model_that_fails_on_the_test_data_is_not_blamed_on_the_metric() -> None:
    work = Workload(
        Small(), images(), name="small", test=[(torch.ones(2, 5), torch.zeros(2))], metric=accuracy
    )
    with pytest.raises(
        MeasureError,
        match=(
            r"^small fails on its test data \(RuntimeError: .*\); see that each batch has what the "
            r"model"
        ),
    ):
        work.evaluate()


def test_a_workload_on_another_device_is_a_copy() -> None:
    work = Workload(Small(), images())
    work.variants["x"] = None
    moved = work.to("cpu")
    assert moved.model is not work.model and not moved.variants and work.variants


def test_a_workload_and_its_variants_are_garbage_collected() -> None:
    work = Workload(nn.Linear(2, 2), torch.ones(1, 2))
    lab.apply(work, lab.Recipe(["layout"]))
    gone = weakref.ref(work)
    del work
    gc.collect()
    assert gone() is None

"""`lab.enable()` and its parts: calls that fit, calls that do not."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

import paifuser_lab as lab
from paifuser_lab.accelerate import features
from paifuser_lab.accelerate.switches import SWITCHES, Switch
from paifuser_lab.accelerate.switches.memory_reuse import MemoryReuse
from paifuser_lab.errors import AccelerationError, MeasureError
from paifuser_lab.records import AccelerationStatus
from tests.support.training_loops import Digits, accelerated, made, metered, trained

NAMES = (
    "memory_pool", "memory_reuse", "graph_optimization", "operator_fusion", "data_parallelism",
    "adaptive_lr", "model_quantization",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert not features._in_force or not features._in_force[0].is_on
    features._in_force.clear()


@pytest.mark.parametrize("name", ["", *(f"_{name}" for name in NAMES)])
def test_what_is_enabled_twice_is_refused_and_the_first_stays(name):
    enable = getattr(lab, f"enable{name}")
    enable()
    with pytest.raises(AccelerationError, match=rf"enable{name}\(\) is in force already; call lab"):
        enable()
    assert features._in_force[0].is_on
    lab.disable()


@pytest.fixture
def hooks():
    """The hooks that others in this process have set; those set since are ours."""
    return dict(_global_optimizer_post_hooks)


@pytest.mark.parametrize("name", NAMES)
def test_each_feature_is_enabled_and_disabled_by_itself(name, hooks):
    with pytest.raises(AccelerationError, match=f"{name} is not enabled; call lab.enable_{name}"):
        getattr(lab, f"disable_{name}")()
    getattr(lab, f"enable_{name}")()
    rows = {row.name.split("=")[0] for row in lab.status().rows}
    assert rows == features.switches_of(name)
    getattr(lab, f"disable_{name}")()
    assert not lab.status().is_enabled
    assert dict(_global_optimizer_post_hooks) == hooks


@pytest.mark.parametrize("name", NAMES)
def test_the_status_after_the_last_feature_is_disabled_keeps_its_rows(name):
    getattr(lab, f"enable_{name}")()
    rows = [row.name for row in lab.status().rows]
    getattr(lab, f"disable_{name}")()
    assert rows and [row.name for row in lab.status().rows] == rows
    assert not lab.status().is_enabled


def test_disable_without_enable_says_what_to_do():
    with pytest.raises(AccelerationError, match=r"Nothing is enabled; call lab\.enable\(\)"):
        lab.disable()


def test_as_a_context_it_ends_with_the_block_also_by_an_error():
    acceleration = lab.enable()
    with pytest.raises(ValueError, match="of the loop"), acceleration:
        raise ValueError("of the loop")
    assert not acceleration.status().is_enabled
    with lab.enable():
        pass


def test_an_inner_context_ends_what_it_enabled_and_leaves_the_rest():
    with lab.enable(memory_pool=False):
        with lab.enable_memory_pool(), lab.enable_memory_reuse():
            names = {row.name for row in lab.status().rows}
            assert {"memory_pool", "memory_reuse"} <= names
        assert {row.name for row in lab.status().rows} == names - {"memory_pool", "memory_reuse"}
        with lab.enable_operator_fusion():  # enable() has it too
            pass
        assert "fused_optimizer" in {row.name for row in lab.status().rows}
    assert not lab.status().is_enabled


@pytest.mark.parametrize("call", ["enable", "disable", "disable_memory_pool"])
def test_nothing_changes_inside_a_running_backward_pass(call):
    if call != "enable":
        lab.enable()
    raised = []

    def hook(gradient):
        try:
            getattr(lab, call)()
        except AccelerationError as error:
            raised.append(str(error))

    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(hook)
    weight.sum().backward()
    assert raised == [
        "Acceleration cannot change inside a running backward pass; call it between two steps."
    ]
    assert bool(features._in_force) is (call != "enable")
    if call != "enable":
        lab.disable()


def test_an_unknown_precision_and_no_switch_at_all_are_refused_with_nothing_changed(hooks):
    with pytest.raises(AccelerationError, match=r"'int8' is not a format to train in; .* None"):
        lab.enable(precision="int8")
    with pytest.raises(AccelerationError, match="given no switch"):
        lab.enable(precision=None, channels_last=False, fused_optimizer=False, memory_pool=False,
                   threads=False, compile=False)  # fmt: skip
    assert not lab.status().is_enabled and not features._in_force
    assert dict(_global_optimizer_post_hooks) == hooks


@pytest.mark.parametrize("limit", ["abc", -1, 0, "2 parsecs", True, 1.5])
def test_a_pool_limit_that_is_no_size_is_refused_at_once(limit):
    with pytest.raises(MeasureError, match=r"memory limit of .* (cannot be read|holds nothing)"):
        lab.enable_memory_pool(limit)
    assert not features._in_force


@pytest.mark.parametrize("frequency", [0, -2, "x", 1.5, True])
def test_a_sync_frequency_that_is_no_count_is_refused_at_once(frequency):
    with pytest.raises(AccelerationError, match=r"sync_frequency=.* give an integer of 1 or more"):
        lab.enable_data_parallelism(frequency)
    assert not features._in_force


def test_an_enable_that_yields_gives_way_to_another_one_and_is_ended(hooks):
    first = lab.enable()
    first.yields = True
    with lab.enable_memory_reuse():  # which is one more feature, not another loop's
        assert first.is_on
    second = lab.enable(precision=None)
    assert (
        not first.is_on
        and second.is_on
        and "bf16" not in {row.name for row in second.status().rows}
    )
    with pytest.raises(AccelerationError, match="in force already"):
        lab.enable()
    lab.disable()
    assert dict(_global_optimizer_post_hooks) == hooks


def test_a_switch_taken_out_of_enable_is_restored_and_the_rest_stays(monkeypatch):
    model, optimizer = made(lr=1e-3)
    cost = lambda way: 0.7 ** len(way)
    with accelerated(monkeypatch, cost) as meter:
        trained(model, optimizer, 150, work=meter.work)
        assert set(lab.status().on) == {"bf16", "channels_last", "fused_optimizer"}
        lab.disable_operator_fusion()
        assert set(lab.status().on) == {"bf16", "channels_last"}
        assert not optimizer.param_groups[0]["fused"]
        lab.enable_memory_reuse()
        trained(model, optimizer, 60, first=150, work=meter.work)
        assert set(lab.status().on) == {"bf16", "channels_last", "memory_reuse"}
        lab.disable_memory_reuse()
        lab.enable_memory_reuse()  # it is raced anew
        trained(model, optimizer, 60, first=210, work=meter.work)
        assert set(lab.status().on) == {"bf16", "channels_last", "memory_reuse"}


def test_a_switch_that_changes_results_is_not_offered_and_says_why(monkeypatch):
    model, optimizer = made(lr=1e-3)
    monkeypatch.setattr(MemoryReuse, "prove", lambda *_: "results would change")
    with metered(monkeypatch, lambda way: 0.5 if "memory_reuse" in way else 1.0) as meter:
        lab.enable_memory_reuse()
        trained(model, optimizer, 40, work=meter.work)
        row = lab.status()["memory_reuse"]
        assert row.state == "not offered" and row.why == "results would change"
        assert not lab.status().on


def test_the_status_before_any_step_and_after_the_end_is_a_record_that_is_saved(tmp_path):
    assert str(lab.status()) == "acceleration is off"
    lab.enable()
    status = lab.status()
    assert "no training step seen yet" in status.title and {row.state for row in status.rows} == {
        "waiting"
    }
    assert lab.Record.load(status.save(tmp_path / "status.json")) == status
    assert isinstance(status, AccelerationStatus) and "<table>" in status._repr_html_()
    with pytest.raises(KeyError, match="no switch 'x'; there are"):
        status["x"]
    lab.disable()


def test_an_optimizer_over_a_tensor_of_no_module_is_told_what_it_cannot_have():
    weight = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with lab.enable(threads=False):
        for _ in range(4):
            optimizer.zero_grad()
            (weight - 1).square().sum().backward()
            optimizer.step()
        status = lab.status()
    assert status.title == "tensors of no module with SGD on cpu · 3 steps · on: nothing"
    assert status["bf16"].why.startswith("no module of the loop holds the weights")
    assert status["compile"].why.startswith("no module of the loop holds the weights")


def test_what_was_on_is_said_after_the_end(monkeypatch):
    model, optimizer = made(lr=1e-3)
    with metered(monkeypatch, lambda way: 0.5 ** len(way)) as meter:
        with lab.enable(precision=None, memory_pool=False, threads=False, compile=False):
            trained(model, optimizer, 60, work=meter.work)
        title = lab.status().title
    assert (
        title == "Digits with Adam on cpu · 59 steps · off; was on: channels_last, fused_optimizer"
    )


def test_what_was_decided_is_logged(monkeypatch, caplog):
    model, optimizer = made(lr=1e-3)
    cost = lambda way: 0.7 ** len(way)
    with (
        caplog.at_level(logging.INFO, "paifuser_lab.accelerate"),
        metered(monkeypatch, cost) as meter,
    ):
        lab.enable(precision=None, memory_pool=False, threads=False, compile=False)
        trained(model, optimizer, 80, work=meter.work)
        lab.disable()
    assert "on: channels_last, fused_optimizer after" in caplog.text
    assert "off: Digits with Adam on cpu" in caplog.text


class Toy(Switch):
    """Ready after three looks at the loop; its wrapped call fails until it has recovered."""

    name = feature = "toy"
    looks, is_mended = 0, False

    @property
    def is_ready(self):
        return self.looks > 2

    def is_pending(self, course):
        return not self.is_ready

    def tend(self, course, *, is_on):
        self.looks += 1
        return ""

    def wrap(self, model, call):
        def with_a_fault(args, kwargs):
            if not self.is_mended:
                raise RuntimeError("toy")
            return call(args, kwargs)

        return with_a_fault

    def recover(self, model, error):
        self.is_mended = str(error) == "toy"
        return self.is_mended

    def why(self):
        return "mended" if self.is_mended else ""


def test_a_switch_is_one_class_and_one_line_in_the_table_of_switches(monkeypatch):
    monkeypatch.setitem(SWITCHES, "toy", Toy)  # the line
    model = Digits()
    with metered(monkeypatch, lambda way: 0.5 if "toy" in way else 1.0) as meter:
        toy = features._feature("toy").loop.switches["toy"]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        trained(model, optimizer, 3, work=meter.work)
        assert lab.status()["toy"].state == "waiting" and not toy.is_ready
        trained(model, optimizer, 60, first=3, work=meter.work)
        row = lab.status()["toy"]
        assert row.state == "on" and row.ratio == pytest.approx(2) and row.why.endswith("mended")
        features._disable("toy")
        assert not lab.status().is_enabled

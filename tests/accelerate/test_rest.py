"""A loop of short steps pays for nothing that it does not need, and nothing of it is held."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.optim.optimizer import _global_optimizer_pre_hooks

import paifuser_lab as lab
from paifuser_lab.accelerate.loop import MOST_NOTES
from paifuser_lab.accelerate.watcher import MOST_LOSSES
from tests.support.training_loops import accelerated, batch, made, metered, product, trained

BACKWARD, SCALE = torch.autograd.backward, torch.amp.GradScaler.scale


def short(**factors):
    """Steps of a millisecond, which some switches make faster."""
    share = product(factors)
    return lambda way: 1e-3 * share(way)


def is_watched(model):
    """Whether calls, losses and the beginnings of steps are."""
    return (
        "_compiled_call_impl" in vars(model),
        torch.autograd.backward is not BACKWARD and torch.amp.GradScaler.scale is not SCALE,
        any(  # of ours: other libraries leave theirs in the process
            hook.__module__.startswith("paifuser_lab.accelerate")
            for hook in _global_optimizer_pre_hooks.values()
        ),
    )


@pytest.mark.parametrize("factors", [{}, {"fused_optimizer": 0.5}])
def test_a_judged_loop_is_not_watched_where_no_switch_in_force_needs_it(monkeypatch, factors):
    model, optimizer = made()
    with accelerated(monkeypatch, short(**factors)) as meter:
        trained(model, optimizer, 20, work=meter.work)
        assert is_watched(model) == (True, True, True)
        trained(model, optimizer, 680, first=20, work=meter.work)
        assert lab.status().on == tuple(factors)
        assert is_watched(model) == (False, False, False)
        assert lab.status().steps == 699  # the steps are counted all the same
        trained(model, optimizer, 7, first=700, work=meter.work)
        assert lab.status().steps == 706


def test_switches_in_force_are_watched_as_far_as_they_need_it(monkeypatch):
    for name, expected in (("channels_last", (True, False, False)), ("bf16", (True, True, True))):
        model, optimizer = made()
        with accelerated(monkeypatch, short(**{name: 0.5}), fused_optimizer=False) as meter:
            trained(model, optimizer, 400, work=meter.work)
            assert lab.status().on == (name,)
            assert is_watched(model) == expected
    assert is_watched(model) == (False, False, False)


def test_long_steps_are_watched_on_since_that_costs_nothing_beside_them(monkeypatch):
    model, optimizer = made()
    with accelerated(monkeypatch) as meter:
        trained(model, optimizer, 700, work=meter.work)
        assert lab.status().on == () and not lab.status().is_judging
        assert is_watched(model) == (True, True, True)


def test_a_loop_at_rest_goes_on_being_judged_once_its_steps_have_paid_for_it(monkeypatch):
    model, optimizer = made()
    with accelerated(
        monkeypatch,
        short(bf16=40.0, memory_pool=0.5),
        channels_last=False,
        fused_optimizer=False,
        memory_pool=True,
    ) as meter:
        trained(model, optimizer, 80, work=meter.work)
        status = lab.status()
        assert status.judging_share > 0.1 and status.is_judging and status.on == ()
        assert status["memory_pool"].why == "judging goes on at step 880"
        assert status["memory_pool"].state == "waiting"
        assert is_watched(model) == (False, False, False)
        trained(model, optimizer, 1100, first=80, work=meter.work)
        status = lab.status()
        assert status.on == ("memory_pool",) and not status.is_judging
        assert "40.0 times slower at once" in status["bf16"].why
        assert status["memory_pool"].why.startswith("faster by more than its interval")


def test_a_loop_at_rest_is_judged_anew_when_another_one_or_other_layers_come(monkeypatch):
    model, optimizer = made()
    with accelerated(monkeypatch, short()) as meter:
        trained(model, optimizer, 700, work=meter.work)
        assert is_watched(model) == (False, False, False)
        model.head = nn.Linear(32, 3)
        optimizer.add_param_group({"params": model.head.parameters()})
        trained(model, optimizer, 60, first=700, work=meter.work)
        assert is_watched(model) == (True, True, True)
        assert any("changed its structure" in note for note in lab.status().notes)
        trained(model, optimizer, 700, work=meter.work)
        assert is_watched(model) == (False, False, False)
        other, other_optimizer = made()
        trained(other, other_optimizer, 40, work=meter.work)
        assert is_watched(other) == (True, True, True)
        assert any("another loop has begun" in note for note in lab.status().notes)


def test_memory_reuse_is_proven_and_raced_in_a_loop_of_short_steps(monkeypatch):
    model, optimizer = made()
    with metered(monkeypatch, short()) as meter:
        lab.enable_memory_reuse()
        trained(model, optimizer, 300, work=meter.work)
        assert lab.status()["memory_reuse"].state == "on"


def test_a_loop_of_several_optimizers_stays_at_rest(monkeypatch):
    model, _ = made()
    optimizers = [
        torch.optim.Adam(part.parameters(), lr=0.01) for part in (model.features, model.head)
    ]
    with accelerated(monkeypatch, short()) as meter:
        for step in range(1500):  # so long that a step told of in fifty would add up
            images, labels = batch(step % 4)
            nn.functional.cross_entropy(model(images), labels).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            meter.work()
            counted = lab.status().steps
        assert counted == 1499 and is_watched(model) == (False, False, False)
        assert not any("another loop" in note for note in lab.status().notes)


def test_a_switch_that_is_added_wakes_a_loop_at_rest(monkeypatch):
    model, optimizer = made()
    with accelerated(monkeypatch, short()) as meter:
        trained(model, optimizer, 700, work=meter.work)
        lab.enable_model_quantization()
        seen = []
        model.features[0].register_forward_pre_hook(lambda layer, args: seen.append(layer.weight))
        trained(model, optimizer, 1, first=700, work=meter.work)
        assert not isinstance(seen[0], nn.Parameter)  # its rounded weights
        lab.disable_model_quantization()
        trained(model, optimizer, 60, first=501, work=meter.work)
        assert is_watched(model) == (False, False, False)


def test_models_that_are_only_called_are_not_held(monkeypatch):
    with accelerated(monkeypatch):
        models = [nn.Linear(4, 2) for _ in range(5)]
        for model in models:
            model(torch.randn(2, 4))
        references = [weakref.ref(model) for model in models]
        del models, model
        gc.collect()
        assert not any(reference() for reference in references)


def test_a_loop_that_updates_its_weights_by_hand_holds_few_losses(monkeypatch):
    model, _ = made()
    with accelerated(monkeypatch) as meter:
        for step in range(MOST_LOSSES + 20):
            model(batch(step % 4)[0]).square().mean().backward()
        assert len(meter.acceleration.loop.watcher.losses.held) == MOST_LOSSES


def test_an_optimizer_that_has_stepped_once_is_not_held(monkeypatch):
    for ends in (False, True):
        with accelerated(monkeypatch) as meter:
            acceleration = meter.acceleration
            trained(*made(), 5, work=meter.work)
            other, optimizer = made()
            trained(other, optimizer, 1)
            assert optimizer in acceleration.loop._strangers
            if ends:
                acceleration.stop()
                assert not acceleration.loop._strangers and not acceleration.loop.watcher._aside
            reference = weakref.ref(optimizer)
            del other, optimizer
            gc.collect()
            assert reference() is None
            assert ends or acceleration.loop.watcher.is_searching


def test_loops_that_take_turns_add_one_note(monkeypatch):
    loops = made(), made()
    with accelerated(monkeypatch) as meter:
        acceleration = meter.acceleration
        for _ in range(4):
            for model, optimizer in loops:
                trained(model, optimizer, 12, work=meter.work)
        (note,) = (note for note in lab.status().notes if "another loop" in note)
        assert "times by now: another loop has begun" in note
        for count in range(2 * MOST_NOTES):
            acceleration.loop.note(f"note {count}")
        assert len(acceleration.loop.notes) == MOST_NOTES
        assert acceleration.loop.notes[-1] == f"note {2 * MOST_NOTES - 1}"
    assert not _global_forward_pre_hooks

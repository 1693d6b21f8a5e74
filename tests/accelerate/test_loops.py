"""Ordinary loops under acceleration: unchanged, judged, and afterwards as if nothing had been."""

from __future__ import annotations

import copy
import gc
import random
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint

import paifuser_lab as lab
from paifuser_lab.accelerate import features
from paifuser_lab.accelerate.judge import Judge
from paifuser_lab.accelerate.race import PLAIN
from paifuser_lab.accelerate.switches import Parts, precision
from paifuser_lab.accelerate.switches.precision import Precision
from tests.support.training_loops import Digits, accelerated, batch, made, metered, product, trained


def without_dropout(pair):
    """Its masks follow the order in memory, which channels-last changes."""
    pair[0].features[7].p = 0.0
    return pair


def state_of(model, optimizer):
    values = {name: value.clone() for name, value in model.state_dict().items()}
    strides = [(value.dtype, value.stride()) for value in model.state_dict().values()]
    moments = [
        (key, value.clone(), value.stride())
        for state in optimizer.state.values()
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    ]
    groups = [{key: value for key, value in group.items() if key != "params"}
              for group in optimizer.param_groups]  # fmt: skip
    return values, strides, moments, groups


def globals_of_torch():
    return (
        torch.get_num_threads(), torch.autograd.backward, nn.Module.__call__, random.setstate,
        dict(_global_forward_pre_hooks),
        dict(_global_optimizer_pre_hooks),
        dict(_global_optimizer_post_hooks), torch.random.set_rng_state,
        torch.is_autocast_enabled("cpu"), torch.get_rng_state().tolist(),
    )  # fmt: skip


cost = product({"bf16": 0.6, "channels_last": 0.8, "fused_optimizer": 0.9})


def test_the_fastest_switches_are_found_and_kept_in_an_unchanged_loop(monkeypatch):
    model, optimizer = made()
    with accelerated(monkeypatch, cost) as meter:
        losses = trained(model, optimizer, 160, work=meter.work)
        status = lab.status()
        assert set(status.on) == {"bf16", "channels_last", "fused_optimizer"}
        assert model.features[0].weight.dtype == torch.float32
        assert status["bf16"].ratio == pytest.approx(1 / 0.6, rel=0.01)
        assert status["bf16"].with_steps_per_s > status["bf16"].without_steps_per_s
        assert status.judging_share == 0 and 0 < status.judged_steps < 120
        assert status.judged_steps <= status.steps
        assert status.model == "Digits" and status.optimizer == "Adam" and status.steps == 159
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("options", [{}, {"precision": "bf16"}])
def test_where_bf16_is_emulated_the_other_switches_are_judged_all_the_same(monkeypatch, options):
    model, optimizer = made()
    cost = product({"bf16": 6.6, "channels_last": 0.75, "fused_optimizer": 0.98})
    with metered(monkeypatch, cost) as meter:
        monkeypatch.setattr(precision, "product_speedup", lambda dtype: 1 / 6.6)
        lab.enable(threads=False, compile=False, **options)
        trained(model, optimizer, 600, work=meter.work)
        status = lab.status()
        assert status.on == ("channels_last", "fused_optimizer") and not status.is_judging
        assert status["bf16"].state == ("taken back" if options else "not offered")
        assert "6.6 times slower" in status["bf16"].why
        assert status.judging_share < (0.1 if options else 0.001)


def test_a_switch_that_is_proven_is_on_while_its_race_waits_and_its_row_says_until_when(
    monkeypatch,
):
    monkeypatch.setattr(Judge, "is_spent", lambda self, steps: steps > 30)
    model, optimizer = made()
    with accelerated(monkeypatch, cost) as meter:
        trained(model, optimizer, 45, work=meter.work)
        status = lab.status()
        assert status.on == ("bf16", "channels_last") and status.is_judging
        assert {row.why for row in status.rows} == {"judging goes on at step 100"}


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_after_disable_everything_is_as_before_and_the_loop_goes_on_as_it_would(monkeypatch, kind):
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    model, optimizer = made(kind, **options)
    trained(model, optimizer, 3)
    twin = copy.deepcopy(model)
    before = globals_of_torch()
    with accelerated(monkeypatch, cost, memory_pool=True) as meter:
        trained(model, optimizer, 150, work=meter.work)
        assert "channels_last" in lab.status().on
        assert model.features[4].weight.is_contiguous()
        lab.disable()
    assert globals_of_torch()[:-1] == before[:-1]
    assert "_compiled_call_impl" not in vars(model) and "forward" not in vars(model)
    values, strides, moments, groups = state_of(model, optimizer)
    assert strides == [(value.dtype, value.stride()) for value in twin.state_dict().values()]
    # the same state in a model that was never accelerated trains on to the bit
    other, other_optimizer = made(kind, **options)
    other.load_state_dict(values)
    other_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert state_of(other, other_optimizer)[1] == strides
    assert [stride for *_, stride in state_of(other, other_optimizer)[2]] == [
        stride for *_, stride in moments
    ]
    assert groups == state_of(*made(kind, **options))[3]
    torch.manual_seed(7)
    losses = trained(model, optimizer, 5, first=150)
    torch.manual_seed(7)
    assert trained(other, other_optimizer, 5, first=150) == losses


def test_a_loop_whose_switches_are_all_taken_back_had_the_losses_of_a_plain_one(monkeypatch):
    model, optimizer = made(torch.optim.SGD)
    expected = trained(*made(torch.optim.SGD), 90)
    with accelerated(
        monkeypatch, precision=None, channels_last=False, fused_optimizer=False, memory_pool=True
    ) as meter:
        made(torch.optim.SGD)  # the random state of the reference
        assert trained(model, optimizer, 90, work=meter.work) == expected
        assert lab.status()["memory_pool"].state == "taken back"


@pytest.mark.parametrize("switches", [{"channels_last"}, {"fused_optimizer"}, {"memory_reuse"}])
def test_an_exact_switch_changes_no_loss_beyond_rounding(monkeypatch, switches):
    expected = trained(*without_dropout(made()), 12)
    model, optimizer = without_dropout(made())
    with metered(monkeypatch) as meter:
        acceleration = features._add("test", set(switches), {})
        losses = trained(model, optimizer, 2)
        if reuse := acceleration.loop.switches.get("memory_reuse"):
            calls = acceleration.loop.calls_of_copies(PLAIN)
            assert reuse.prove(model, (batch(0)[0],), {}, calls) == ""
        acceleration.loop.go(frozenset(switches))
        acceleration.loop.stopped = "so that it stays as it is"
        losses += trained(model, optimizer, 10, first=2, work=meter.work)
        assert acceleration.loop.on == switches
    assert losses[:2] == expected[:2]
    assert losses == pytest.approx(expected, rel=1e-3)


def test_a_model_is_compiled_aside_while_the_loop_goes_on_and_swapped_in(monkeypatch):
    model, optimizer = made()
    with metered(monkeypatch, lambda way: 0.5 if "compile" in way else 1.0) as meter:
        acceleration = lab.enable_graph_optimization()
        acceleration.options["backend"] = "eager"  # Dynamo alone, which is quick
        compiled = acceleration.loop.switches["compile"]
        steps = 0
        while compiled.thread is None:
            trained(model, optimizer, 1, first=steps, work=meter.work)
            steps += 1
            assert steps < 150
        compiled.thread.join()
        assert not compiled.failure
        trained(model, optimizer, 40, first=steps, work=meter.work)
        status = lab.status()
        assert status["compile"].state == "on" and status["compile"].ratio == pytest.approx(2.0)
        assert list(compiled.compiled) == [model]  # the copy is gone
        # the copy's training step moved nothing of the model
        assert model.features[1].num_batches_tracked == steps + 40


def test_a_second_loop_is_compiled_too_and_not_stopped_with_the_first(monkeypatch):
    with metered(monkeypatch, lambda way: 0.5 if "compile" in way else 1.0) as meter:
        acceleration = lab.enable_graph_optimization()
        acceleration.options["backend"] = "eager"
        compiled = acceleration.loop.switches["compile"]
        for model, optimizer in (made(), made()):
            for step in range(190):
                trained(model, optimizer, 1, first=step, work=meter.work)
                if compiled.thread is not None:
                    compiled.thread.join()
            assert list(compiled.compiled) == [model] and "compile" in lab.status().on
            assert not acceleration.loop.stopped
            acceleration.loop.stop("of a test")


def test_a_model_that_does_not_compile_stays_as_it_is_with_the_reason(monkeypatch):
    def broken(graph, inputs):
        raise ValueError("no such backend")

    model, optimizer = made()
    with metered(monkeypatch) as meter:
        acceleration = lab.enable_graph_optimization()
        acceleration.options["backend"] = broken
        compiled = acceleration.loop.switches["compile"]
        for step in range(150):
            trained(model, optimizer, 1, first=step, work=meter.work)
            if compiled.thread is not None:
                compiled.thread.join()
        row = lab.status()["compile"]
        assert row.state == "not offered" and "does not compile" in row.why


def test_evaluation_in_between_is_neither_switched_nor_counted(monkeypatch):
    model, optimizer = made()
    outputs = []

    def evaluate():
        model.eval()
        with torch.no_grad():
            outputs.append(model(batch(0)[0]).dtype)
        model.train()

    def slow_cost(way):
        return cost(way) + 100.0 * bool(outputs and outputs.pop())

    with accelerated(monkeypatch, slow_cost) as meter:
        for step in range(150):
            if step % 3 == 0:
                evaluate()
            trained(model, optimizer, 1, first=step, work=meter.work)
        assert set(lab.status().on) == {"bf16", "channels_last", "fused_optimizer"}


def test_several_models_and_optimizers_are_one_loop(monkeypatch):
    torch.manual_seed(0)
    encoder, decoder = nn.Linear(8, 4), nn.Linear(4, 8)
    first = torch.optim.SGD(encoder.parameters(), lr=0.1)
    second = torch.optim.Adam(decoder.parameters())
    with accelerated(monkeypatch, cost) as meter:
        for step in range(60):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
            loss = F.mse_loss(decoder(encoder(x)), x)
            for optimizer in (first, second):
                optimizer.zero_grad()
            loss.backward()
            meter.work()
            first.step()
            second.step()
        status = lab.status()
        assert status.model == "Linear, Linear" and status.optimizer == "SGD, Adam"
        assert first.param_groups[0]["fused"] and second.param_groups[0]["fused"]
        assert not _global_forward_pre_hooks  # the search has ended
    assert not first.param_groups[0]["fused"] and not second.param_groups[0]["fused"]


def test_accumulation_clipping_schedulers_and_copies_work_as_they_do(monkeypatch):
    model, optimizer = made(torch.optim.SGD)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.5)
    average = torch.optim.swa_utils.AveragedModel(model)
    with accelerated(monkeypatch, cost, memory_pool=True) as meter:
        for step in range(80):
            for half in range(2):
                images, labels = batch(2 * step + half)
                (F.cross_entropy(model(images), labels) / 2).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            meter.work()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            average.update_parameters(model)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * 0.5**8)
        twin = copy.deepcopy(model)  # has nothing of the acceleration
        assert "_compiled_call_impl" not in vars(twin)
        assert lab.status().steps == 79


def test_a_model_that_fails_in_a_way_runs_without_it_in_the_same_step(monkeypatch):
    class Picky(Digits):
        def forward(self, images):
            if torch.is_autocast_enabled("cpu"):
                torch.rand(3)
                raise RuntimeError("no kernel for <this>")
            return super().forward(images)

    torch.manual_seed(0)
    model = Picky()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with accelerated(monkeypatch, cost, channels_last=False, fused_optimizer=False) as meter:
        losses = trained(model, optimizer, 30, work=meter.work)
        row = lab.status()["bf16"]
        assert row.state == "taken back" and "no kernel for <this>" in row.why
        assert "&lt;this&gt;" in lab.status()._repr_html_()
    torch.manual_seed(0)
    plain = Digits()
    # random numbers that the failed call drew were put back
    assert trained(plain, torch.optim.SGD(plain.parameters(), lr=0.01), 30) == losses


def test_an_error_of_the_loop_is_its_own_and_changes_nothing(monkeypatch):
    model, optimizer = made()
    with accelerated(monkeypatch, cost) as meter:
        trained(model, optimizer, 160, work=meter.work)
        on = lab.status().on
        with pytest.raises(RuntimeError, match="8, 3, 8, 8"):
            model(torch.randn(8, 3, 8, 8))
        assert lab.status().on == on
        trained(model, optimizer, 2, first=160, work=meter.work)


def test_a_loss_that_becomes_nan_takes_inexact_switches_back_and_skips_the_step(monkeypatch):
    class Fragile(Digits):
        def forward(self, images):
            return super().forward(images) * (float("nan") if self.breaks() else 1.0)

        def breaks(self):
            return torch.is_autocast_enabled("cpu") and self.is_weak

    torch.manual_seed(0)
    model = Fragile()
    model.is_weak = False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with accelerated(monkeypatch, cost) as meter:
        trained(model, optimizer, 160, work=meter.work)
        assert "bf16" in lab.status().on
        model.is_weak = True
        before = model.head.weight.clone()
        trained(model, optimizer, 1, first=160, work=meter.work)
        assert torch.equal(model.head.weight, before)  # the step was skipped
        assert model.head.weight.grad is not None
        trained(model, optimizer, 1, first=161, work=meter.work)
        assert not torch.equal(model.head.weight, before)
        assert "the loss became nan; the step was skipped" in lab.status()["bf16"].why
        assert "channels_last" in lab.status().on


def test_of_accumulated_losses_the_one_that_is_not_finite_is_named(monkeypatch):
    model, optimizer = made(torch.optim.SGD)
    with accelerated(monkeypatch) as meter:
        acceleration = meter.acceleration
        trained(model, optimizer, 2, work=meter.work)
        acceleration.loop.go(frozenset({"bf16"}))
        for factor in (float("nan"), 1.0):
            images, labels = batch(3)
            (factor * F.cross_entropy(model(images), labels)).backward()
        optimizer.step()
        assert any("the loss became nan; the step" in note for note in lab.status().notes)


def test_a_loss_of_nan_in_the_plain_loop_names_the_layer_and_ends_acceleration(monkeypatch):
    model, optimizer = made()
    with accelerated(monkeypatch, memory_pool=True) as meter:
        trained(model, optimizer, 60, work=meter.work)
        with torch.no_grad():
            model.features[4].weight[0, 0] = float("nan")
        trained(model, optimizer, 12, first=60, work=meter.work)
        notes = lab.status().notes
        assert any("it began in layer 'features.4' (Conv2d)" in note for note in notes)
        assert "stopped: the loss has not been finite for 10 steps" in notes


def test_a_changed_structure_is_found_and_judged_anew(monkeypatch):
    model, optimizer = made(torch.optim.SGD)
    with accelerated(monkeypatch, cost) as meter:
        trained(model, optimizer, 150, work=meter.work)
        model.head = nn.Linear(32, 3)
        optimizer.add_param_group({"params": model.head.parameters(), "lr": 0.1})
        trained(model, optimizer, 150, first=150, work=meter.work)
        status = lab.status()
        assert any("changed its structure" in note for note in status.notes)
        assert set(status.on) == {"bf16", "channels_last", "fused_optimizer"}
        assert all(group["fused"] for group in optimizer.param_groups)


def test_a_second_loop_gets_its_own_judgement_and_the_first_its_own_weights(monkeypatch):
    model, optimizer = made()
    other, other_optimizer = made(torch.optim.SGD)
    with accelerated(monkeypatch, cost) as meter:
        trained(model, optimizer, 150, work=meter.work)
        trained(other, other_optimizer, 170, work=meter.work)
        status = lab.status()
        assert status.optimizer == "SGD" and "channels_last" in status.on
        assert model.features[4].weight.is_contiguous()
        assert any("another loop has begun" in note for note in status.notes)


def test_another_thread_s_loop_is_left_alone(monkeypatch):
    with accelerated(monkeypatch, cost, memory_pool=True):
        worker = threading.Thread(target=trained, args=(*made(), 5))
        worker.start()
        worker.join()
        assert lab.status().steps == 0 and not lab.status().model


def test_an_optimizer_it_does_not_know_is_left_alone_and_that_is_said(monkeypatch):
    class Mine(torch.optim.SGD):
        pass

    model, optimizer = made(Mine)
    with accelerated(monkeypatch, cost) as meter:
        trained(model, optimizer, 100, work=meter.work)
        status = lab.status()
        assert status["fused_optimizer"].state == "not offered"
        assert "Mine is left alone: its state is not known" in status.notes
        assert set(status.on) == {"bf16", "channels_last"}


def test_a_loop_with_its_own_autocast_keeps_it(monkeypatch):
    model, optimizer = made()
    with metered(monkeypatch, cost) as meter, torch.autocast("cpu", torch.bfloat16):
        lab.enable(memory_pool=False, threads=False, compile=False)
        trained(model, optimizer, 20, work=meter.work)
        assert lab.status()["bf16"].why == "the loop has its own autocast"


def test_a_loop_after_one_with_its_own_autocast_is_offered_bf16(monkeypatch):
    with accelerated(monkeypatch, cost) as meter:
        with torch.autocast("cpu", torch.bfloat16):
            trained(*made(), 6, work=meter.work)
        trained(*made(torch.optim.SGD), 30, work=meter.work)
        assert lab.status()["bf16"].state != "not offered"


def test_nothing_of_a_disabled_loop_is_held(monkeypatch):
    model, optimizer = made()
    with accelerated(monkeypatch, cost, memory_pool=True) as meter:
        trained(model, optimizer, 30, work=meter.work)
        acceleration = meter.acceleration
        acceleration.stop()
        assert acceleration.loop.on == PLAIN and not acceleration.loop.calls
        weights = [weight for weight in gc.get_referrers(model) if weight is acceleration.loop]
        assert not weights


def test_after_it_has_stopped_no_switch_is_said_to_be_on(monkeypatch):
    with accelerated(monkeypatch, cost) as meter:
        acceleration = meter.acceleration
        trained(*made(), 160, work=meter.work)
        assert lab.status().on
        acceleration.loop.stop("of a test")
        assert lab.status().on == () and not lab.status().is_judging
        assert lab.status()["bf16"].why == "of a test"


def test_a_loop_that_scales_its_losses_itself_is_judged_by_those_before_scaling(monkeypatch):
    model, optimizer = made(torch.optim.SGD)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=20)
    before = torch.amp.GradScaler.scale
    with accelerated(monkeypatch, cost) as meter:
        acceleration = meter.acceleration
        seen = []
        monkeypatch.setattr(acceleration.loop, "_note_losses", seen.append)
        losses = []
        for step in range(160):
            images, labels = batch(step)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            both = scaler.scale([loss, loss])
            scaler.scale(loss).backward()
            assert both[0]._loss_before_scaling == loss
            meter.work()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        assert scaler.get_scale() > 8 and [loss for (loss,) in seen] == losses[1:]
        assert set(lab.status().on) == {"bf16", "channels_last", "fused_optimizer"}
    assert torch.amp.GradScaler.scale is before


def test_a_switch_that_another_one_excludes_is_taken_back_when_that_is_enabled(monkeypatch):
    with metered(monkeypatch, half) as meter:
        model, optimizer = made()
        lab.enable(precision="fp16", memory_pool=False, threads=False, compile=False)
        trained(model, optimizer, 160, work=meter.work)
        assert "fp16" in lab.status().on
        lab.enable_model_quantization()
        status = lab.status()
        assert status["fp16"].state == "not offered" and "not combined" in status["fp16"].why
        assert {"model_quantization", "channels_last"} <= set(status.on)
        trained(model, optimizer, 3, first=160, work=meter.work)


def half(way):
    return cost(way) * (0.6 if "fp16" in way else 1.0)


def test_a_closure_that_comes_later_ends_fp16_before_its_step(monkeypatch):
    model, optimizer = made(torch.optim.SGD)
    with accelerated(monkeypatch, half, precision="fp16") as meter:
        trained(model, optimizer, 160, work=meter.work)
        assert "fp16" in lab.status().on

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch(0)[0]), batch(0)[1])
            loss.backward()
            return loss

        optimizer.step(closure)
        assert "closure" in lab.status()["fp16"].why and "fp16" not in lab.status().on
        assert any(note.startswith("fp16 taken back: step() has") for note in lab.status().notes)


class Line(nn.Sequential):
    pass


def two_lines():
    """A model with repeated blocks, and its optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), *(Line(nn.Linear(64, 64), nn.ReLU()) for _ in range(2)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def test_under_a_memory_limit_blocks_are_computed_again_where_the_peak_is_above_it(monkeypatch):
    model, optimizer = two_lines()
    with metered(monkeypatch) as meter:
        acceleration = lab.enable(
            precision=None, fused_optimizer=False, memory_pool=False, threads=False,
            compile=False, memory_limit="100 B",
        )  # fmt: skip
        less = lambda device: 60 if "checkpointing" in acceleration.loop.on else 120
        monkeypatch.setattr(meter, "restart_peak", lambda device: True)
        monkeypatch.setattr(meter, "peak_bytes", less)
        trained(model, optimizer, 40, work=meter.work)
        row = lab.status()["checkpointing"]
        assert row.state == "on" and (row.without_bytes, row.with_bytes) == (120, 60)
    with pytest.raises(lab.PaifuserError, match="memory limit of 'much' cannot be read"):
        lab.enable(memory_limit="much")
    assert not features._in_force


def test_a_memory_limit_is_nothing_to_judge_by_where_the_system_counts_no_peak(monkeypatch):
    model, optimizer = two_lines()
    with metered(monkeypatch) as meter:
        lab.enable(memory_pool=False, threads=False, compile=False, memory_limit="100 B")
        monkeypatch.setattr(meter, "restart_peak", lambda device: False)
        trained(model, optimizer, 40, work=meter.work)
        row = lab.status()["checkpointing"]
        assert row.state == "not offered"
        assert row.why == "this system does not count the peak of a process's memory"


def test_an_overflow_is_skipped_by_each_optimizer_where_a_block_ends_between_them(monkeypatch):
    torch.manual_seed(0)
    first, second = nn.Linear(8, 8), nn.Linear(8, 1)
    optimizers = [torch.optim.SGD(part.parameters(), lr=1e-9) for part in (first, second)]
    with accelerated(
        monkeypatch, half, precision="fp16", channels_last=False, fused_optimizer=False
    ) as meter:
        for _ in range(60):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = (second(torch.tanh(first(torch.randn(64, 8)))) * 1e4).square().mean()
            loss.backward()
            meter.work()
            for optimizer in optimizers:
                optimizer.step()
            weights = [*first.parameters(), *second.parameters()]
            assert all(weight.isfinite().all() for weight in weights)
        assert meter.acceleration.loop.switches["fp16"].skipped > 2


class Fragile(nn.Module):
    """Its output is NaN under autocast, once it is weak."""

    def __init__(self):
        super().__init__()
        self.layer, self.is_weak = nn.Linear(4, 2), False

    def forward(self, x):
        breaks = self.is_weak and torch.is_autocast_enabled("cpu")
        return self.layer(x) * (float("nan") if breaks else 1.0)


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_step_that_was_taken_with_a_nan_is_not_said_to_be_skipped(monkeypatch, is_refused):
    torch.manual_seed(0)
    model = Fragile()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    if not is_refused:
        monkeypatch.setattr(Precision, "obstacle", lambda self, parts: "")

    def closure():
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        return loss

    with accelerated(monkeypatch, cost, fused_optimizer=False) as meter:
        for step in range(60):
            model.is_weak = step >= 50
            optimizer.step(closure)
            meter.work()
            assert ("bf16" in lab.status().on) != is_refused or step < 30 or step > 50
        notes = lab.status().notes
        assert not any("the step was skipped" in note for note in notes)
        assert model.layer.weight.isfinite().all() == is_refused
        taken = "bf16 taken back: the loss became nan; a step with its gradients was taken"
        assert (taken in notes) != is_refused


def test_a_loss_that_is_read_late_is_not_said_to_have_skipped_its_step(monkeypatch):
    torch.manual_seed(0)
    model = Fragile()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    monkeypatch.setattr(Parts, "device", torch.device("meta"))  # one whose losses are read seldom
    with accelerated(monkeypatch, cost, fused_optimizer=False) as meter:
        for step in range(82):
            model.is_weak = step >= 75
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            meter.work()
            optimizer.step()
            if step == 74:  # the loss of the next step is read five steps later
                assert lab.status().on == ("bf16",) and meter.acceleration.loop.steps == 74
        taken = "bf16 taken back: the loss became nan; a step with its gradients was taken"
        assert taken in lab.status().notes


def test_a_loop_that_checkpoints_its_model_runs_its_calls_again_in_the_same_way(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(4, 16)

    def gradients(call):
        optimizer.zero_grad()
        call(x).square().mean().backward()
        return [weight.grad for weight in model.parameters()]

    def checkpointed(x):
        return checkpoint(model, x, use_reentrant=False)

    with accelerated(monkeypatch) as meter:
        acceleration = meter.acceleration
        for _ in range(3):
            gradients(checkpointed)
            meter.work()
            optimizer.step()
        for name in ("bf16", "fused_optimizer"):
            acceleration.loop.go(frozenset({name}))
            expected = gradients(model)
            assert all(map(torch.equal, gradients(checkpointed), expected))
            assert acceleration.loop.on == {name} and not acceleration.loop.notes


def test_a_loop_that_evaluates_in_every_step_is_judged_with_that(monkeypatch):
    model, optimizer = made()
    with accelerated(monkeypatch, cost) as meter:
        for step in range(180):
            with torch.no_grad():
                model(batch(step)[0][:1])  # acts
            trained(model, optimizer, 1, first=step, work=meter.work)
        status = lab.status()
        assert set(status.on) == {"bf16", "channels_last", "fused_optimizer"}
        expected = "the model is evaluated in every step, which counts as a part of it"
        assert status.notes == (expected,)


def test_with_a_coarse_clock_of_cpu_time_the_wall_s_is_taken(monkeypatch):
    model, optimizer = made()
    with metered(monkeypatch, cost) as meter:
        monkeypatch.setattr(type(meter), "is_coarse", True)
        lab.enable(memory_pool=False, threads=False, compile=False)
        trained(model, optimizer, 20, work=meter.work)
        assert lab.status().clock == "wall" and lab.status().judged_steps


def test_a_clock_that_does_not_move_ends_judging_with_the_reason(monkeypatch):
    model, optimizer = made()
    with accelerated(monkeypatch, lambda way: 0.0) as meter:
        trained(model, optimizer, 60, work=meter.work)
        assert "the clock is too coarse" in lab.status()["channels_last"].why
        assert lab.status().on == () and not lab.status().is_judging

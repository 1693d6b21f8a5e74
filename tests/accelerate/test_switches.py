"""Each switch alone: what it changes, what it refuses, what it puts back."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

from paifuser_lab.accelerate.switches import SWITCHES, Parts, data_parallelism, precision
from paifuser_lab.accelerate.switches.base import Refusal
from paifuser_lab.accelerate.switches.compiled import MOST_GRAPHS, unnoticed_by_others
from paifuser_lab.accelerate.switches.precision import FIRST_SCALE, WHOLE_WALKS
from tests.support.training_loops import Digits, batch


def parts_of(model, kind=torch.optim.Adam, **options):
    return Parts([model], [kind(model.parameters(), **({"lr": 0.01} | options))])


def step(model, optimizer, call=None, index=0):
    images, labels = batch(index)
    optimizer.zero_grad()
    output = model(images) if call is None else call((images,), {})
    loss = F.cross_entropy(output, labels)
    loss.backward()
    return output, loss


def switch(name, **options):
    return SWITCHES[name]({"switches": {name}, **options})


def plain(model):
    return lambda args, kwargs: model(*args, **kwargs)


def test_channels_last_leaves_weights_gradients_and_moments_to_the_loop_as_they_are():
    torch.manual_seed(0)
    model, plain_model = Digits().eval(), Digits().eval()
    plain_model.load_state_dict(model.state_dict())
    parts = parts_of(model)
    (optimizer,) = parts.optimizers
    last = switch("channels_last")
    last.turn_on(parts)
    last.reshaping.add(Digits)
    seen = []
    model.features[4].register_forward_hook(lambda layer, args, output: seen.append(args[0]))
    step(model, optimizer, last.wrap(model, plain(model)))
    assert not seen[0].is_contiguous()  # the images inside
    step(plain_model, parts_of(plain_model).optimizers[0])
    for mine, other in zip(model.parameters(), plain_model.parameters(), strict=True):
        assert mine.is_contiguous() and mine.grad.is_contiguous()
        torch.testing.assert_close(mine.grad, other.grad)
    optimizer.step()
    moments = optimizer.state[model.features[4].weight]
    assert moments["exp_avg"].is_contiguous()
    # as loops do that clip, prune or average by themselves
    torch.cat([weight.grad.view(-1) for weight in model.parameters()])
    nn.utils.parameters_to_vector(model.parameters())
    prune.l1_unstructured(model.features[4], "weight", 0.5)
    model.features(batch(0)[0]).view(8, -1)


def test_channels_last_gives_gradients_to_autograd_grad_in_the_order_of_their_weights():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    parts = parts_of(model)
    last = switch("channels_last")
    call = last.wrap(model, plain(model))
    x = torch.randn(2, 3, 8, 8)

    def gradients():
        return torch.autograd.grad(call((x,), {}).sum(), list(model.parameters()))

    assert not all(gradient.is_contiguous() for gradient in gradients())
    last.turn_on(parts)
    assert all(gradient.is_contiguous() for gradient in gradients())
    last.turn_off(parts)
    assert not any(weight._backward_hooks for weight in model.parameters())


class Kept(nn.Module):
    """A layer that keeps what it computes, beside its output."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)

    def forward(self, x):
        self.features = self.encode(x)
        return self.decode(self.features)


@dataclass
class Answer:
    """An output that torch's trees do not know."""

    value: torch.Tensor


class Answering(nn.Module):
    """A convolution that wraps its output in a class."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return Answer(self.conv(x))


@pytest.mark.parametrize(
    ("name", "precision"), [("channels_last", None), ("precision", "bf16"), ("precision", "fp16")]
)
def test_a_switch_refuses_a_model_whose_values_would_reach_the_loop_changed(name, precision):
    x = torch.randn(2, 3, 8, 8)
    for model, why in ((Answering(), "output is a class whose"), (Kept(), "keeps features")):
        changed = switch(name, precision=precision)
        with pytest.raises(Refusal, match=why) as refusal:
            changed.wrap(model, plain(model))((x,), {})
        assert refusal.value.label == changed.label
    model = nn.Conv2d(3, 4, 3)
    model.mask, model.sizes = x, [torch.Size([2]), None]  # which it has from elsewhere
    changed = switch(name, precision=precision)
    assert changed.wrap(model, plain(model))((x,), {}).is_contiguous()


def test_channels_last_refuses_layers_with_hooks_that_would_see_other_strides():
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    last = switch("channels_last")
    for register in ("register_forward_hook", "register_full_backward_hook"):
        handle = getattr(model[0], register)(lambda *args: None)
        assert "a layer has hooks" in last.obstacle(parts_of(model))
        handle.remove()
    assert last.obstacle(parts_of(model)) == ""


def test_channels_last_reshapes_views_only_once_one_has_failed():
    torch.manual_seed(0)
    model = Digits().eval()
    images = batch(0)[0]
    last = switch("channels_last")
    expected = model(images)
    last.turn_on(parts_of(model))
    call = last.wrap(model, plain(model))
    with pytest.raises(RuntimeError) as failure:
        call((images,), {})
    assert last.recover(model, failure.value)
    torch.testing.assert_close(call((images,), {}), expected)
    assert not last.recover(model, failure.value)
    assert not last.recover(nn.Linear(1, 1), ValueError("another"))


def test_channels_last_gives_images_back_contiguous():
    model = nn.Conv2d(3, 4, 3)
    call = switch("channels_last").wrap(model, plain(model))
    output = call((torch.randn(2, 3, 8, 8),), {})
    assert output.is_contiguous() and output.view(2, -1).shape == (2, 144)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (nn.Linear(4, 4), "no two-dimensional convolution"),
        (nn.Conv2d(8, 8, 1, stride=2), "oneDNN writes past its end"),
        (nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last), "channels-last already"),
    ],
)
def test_channels_last_refuses_what_it_cannot_help_or_would_break(model, why):
    assert why in switch("channels_last").obstacle(parts_of(model))


def test_bf16_computes_in_autocast_and_returns_fp32():
    torch.manual_seed(0)
    model = Digits()
    parts = parts_of(model)
    half = switch("precision", precision="bf16")
    seen = []
    model.head.register_forward_hook(lambda layer, args, output: seen.append(output.dtype))
    call = half.wrap(model, plain(model))
    output, _ = step(model, parts.optimizers[0], call)
    assert seen == [torch.bfloat16] and output.dtype == torch.float32
    assert model.head.weight.grad.dtype == torch.float32
    assert half.obstacle(parts) == "" and half.label == "bf16"
    assert half.obstacle(parts_of(Digits().bfloat16())) == "the weights are bfloat16, not float32"


def test_fp16_scales_gradients_inside_the_model_only():
    torch.manual_seed(0)
    model = Digits().eval()
    parts = parts_of(model)
    optimizer = parts.optimizers[0]
    penalty = lambda: 0.01 * model.head.weight.square().sum()  # a loss of the weights themselves
    step(model, optimizer)
    penalty().backward()
    expected = [weight.grad.clone() for weight in model.parameters()]
    half = switch("precision", precision="fp16")
    output, _ = step(model, optimizer, half.wrap(model, plain(model)))
    penalty().backward()
    for weight, gradient in zip(model.parameters(), expected, strict=True):
        assert (weight.grad - gradient).norm() < 0.02 * gradient.norm() + 1e-6
    assert output.dtype == torch.float32
    assert half.before_step(optimizer) and half.scale == FIRST_SCALE


def test_fp16_scales_each_of_two_models_in_a_row_by_itself():
    torch.manual_seed(0)
    encoder, decoder, x = nn.Linear(8, 4), nn.Linear(4, 8), torch.randn(4, 8)
    decoder(encoder(x)).square().mean().backward()
    expected = encoder.weight.grad.clone()
    encoder.weight.grad = None
    half = switch("precision", precision="fp16")
    half.scale = 2.0**8  # at which nothing overflows
    first, second = half.wrap(encoder, plain(encoder)), half.wrap(decoder, plain(decoder))
    second((first((x,), {}),), {}).square().mean().backward()
    assert (encoder.weight.grad - expected).norm() < 0.02 * expected.norm()


class Scores(nn.Module):
    """Two layers, the first of which may be computed again in the backward pass."""

    def __init__(self, *, is_again=False):
        super().__init__()
        self.first, self.second, self.is_again = nn.Linear(4, 8), nn.Linear(8, 2), is_again

    def forward(self, x):
        hidden = checkpoint(self.first, x, use_reentrant=True) if self.is_again else self.first(x)
        self.penalty = hidden.float().square().mean()
        return self.second(hidden)


def of_outputs(model, call, x):
    return call((x,), {}).square().mean() + 0.1 * model.second.weight.square().sum()


def of_a_kept_value(model, call, x):
    return call((x,), {}).square().mean() + model.penalty


def of_a_gradient(model, call, x):
    (gradient,) = torch.autograd.grad(call((x,), {}).sum(), x, create_graph=True)
    return gradient.square().sum() + call((x,), {}).mean()


def of_an_inner_step(model, call, x):
    weights = dict(model.named_parameters())
    inner = torch.autograd.grad(
        call((x,), {}).square().mean(), list(weights.values()), create_graph=True
    )
    stepped = [weight - gradient for weight, gradient in zip(weights.values(), inner, strict=True)]
    return sum(weight.square().sum() for weight in stepped)


@pytest.mark.parametrize(
    ("loss_of", "options", "is_refused"),
    [
        (of_outputs, {}, False),
        (of_a_kept_value, {}, True),
        (of_a_gradient, {}, True),
        (of_an_inner_step, {}, True),
        (of_outputs, {"is_again": True}, True),
    ],
)
def test_fp16_gives_right_gradients_to_a_loss_that_it_cannot_scale_and_refuses_it(
    loss_of, options, is_refused
):
    torch.manual_seed(0)
    model = Scores(**options)
    x = torch.randn(4, 4, requires_grad=True)
    half = switch("precision", precision="fp16")
    half.scale = 2.0**8  # at which nothing overflows
    outcomes = []
    for call in (plain(model), half.wrap(model, plain(model))):
        model.zero_grad()
        loss = loss_of(model, call, x)
        if outcomes:
            half.begin_backward([loss])
        loss.backward()
        outcomes.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    assert (outcomes[1] - outcomes[0]).norm() < 0.01 * outcomes[0].norm()
    if is_refused:
        with pytest.raises(Refusal, match="gradients take another way than from the outputs"):
            call((x,), {})
    else:
        assert call((x,), {}).dtype == torch.float32


def test_fp16_looks_at_every_loss_also_when_it_walks_whole_graphs_no_more():
    model, x = Scores(), torch.randn(4, 4)
    half = switch("precision", precision="fp16")
    call = half.wrap(model, plain(model))
    for _ in range(WHOLE_WALKS + 1):
        half.begin_backward([of_outputs(model, call, x)])
    half.begin_backward([of_a_kept_value(model, call, x)])
    with pytest.raises(Refusal):
        call((x,), {})
    assert half.wrap(model, plain(model))((x,), {}).shape == (4, 2)  # of another loop


def test_fp16_computes_a_call_again_as_the_first_time_though_it_is_refused_by_then():
    torch.manual_seed(0)
    model, x = Scores(), torch.randn(4, 4)
    half = switch("precision", precision="fp16")
    half.scale = 2.0**8
    call = half.wrap(model, plain(model))
    output = checkpoint(lambda x: call((x,), {}), x, use_reentrant=False)
    loss = output.square().mean() + model.penalty
    half.begin_backward([loss])
    loss.backward()
    gradient = model.first.weight.grad.clone()
    model.zero_grad()
    (model(x).square().mean() + model.penalty).backward()
    assert (gradient - model.first.weight.grad).norm() < 0.01 * gradient.norm()


def test_fp16_lowers_its_scale_and_skips_the_step_when_a_gradient_overflows():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    half = switch("precision", precision="fp16")
    model(torch.ones(1, 2)).sum().backward()
    assert half.before_step(optimizer)
    model.weight.grad[0, 0] = float("inf")
    assert not half.before_step(optimizer)
    assert half.scale == FIRST_SCALE / 2 and "1 steps skipped" in half.why()


def test_the_fused_optimizer_takes_the_same_steps_and_leaves_the_groups_as_they_were():
    torch.manual_seed(0)
    first, second = Digits().eval(), Digits().eval()
    second.load_state_dict(first.state_dict())
    parts, other = parts_of(first), parts_of(second).optimizers[0]
    fused = switch("fused_optimizer")
    for index in range(6):
        if index == 2:
            fused.turn_on(parts)
            assert parts.optimizers[0].param_groups[0]["fused"] is True
        if index == 4:
            fused.turn_off(parts)
        for model, optimizer in ((first, parts.optimizers[0]), (second, other)):
            step(model, optimizer, index=index)
            optimizer.step()
    assert parts.optimizers[0].param_groups[0]["fused"] is other.param_groups[0]["fused"]
    for mine, theirs in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("own", [None, False])
def test_the_fused_optimizer_is_in_no_saved_state_and_stays_on_when_one_is_loaded(own):
    parts = parts_of(nn.Linear(2, 2), fused=own)
    (optimizer,) = parts.optimizers
    fused = switch("fused_optimizer")
    fused.turn_on(parts)
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["fused"] is own
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["fused"] is True
    fused.turn_off(parts)
    assert optimizer.param_groups[0]["fused"] is own
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["fused"] is own


def test_a_choice_that_is_loaded_with_an_optimizer_s_state_is_the_loop_s_own():
    parts, other = parts_of(nn.Linear(2, 2)), parts_of(nn.Linear(2, 2), foreach=True)
    (optimizer,) = parts.optimizers
    fused = switch("fused_optimizer")
    fused.turn_on(parts)
    optimizer.load_state_dict(other.optimizers[0].state_dict())
    assert optimizer.param_groups[0]["foreach"] and not optimizer.param_groups[0]["fused"]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.RMSprop, {}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.Adam, {"foreach": True}),
        (torch.optim.SGD, {"differentiable": True}),
    ],
)
def test_an_optimizer_without_a_fused_form_or_with_its_own_choice_is_left_alone(kind, options):
    obstacle = switch("fused_optimizer").obstacle(parts_of(nn.Linear(2, 2), kind, **options))
    assert obstacle.startswith(f"{kind.__name__} has no fused form")


class Reread(nn.Module):
    """The input of its activation is needed again."""

    def __init__(self):
        super().__init__()
        self.line, self.relu = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x):
        hidden = self.line(x)
        return self.relu(hidden) + hidden


class Squared(Reread):
    """The input of its activation is saved for backward."""

    def forward(self, x):
        hidden = self.line(x)
        return self.relu(hidden.exp()) * 2


def test_memory_is_reused_only_where_outputs_and_gradients_stay_equal_to_the_bit():
    torch.manual_seed(0)
    reuse = switch("memory_reuse")
    model = Digits()
    assert reuse.prove(model, (batch(0)[0],), {}, plain) == ""
    assert all(weight.grad is None for weight in model.parameters())
    x = torch.randn(3, 4)
    own_input = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))  # would change the loop's batch
    assert "read again" in reuse.prove(own_input, (x,), {}, plain)
    assert "read again" in reuse.prove(Reread(), (x,), {}, plain)
    assert "needed again" in reuse.prove(Squared(), (x,), {}, plain)
    parts, unproven = parts_of(model), Digits()
    parts.models.append(unproven)
    reuse.turn_on(parts)
    assert not any(layer.inplace for layer in unproven.modules() if isinstance(layer, nn.ReLU))
    assert [layer.inplace for layer in model.modules() if isinstance(layer, nn.ReLU)] == [True] * 2
    reuse.turn_off(parts)
    assert not any(layer.inplace for layer in model.modules() if isinstance(layer, nn.ReLU))


def test_the_adapted_rate_is_in_force_during_the_step_alone():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    adaptive = switch("adaptive_lr")
    for loss in (1.0, 1.0, float("nan")):
        adaptive.note_loss(loss)
    assert adaptive.reaction.factor == 0.5
    assert adaptive.before_step(optimizer) and optimizer.param_groups[0]["lr"] == 0.5
    assert adaptive.before_step(optimizer) and optimizer.param_groups[0]["lr"] == 0.5
    adaptive.after_step(optimizer)
    assert optimizer.param_groups[0]["lr"] == 1.0
    assert "× 0.5 since loss 3: the loss became nan" in adaptive.why()


def test_weights_trained_as_int8_lose_nothing_when_they_are_quantized():
    import paifuser_lab as lab

    torch.manual_seed(0)
    model = Digits().eval()
    parts = parts_of(model)
    call = switch("model_quantization").wrap(model, plain(model))
    output, _ = step(model, parts.optimizers[0], call)
    assert model.features[0].weight.grad.abs().sum() > 0  # gradients pass straight through
    with pytest.warns(UserWarning, match="no data"):
        quantized = lab.quantize_model(model)
    # under no_grad the quantized layers compute in another order
    torch.testing.assert_close(quantized.model(batch(0)[0]), output)


def test_threads_are_set_and_set_back(monkeypatch):
    from paifuser_lab.accelerate.switches import threads

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert "OMP_NUM_THREADS sets" in switch("threads").obstacle(parts_of(nn.Linear(2, 2)))
    monkeypatch.delenv("OMP_NUM_THREADS")
    before = torch.get_num_threads()
    monkeypatch.setattr(threads, "thread_choices", lambda: (before, before + 1))
    other = switch("threads")
    parts = parts_of(nn.Linear(2, 2))
    assert other.label == f"threads={before + 1}" and other.obstacle(parts) == ""
    other.turn_on(parts)
    assert torch.get_num_threads() == before + 1
    other.turn_off(parts)
    assert torch.get_num_threads() == before
    monkeypatch.setattr(threads, "thread_choices", lambda: (before,))
    assert "one sensible number" in switch("threads").obstacle(parts)


def test_one_process_has_nothing_to_exchange():
    assert "trains alone" in switch("data_parallelism").obstacle(parts_of(nn.Linear(2, 2)))


@pytest.mark.parametrize(("value", "is_taken"), [(1.0, True), (torch.inf, False)])
def test_processes_skip_a_step_whose_mean_gradient_is_not_finite(monkeypatch, value, is_taken):
    def mean(exchange, weights, buffers):
        for weight in weights:
            weight.grad = torch.full_like(weight, value)

    monkeypatch.setattr(data_parallelism, "mean_gradients", mean)
    parallelism = switch("data_parallelism")
    parallelism.parts = parts_of(nn.Linear(2, 2))
    assert parallelism.before_step(parallelism.parts.optimizers[0]) is is_taken


def test_a_model_that_compiles_itself_keeps_what_would_compile_it_anew():
    model = Digits()
    model.compile(backend="eager")
    parts = parts_of(model)
    for name in ("precision", "channels_last", "compile", "memory_reuse"):
        assert "compile" in switch(name).obstacle(parts)
    assert switch("fused_optimizer").obstacle(parts) == ""


def test_a_compiled_model_with_hooks_of_its_own_is_not_offered():
    model = Digits()
    model.register_forward_hook(lambda layer, args, output: None)
    assert "hooks" in switch("compile").obstacle(parts_of(model))


def test_many_graphs_of_one_loop_are_a_storm(monkeypatch):
    from paifuser_lab.accelerate.switches import compiled

    graphs = [10]
    monkeypatch.setattr(compiled, "_graphs", lambda: graphs[0])
    storm = switch("compile")
    storm.turn_on(parts_of(Digits()))
    graphs[0] += MOST_GRAPHS
    assert not storm.is_storm()
    graphs[0] += 1
    assert storm.is_storm()


def test_a_compiler_in_another_thread_is_not_noticed_in_this_one():
    begun, done = threading.Event(), threading.Event()

    def compile_aside():
        with unnoticed_by_others():
            saved = torch.random.get_rng_state(), random.getstate()
            with torch.compiler._compile_session_context():
                begun.set()
                done.wait(10)
            torch.random.set_rng_state(saved[0])
            random.setstate(saved[1])

    before = torch.random.set_rng_state, random.setstate, torch.compiler._compile_session_context
    worker = threading.Thread(target=compile_aside)
    worker.start()
    begun.wait(10)
    assert not torch.compiler.is_compiling()
    drawn = torch.rand(3), random.random()
    kept = torch.random.get_rng_state()
    following = torch.rand(3)
    torch.random.set_rng_state(kept)  # here it works as ever
    assert torch.equal(torch.rand(3), following)
    done.set()
    worker.join()
    assert not torch.equal(torch.rand(3), drawn[0]) and random.random() != drawn[1]
    after = torch.random.set_rng_state, random.setstate, torch.compiler._compile_session_context
    assert after == before


def test_fp16_sees_an_overflow_that_the_loop_clips_away():
    model = nn.Linear(2, 1)
    parts = parts_of(model, torch.optim.SGD)
    (optimizer,) = parts.optimizers
    half = switch("precision", precision="fp16")
    for gradient, is_taken in ((float("inf"), False), (1.0, True)):
        model.weight.grad = torch.full((1, 2), gradient)
        half.end_backward(parts)
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        assert half.before_step(optimizer) is is_taken
    assert half.skipped == 1
    model.weight.grad = torch.full((1, 2), float("inf"))
    assert not half.before_step(optimizer)  # also without a backward pass that was seen


@pytest.mark.parametrize("speedup", [1 / 6.6, 1.9])
def test_bf16_that_the_processor_emulates_is_tried_only_where_it_is_asked_for(monkeypatch, speedup):
    monkeypatch.setattr(precision, "product_speedup", lambda dtype: speedup)
    parts = parts_of(nn.Linear(2, 1))
    why = switch("precision", precision="auto").obstacle(parts)
    if speedup > 1:
        assert why == "" == switch("precision").obstacle(parts)
    else:
        assert "multiplies matrices 6.6 times slower in bf16 than in fp32; precision='bf16'" in why
    for name in ("bf16", "fp16"):
        assert switch("precision", precision=name).obstacle(parts) == ""
    elsewhere = parts_of(nn.Linear(2, 1, device="meta"))  # the race finds out
    assert switch("precision", precision="auto").obstacle(elsewhere) == ""
    assert switch("precision", precision="auto").label == "bf16"


def test_lower_precision_refuses_a_step_with_a_closure():
    parts = parts_of(nn.Linear(2, 1))
    parts.has_closure = True
    assert "step() has a closure" in switch("precision", precision="fp16").obstacle(parts)
    assert "too late to skip" in switch("precision").obstacle(parts)


class Block(nn.Module):
    """A residual block with dropout and batch-norm."""

    def __init__(self):
        super().__init__()
        self.line, self.norm, self.drop = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)

    def forward(self, x):
        return x + self.drop(torch.relu(self.norm(self.line(x))))


class Stacked(nn.Module):
    """Two equal blocks."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x):
        return self.blocks(x)


@pytest.mark.parametrize("precision", [None, "bf16", "fp16"])
def test_checkpointed_blocks_keep_less_and_give_the_same_gradients_and_statistics(precision):
    outcomes, kept = [], []
    for is_on in (False, True):
        torch.manual_seed(0)
        model, x = Stacked(), torch.randn(4, 8)
        call = plain(model)
        if precision is not None:
            call = switch("precision", precision=precision).wrap(model, call)
        if is_on:
            call = switch("checkpointing", memory_limit="1 MB").wrap(model, call)
        saved = []
        pack = lambda tensor, saved=saved: (saved.append(tensor.shape), tensor)[1]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = call((x,), {})
            kept.append(len(saved))
            output.square().mean().backward()
        gradients = [weight.grad for weight in model.parameters()]
        outcomes.append([output.detach(), *gradients, *model.buffers()])
        assert "forward" not in vars(model.blocks[0])
    assert kept[1] < kept[0] / 2
    assert all(map(torch.equal, *outcomes))


def test_checkpointing_refuses_what_cannot_be_computed_again():
    less = switch("checkpointing", memory_limit="1 MB")
    assert less.obstacle(parts_of(Stacked())) == "" and less.offer.limit_bytes == 10**6
    assert "no repeated blocks" in less.obstacle(parts_of(nn.Linear(2, 2)))
    model = Stacked()
    model.blocks[0].drop = nn.LeakyReLU(inplace=True)
    assert "a LeakyReLU writes into its input" in less.obstacle(parts_of(model))
    model.blocks[0].drop = nn.ReLU(inplace=True)  # twice is as once
    assert less.obstacle(parts_of(model)) == ""
    less.options["switches"] |= {"model_quantization"}
    assert "rounded weights" in less.obstacle(parts_of(Stacked()))
    for name in ("compile", "memory_reuse"):
        other = SWITCHES[name]({"switches": {name, "checkpointing"}})
        assert "computed again" in other.obstacle(parts_of(Digits()))


def test_compilers_that_overlap_leave_nothing_behind_and_keep_what_others_have_set(monkeypatch):
    before = torch.random.set_rng_state, random.setstate
    first, second = threading.Event(), threading.Event()
    entered = threading.Semaphore(0)

    def compile_aside(end):
        with unnoticed_by_others():
            entered.release()
            end.wait(10)
            state = torch.random.get_rng_state()
            torch.rand(1)
            torch.random.set_rng_state(new_state=state)  # does nothing in this thread
            entered.release()

    workers = [threading.Thread(target=compile_aside, args=(end,)) for end in (first, second)]
    for worker in workers:
        worker.start()
        assert entered.acquire(timeout=10)
    first.set()
    workers[0].join()
    drawn = torch.rand(3)
    second.set()
    workers[1].join()
    assert (torch.random.set_rng_state, random.setstate) == before
    assert not torch.equal(torch.rand(3), drawn)
    with unnoticed_by_others():
        mine = lambda state: None
        monkeypatch.setattr(random, "setstate", mine)
    assert random.setstate is mine

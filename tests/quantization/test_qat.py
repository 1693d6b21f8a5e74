"""Quantization-aware training: what is rounded, what learns, and that what was trained is what
runs.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import StepError
from paifuser_lab.model.fold import fold, plan_fold
from paifuser_lab.model.formats import Range, most_steps, quantize, scales_of, with_scales
from paifuser_lab.quantization import (
    Calibration,
    Int8Layer,
    QuantizedLayer,
    Requantization,
    requantizations,
    supported_formats,
    trace_graph,
)
from paifuser_lab.quantization.conversion import dequantize_values, quantize_values
from paifuser_lab.quantization.qat import QatInt8, prepare
from paifuser_lab.quantization.qat.straight_through import (
    LearnedRange,
    LearnedScales,
    rounded,
    rounded_weight,
    step_weight,
)
from tests.support.models import Viewed, enliven, images
from tests.support.precision import error


class Residual(nn.Module):
    """Convolutions with batch-norms, one depthwise, a residual sum, a layer read by two others, and
    a head.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.deep, self.deep_norm = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8)
        self.one, self.two = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 5)
        enliven(self)

    def forward(self, images: Tensor) -> Tensor:
        seen = F.max_pool2d(self.relu(self.norm(self.stem(images))), 2)
        deep = F.relu6(self.deep_norm(self.deep(seen)))
        return self.head(self.relu(self.one(deep) + self.two(deep)).mean((2, 3)))


def small(batches: int = 4, **more: Any) -> Workload:
    """A task that can be learned: the sign of two means."""
    pictures = [torch.randn(8, 3, 12, 12) for _ in range(batches)]
    data = [
        (one, (one[:, 0].mean((1, 2)) > 0).long() + (one[:, 1].mean((1, 2)) > 0).long())
        for one in pictures
    ]
    return Workload(Residual(), pictures[0][:2], name="small", train=data, **more)


def learning(work: Workload, name: str = "int8", **more: Any) -> Any:
    """A copy of the model with learning layers wherever there can be some."""
    model = copy.deepcopy(work.model).eval()
    wanted = {
        layer: name
        for layer, part in model.named_modules()
        if layer and any(True for _ in part.parameters(recurse=False))
    }
    return prepare(
        work, model, supported_formats(work, model, wanted, ())[0], Calibration(), **more
    )


def stirred(learners: Any) -> Any:
    """Every parameter moved a little, as training would; ranges and scales too."""
    with torch.no_grad():
        for weight in learners.model.parameters():
            weight.add_(
                0.05
                * (weight.std() if weight.numel() > 1 and weight.std() > 0 else 1.0)
                * torch.randn_like(weight)
            )
    return learners


def answer(work: Workload, model: nn.Module) -> Tensor:
    made = work.inputs.clone()(model)
    return next(
        leaf
        for leaf in (
            made.values() if isinstance(made, dict) else made if isinstance(made, tuple) else [made]
        )
    ).detach()


def gap(work: Workload, model: nn.Module) -> float:
    """How far a model's outputs to data are from the original's."""
    images = torch.cat([inputs for inputs, _ in work.test or work.train])
    with torch.no_grad():
        return error(model(images), work.model(images))


def kinds(variant: lab.Variant) -> dict[str, Any]:
    """What each quantized layer is, beside its numbers."""
    modules = variant.module.named_modules()
    return {
        name: (
            type(one),
            one.format,
            getattr(one, "requantization", Requantization()).span is None,
            one.values.shape,
        )
        for name, one in modules
        if isinstance(one, QuantizedLayer)
    }


# Roundings and their gradients


@given(
    bits=st.integers(2, 8),
    channel=st.integers(0, 1),
    shape=st.sampled_from([(4, 6), (3, 5, 3, 3), (2, 64), (8, 32, 1)]),
    stretch=st.floats(-1, 1),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_a_weight_in_training_is_what_its_whole_numbers_stand_for_to_the_bit(
    bits, channel, shape, stretch, seed
):
    torch.manual_seed(seed)
    weight = torch.randn(shape)
    scales = scales_of(weight, bits, channel=channel)
    learned = LearnedScales(weight, bits, channel, learns=True)
    assert torch.equal(learned(weight), quantize(weight, bits, channel=channel).dequantized()), (
        "it begins as one that is rounded plainly"
    )
    learned.powers.data.fill_(stretch)
    numbers = with_scales(weight, learned.scales(weight).detach(), bits, channel=channel)
    assert torch.equal(learned(weight), numbers.dequantized())
    assert torch.allclose(numbers.scales, scales * torch.tensor(stretch).exp())


@given(low=st.floats(-9, 0), high=st.floats(1e-6, 9), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_a_value_between_layers_finds_its_step_again(low, high, seed):
    torch.manual_seed(seed)
    span = Range(low, high)
    values = 6 * torch.randn(500)
    once = dequantize_values(quantize_values(values, span), span, torch.float32)
    assert torch.equal(quantize_values(once, span), quantize_values(values, span))
    assert torch.equal(LearnedRange(span, learns=True)(values), once)


@given(zero=st.integers(0, 255), scale=st.floats(0.01, 0.2), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_gradients_to_a_range_are_those_of_the_straight_through_estimator_in_double(
    zero, scale, seed
):
    torch.manual_seed(seed)
    span = Range(-zero * scale, (255 - zero) * scale)
    steps = torch.randint(-80, 336, (4, 60)).double() + torch.empty(
        4, 60, dtype=torch.double
    ).uniform_(-0.4, 0.4)
    given, weights = ((steps - zero) * scale).float().requires_grad_(), torch.randn(4, 60)
    powers = torch.zeros(2, requires_grad=True)
    torch.autograd.backward((rounded(given, powers, span) * weights).sum())

    exact, ends = (
        given.detach().double().requires_grad_(),
        torch.zeros(2, dtype=torch.double, requires_grad=True),
    )
    low, high = (ends.exp() * torch.tensor([span.low, span.high], dtype=torch.double)).unbind()
    step = (high - low) / 255
    place = (exact - low) / step
    made = low + step * (place + (place.round() - place).detach()).clamp(0, 255)
    torch.autograd.backward((made * weights.double()).sum())
    assert torch.allclose(given.grad.double(), exact.grad, atol=1e-6)
    plain = powers.grad.double() * span.scale**2 / step_weight(60, 255)
    assert torch.allclose(plain, ends.grad, rtol=1e-4, atol=1e-4 * (span.high - span.low))


@given(
    bits=st.sampled_from([3, 4, 8]),
    shape=st.sampled_from([(4, 6), (3, 5, 3, 3), (2, 64)]),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_gradients_to_a_weight_and_its_scales_are_those_of_the_straight_through_estimator_in_double(
    bits, shape, seed
):
    torch.manual_seed(seed)
    most, weights = most_steps(bits), torch.randn(shape)
    scales = (scales_of(weights, bits) * torch.empty(()).uniform_(0.5, 1.0)).requires_grad_()
    steps = torch.randint(-most - 2, most + 3, shape).double() + torch.empty(
        shape, dtype=torch.double
    ).uniform_(-0.4, 0.4)
    spread = (
        scales.detach().repeat_interleave(steps[0].numel() // scales.shape[1], dim=1).reshape(shape)
    )
    weight = (steps * spread).float().requires_grad_()
    torch.autograd.backward((rounded_weight(weight, scales, bits, channel=0) * weights).sum())

    quotient = weight.detach().double() / spread.double()
    is_inside = quotient.round().abs() <= most
    of_scale = torch.where(is_inside, quotient.round() - quotient, quotient.sign() * most)
    assert torch.allclose(weight.grad, weights * is_inside, atol=1e-6)
    expected = (of_scale * weights).reshape(*scales.shape, -1).sum(dim=-1)
    assert torch.allclose(scales.grad.double(), expected, atol=2e-5 * most)


def test_gradients_of_an_int8_layer_are_those_of_its_float_arithmetic_in_double():
    """Relu, the rounding for the next layer, the batch-norm in the weight: against the same written
    down plainly.
    """
    layer, norm = nn.Conv2d(4, 6, 3, stride=2, padding=1), enliven(nn.BatchNorm2d(6))
    span, onward = LearnedRange(Range(-3, 3), learns=True), LearnedRange(Range(0, 4), learns=True)
    made = QatInt8(layer, span, norm=norm, learns=True).eval()
    made.requantize_to(Requantization(onward.span, (0.0, None)), onward)
    images, weights = torch.randn(2, 4, 9, 9, requires_grad=True), torch.randn(2, 6, 5, 5)
    torch.autograd.backward((made(images) * weights).sum())

    exact = {
        name: value.detach().double().requires_grad_() for name, value in made.named_parameters()
    }
    given = images.detach().double().requires_grad_()
    factor = exact["norm.weight"] / (norm.running_var.double() + norm.eps).sqrt()
    bias = (exact["bias"] - norm.running_mean.double()) * factor + exact["norm.bias"]
    spread = made.scales.start.double().reshape(-1, 1, 1, 1)
    weight = (
        exact["weight"] + (spread * (exact["weight"] / spread).round() - exact["weight"]).detach()
    )
    seen = given.clamp(
        (-0.5 - span.span.zero) * span.span.scale, (255.5 - span.span.zero) * span.span.scale
    )
    seen = (
        seen
        + (
            dequantize_values(quantize_values(images.detach(), span.span), span.span, torch.float64)
            - seen
        ).detach()
    )
    answer = (
        F.conv2d(seen, weight * factor.reshape(-1, 1, 1, 1), bias, 2, 1)
        .relu()
        .clamp(max=255.5 / 255 * 4)
    )
    torch.autograd.backward((answer * weights.double()).sum())
    for name in ("weight", "bias", "norm.weight", "norm.bias"):
        assert torch.allclose(
            made.get_parameter(name).grad.double(), exact[name].grad, rtol=1e-3, atol=1e-3
        ), name
    assert error(images.grad.double(), given.grad) < 1e-4


def test_an_int8_layer_in_training_takes_its_input_by_name():
    span, x = LearnedRange(Range(-3, 3), learns=True), torch.randn(3, 4)
    layer = QatInt8(nn.Linear(4, 2), span, learns=True).eval()
    assert torch.equal(layer(input=x), layer(x))


def test_a_range_that_cuts_off_too_much_learns_to_be_wider_and_one_too_wide_to_be_narrower():
    values = torch.randn(4, 100).abs()
    for start, is_wider in ((Range(0, 0.5), True), (Range(0, 60), False)):
        span = LearnedRange(start, learns=True)
        optimizer = torch.optim.Adam(span.parameters(), lr=0.02)
        for _ in range(8):
            optimizer.zero_grad()
            torch.autograd.backward((span(values) - values).square().mean())
            optimizer.step()
        assert (span.span.high > start.high) is is_wider
        assert span.span.low == 0, "what begins at zero stays there"


def test_a_range_is_learned_on_the_device_of_the_workload(monkeypatch):
    work = Workload(nn.Sequential(nn.Linear(4, 4)), torch.randn(2, 4))
    model = copy.deepcopy(work.model).eval()
    monkeypatch.setattr(Workload, "device", torch.device("meta"))
    layer: Any = prepare(work, model, {"0": "int8"}, Calibration()).layers["0"]
    assert layer.span.powers.is_meta


# What was trained is what runs


@pytest.mark.parametrize("name", ["small", "mobilenetv2-tiny", "vit-s-tiny", "unet-tiny"])
def test_outputs_in_training_are_bit_identical_to_those_of_the_quantized_model(name):
    work = small() if name == "small" else lab.load(name)
    learners = stirred(learning(work))
    with torch.no_grad():
        trained = answer(work, learners.model)
    with_gradients = answer(work, learners.model)
    numbers = {
        layer: (one.converted().values, one.converted().scales)
        for layer, one in learners.layers.items()
    }
    learners.convert()
    live = {
        layer: one for layer, one in learners.model.named_modules() if isinstance(one, Int8Layer)
    }
    assert live.keys() == learners.layers.keys()
    for layer, one in live.items():
        assert torch.equal(one.values, numbers[layer][0]) and torch.equal(
            one.scales, numbers[layer][1]
        )
    with torch.no_grad():
        assert torch.equal(trained, answer(work, learners.model))
        assert torch.equal(with_gradients, trained)
    folded = copy.deepcopy(work.model).eval()
    fold(folded, plan_fold(folded, trace_graph(work, folded)).pairs)
    agreed = requantizations(
        trace_graph(work, folded), {layer: one.span for layer, one in live.items()}
    )
    assert {
        layer: one.requantization for layer, one in live.items() if one.requantization.span
    } == agreed, "neighbours agree on ranges after training"
    assert agreed or name == "vit-s-tiny"


@pytest.mark.parametrize("name", ["int8-weights", "int4-weights"])
@pytest.mark.parametrize("model", ["small", "bert-base-tiny"])
def test_layers_of_few_bits_answer_in_training_as_the_live_ones_do(name, model):
    work = small() if model == "small" else lab.load(model)
    learners = stirred(learning(work, name))
    with torch.no_grad():
        trained = answer(work, learners.model)
    learners.convert()
    with torch.no_grad():
        assert torch.equal(trained, answer(work, learners.model))


def test_before_training_a_model_is_what_precision_makes_of_it():
    work = small()
    placed = lab.apply(work, Recipe([{"precision": {"default": "int8"}}]))
    with torch.no_grad():
        assert error(answer(work, learning(work).model), answer(work, placed.model)) < 0.01
        bare = Workload(
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)),
            torch.randn(2, 3, 8, 8),
        )
        placed = lab.apply(bare, Recipe([{"precision": {"default": "int8"}}]))
        assert torch.equal(answer(bare, learning(bare).model), answer(bare, placed.model))


def test_a_model_may_view_what_comes_of_a_convolution_in_training():
    work = Workload(Viewed(), images())
    learners = learning(work)
    with_gradients = answer(work, learners.model)
    with torch.no_grad():
        trained = answer(work, learners.model)
        learners.convert()
        assert torch.equal(trained, answer(work, learners.model))
        assert torch.equal(with_gradients, trained)


def test_layers_that_read_one_answer_share_the_range_they_learn():
    learners = learning(small())
    assert learners.layers["one"].span is learners.layers["two"].span
    assert learners.layers["deep"].span is not learners.layers["one"].span


def test_a_batch_norm_that_is_still_loose_gathers_statistics_and_is_folded_as_it_ends():
    work = small()
    learners = learning(work)
    before = learners.layers["stem"].norm.running_mean.clone()
    learners.model.train()
    answer(work, learners.model)
    learners.model.eval()
    assert not torch.equal(learners.layers["stem"].norm.running_mean, before)
    with torch.no_grad():
        trained = answer(work, learners.model)
        learners.convert()
        assert torch.equal(trained, answer(work, learners.model))
    assert not learners.norms


def test_a_batch_norm_that_turns_channels_round_or_off_is_folded_too():
    work = small()
    work.model.norm.weight.data[:3] = torch.tensor([-1.5, 0.0, 2.0])
    learners = learning(work)
    live = learners.layers["stem"].converted()
    assert (live.scales > 0).all()
    folded = copy.deepcopy(work.model).eval()
    fold(folded, [("stem", "norm")])
    assert error(live.weight, folded.stem.weight) < 0.01
    assert not live.values[1].any()


# The step


def test_training_makes_up_for_four_bits():
    work = small(batches=8)
    plain = lab.apply(work, Recipe([{"precision": {"default": "int4-weights"}}]))
    trained = lab.apply(
        work,
        Recipe(
            [
                {
                    "qat": {
                        "default": "int4-weights",
                        "epochs": 8,
                        "learning_rate": 3e-3,
                        "answers": "values",
                    }
                }
            ]
        ),
    )
    assert gap(work, trained.model) < 0.7 * gap(work, plain.model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rate", "share"), [("int4-weights", 3e-4, 0.6), ("int8", 5e-5, 0.95)]
)
def test_on_digits_training_comes_nearer_to_the_original_than_rounding_alone(name, rate, share):
    work = lab.load("resnet18-digits-tiny")
    plain = lab.apply(work, Recipe([{"precision": {"default": name}}]))
    qat = {"default": name, "epochs": 1, "learning_rate": rate}
    trained = lab.apply(work, Recipe([{"qat": qat}]))
    assert gap(work, trained.model) < share * gap(work, plain.model)
    assert work.evaluate(trained.model) > work.evaluate(plain.model) - 0.005  # an image of 360


def test_it_ends_in_the_layers_that_precision_makes():
    work = small()
    plain = lab.apply(work, Recipe([{"precision": {"default": "int8"}}]))
    trained = lab.apply(work, Recipe([{"qat": {"epochs": 1}}]))
    assert kinds(plain) == kinds(trained) and len(kinds(plain)) == 5
    assert trained.notes[:2] == (
        "5 layers trained in int8, with their ranges and scales",
        "2 batch-norm layers folded into them",
    )
    assert trained.notes[-1] == plain.notes[-1], "as many conversions"


def test_the_exported_file_holds_the_learned_roundings_and_gives_the_same_numbers():
    work = small()
    steps: list[Any] = [
        {"qat": {"epochs": 1, "layers": {"head": "int4-weights", "one": "int8-weights"}}}
    ]
    live = lab.apply(work, Recipe(steps))
    exported = lab.apply(work, Recipe([*steps, {"backend": {"name": "onnxruntime", "threads": 1}}]))
    assert gap(work, live.model) > 1e-4, "something was rounded"
    images = work.train[0][0][:2]
    with torch.no_grad():
        assert error(exported.model(images), live.model(images)) < 0.02


def test_a_saved_model_is_loaded_without_training(tmp_path, monkeypatch):
    work = small()
    variant = lab.apply(
        work,
        Recipe([{"qat": {"epochs": 1, "default": "int8", "layers": {"head": "int4-weights"}}}]),
    )
    variant.save(tmp_path / "kept")
    monkeypatch.setattr(
        "paifuser_lab.steps.training_step.train", lambda *args, **options: pytest.fail("it trained")
    )
    again = lab.Variant.load(tmp_path / "kept", Workload(copy.deepcopy(work.model), work.inputs))
    assert kinds(again) == kinds(variant)
    with torch.no_grad():
        assert torch.equal(again.model(work.inputs.args[0]), variant.model(work.inputs.args[0]))


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "bf16"},
        {"optimizer": "sgd", "schedule": "constant"},
        {"calibration": "mse"},
        {"layers": {"head": "fp32", "de*": "int8-weights"}},
    ],
    ids=str,
)
def test_options_train_and_what_they_change_is_there(options):
    work = small()
    variant = lab.apply(work, Recipe([{"qat": {"epochs": 2, **options}}]))
    assert gap(work, variant.model) < 0.1
    if "layers" in options:
        assert {name: one[1] for name, one in kinds(variant).items()} == {
            "stem": "int8", "one": "int8", "two": "int8", "deep": "int8-weights",
        }  # fmt: skip
        assert not torch.equal(variant.module.head.weight, work.model.head.weight), (
            "what stays in fp32 learns too"
        )


def test_ranges_are_learned_unless_that_is_switched_off():
    work = small()
    plain, learned, fixed = (
        lab.apply(work, Recipe([step])).module.stem.span
        for step in (
            {"precision": {"default": "int8"}},
            {"qat": {"epochs": 1}},
            {"qat": {"epochs": 1, "learn_steps": False}},
        )
    )
    assert fixed == plain != learned


def test_labels_count_where_they_are_asked_to():
    work = small(loss=F.cross_entropy)
    options = {"epochs": 6, "learning_rate": 3e-3}
    taught, labelled = (
        lab.apply(work, Recipe([{"qat": {**options, "hard": hard}}])).model for hard in (0.0, 1.0)
    )
    with torch.no_grad():
        of_taught, of_labelled = (
            sum(float(work.loss(model(x), y)) for x, y in work.train)
            for model in (taught, labelled)
        )
    assert of_labelled < of_taught and gap(work, taught) < gap(work, labelled)


def test_without_labels_only_the_original_is_learned_from_and_a_note_reports_it():
    work = small(1, loss=F.cross_entropy)
    work.train = [(images, None) for images, _ in work.train]
    variant = lab.apply(work, Recipe([{"qat": {"epochs": 1, "hard": 0.5}}]))
    assert "learned from the original alone, as there are no labels" in variant.notes


def test_batch_norms_are_frozen_when_their_share_of_the_steps_is_done(monkeypatch):
    loose: list[bool] = []
    forward = QatInt8.forward

    def seen_forward(layer: QatInt8, images: Tensor) -> Tensor:
        if torch.is_grad_enabled() and layer.norm is not None and layer.weight.shape[1] == 3:
            loose.append(layer.norm.training)
        return forward(layer, images)

    monkeypatch.setattr(QatInt8, "forward", seen_forward)
    lab.apply(
        small(), Recipe([{"qat": {"epochs": 2, "freeze_norms_after": 0.5, "answers": "values"}}])
    )
    assert loose == [True] * 4 + [False] * 4


def test_patterns_add_up_and_the_label_says_what_is_trained():
    recipe = Recipe([{"qat": {"layers": {"head": "fp32"}}}])
    step = recipe.steps[0].joined(
        Recipe([{"qat": {"layers": {"one": "int4-weights"}, "epochs": 1}}]).steps[0]
    )
    assert step.label == "qat int8 · head: fp32 · one: int4-weights · 1 epoch"


@pytest.mark.parametrize(
    ("steps", "change", "message"),
    [
        ([{"qat": {}}], {"train": None}, "has no train data; give the workload data"),
        ([{"qat": {"hard": 0.5}}], {}, "hard: 0.5 asks for the workload's own loss"),
        ([{"qat": {"default": "fp32"}}], {}, "no layer is to be in integers"),
        (
            [{"qat": {"default": "fp32", "layers": {"relu": "int8"}}}],
            {},
            "no layer is to be in integers",
        ),
        ([{"qat": {"layers": {"norm": "int8"}}}], {}, "layer 'norm' .* cannot be in int8"),
        ([{"precision": {"default": "int8"}}, {"qat": {}}], {}, "put 'qat' before precision"),
        ([{"precision": {"default": "bf16"}}, {"qat": {}}], {}, "small steps are lost"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(steps, change, message):
    work = small()
    for name, value in change.items():
        setattr(work, name, value)
    with pytest.raises(StepError, match=message):
        lab.apply(work, Recipe(steps))

"""Layers in int8: the arithmetic, the values that stay in int8 between them, and the
format a click gives them.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import StepError
from paifuser_lab.model.formats import Range, format_of, quantize, rounded
from paifuser_lab.model.graph import observe
from paifuser_lab.model.tensors import is_channels_last
from paifuser_lab.model.weights import weights_bytes
from paifuser_lab.quantization import (
    Calibration,
    Int8Tensor,
    QuantizedLayer,
    Requantization,
    calibrate,
    count_conversions,
    quantized_layer,
    requantizations,
)
from paifuser_lab.quantization.calibration import _Histogram
from paifuser_lab.quantization.layers import on_gpu
from paifuser_lab.quantization.quantize import spans_of
from paifuser_lab.variant.cache import _module_bytes
from tests.support.models import Viewed, images
from tests.support.precision import chosen, error


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Block(nn.Module):
    """A residual block with relu, pooling and a head, in which most values could stay in int8."""

    def __init__(self, relu: nn.Module | None = None) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.one = nn.Conv2d(8, 8, 3, padding=1)
        self.two = nn.Conv2d(8, 8, 3, padding=1)
        self.relu = relu or nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        seen = F.max_pool2d(self.relu(self.norm(self.stem(images))), 2)
        out = self.two(self.relu(self.one(seen)))
        out += seen
        return self.head(self.relu(out).mean((2, 3)))


def block(relu: nn.Module | None = None) -> Workload:
    work = Workload(Block(relu), torch.randn(2, 3, 12, 12))
    work.model.norm.running_mean.normal_()
    work.model.norm.running_var.uniform_(0.5, 2)
    return work


@given(
    bits=st.integers(2, 8),
    channel=st.integers(0, 1),
    shape=st.sampled_from([(4, 6), (3, 5, 3, 3), (2, 64), (8, 32, 1)]),
)
@settings(max_examples=30, deadline=None)
def test_rounding_changes_no_number_by_more_than_half_a_step(bits, channel, shape):
    weight = torch.randn(shape)
    made = quantize(weight, bits, channel=channel)
    steps = made.scales.amax(dim=1)
    bound = steps.reshape([-1 if place == channel else 1 for place in range(len(shape))]) / 2
    assert ((made.dequantized() - weight).abs() <= bound * 1.0001).all()
    assert (
        torch.equal(
            rounded(made.dequantized(), f"int{bits}-weights", channel=channel), made.dequantized()
        )
        or bits == 2
    )


def test_zero_is_always_a_step_and_a_constant_has_one_too():
    for span in (Range(-1, 3), Range(2, 5), Range(-5, -2), Range(0, 0)):
        assert float(span.rounded(torch.zeros(1))) == 0
        assert 0 <= span.zero <= 255
    assert float(Range(0, 0).rounded(torch.zeros(3)).sum()) == 0


def test_formats_are_known_by_name():
    assert (
        format_of("int3-weights").weight_bits == 3 and not format_of("int3-weights").rounds_inputs
    )
    with pytest.raises(ValueError, match="'int9' is no format; there are fp32"):
        format_of("int9")


LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(12, 7), (2, 5, 12)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding="same"), (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False), (2, 4, 9, 9)),
    "depthwise": (lambda: nn.Conv2d(6, 6, 3, groups=6, dilation=2), (2, 6, 9, 9)),
    "unbatched": (lambda: nn.Conv2d(4, 6, 3), (4, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 3, padding=1), (1, 2, 5, 5, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_an_int8_layer_is_the_plain_layer_on_rounded_numbers(name):
    make, shape = LAYERS[name]
    layer, inputs = make(), torch.randn(shape)
    span = Range(float(inputs.min()), float(inputs.max()))
    twin = copy.deepcopy(layer)
    twin.weight.data = rounded(layer.weight, "int8")
    with torch.no_grad():
        made = quantized_layer(layer, "int8", span)
        assert error(made(inputs), twin(span.rounded(inputs))) < 1e-5
        assert error(made(inputs), layer(inputs)) < 0.05
        assert torch.equal(made.weight, twin.weight)


@pytest.mark.parametrize("name", LAYERS)
def test_an_int8_layer_is_pickled(name):
    make, shape = LAYERS[name]
    made, inputs = quantized_layer(make(), "int8", Range(-1.0, 1.0)), torch.randn(shape)
    with torch.no_grad():
        assert torch.equal(pickle.loads(pickle.dumps(made))(inputs), made(inputs))


@pytest.mark.parametrize("layers", [{}, {"two": "fp32"}, {"head": "fp32"}], ids=str)
def test_a_model_may_view_what_comes_of_a_convolution_in_int8(layers):
    work = Workload(Viewed(), images())
    variant = chosen(work, default="int8", layers=layers)
    assert error(variant.model(work.inputs.args[0]), work.output()) < 0.08


@pytest.mark.parametrize(
    "steps", [["layout", {"precision": "int8"}], [{"precision": "int8"}, "layout"]]
)
def test_float_outputs_are_channels_last_in_a_model_that_is(steps):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Softplus(), nn.Conv2d(8, 8, 3), nn.Softplus())
    variant = lab.apply(Workload(net, torch.randn(2, 3, 9, 9)), Recipe(steps))
    seen = []
    for layer in variant.module.modules():
        if isinstance(layer, nn.Softplus):
            layer.register_forward_pre_hook(lambda _, args: seen.append(is_channels_last(args[0])))
    variant.model(variant.work.inputs.args[0])
    assert seen == [True, True]


@given(
    rows=st.integers(1, 40),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 20),
    low=st.floats(-3, 0),
    high=st.floats(0.1, 4),
)
@settings(max_examples=25, deadline=None)
def test_the_product_that_a_gpu_has_gives_the_same_numbers(rows, inputs, outputs, low, high):
    layer, span = nn.Linear(inputs, outputs), Range(low, high)
    made = quantized_layer(layer, "int8", span)
    steps = torch.randint(0, 256, (rows, inputs), dtype=torch.uint8)
    with torch.no_grad():
        wanted = F.linear((steps.float() - span.zero) * span.scale, made.weight, layer.bias)
        got = on_gpu.int_mm_linear(steps, span, made.values, made.scales[:, 0], made.bias)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["int8-weights", "int4-weights"])
@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda: nn.Linear(33, 7), torch.randn(40, 33)),
        (lambda: nn.Linear(64, 7, bias=False), torch.randn(2, 3, 64)),
        (lambda: nn.Linear(20, 30), torch.randn(2, 20)),
        (lambda: nn.Conv2d(4, 6, 3), torch.randn(1, 4, 9, 9)),
        (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), torch.randn(1, 4, 5, 5)),
        (lambda: nn.Embedding(10, 7), torch.tensor([[1, 2, 9], [0, 0, 3]])),
    ],
)
def test_a_layer_of_few_bits_computes_with_its_rounded_weights(name, make, inputs):
    layer = make()
    twin, channel = copy.deepcopy(layer), 1 if isinstance(layer, nn.ConvTranspose2d) else 0
    twin.weight.data = rounded(layer.weight, name, channel=channel)
    made = quantized_layer(layer, name)
    with torch.no_grad():
        assert error(made(inputs), twin(inputs)) < 5e-3
    assert torch.equal(made.weight, twin.weight)
    assert weights_bytes(made) < weights_bytes(layer) * (0.5 if name == "int8-weights" else 0.35)
    assert made.quantized_count == sum(one.numel() for one in layer.parameters())


def test_values_stay_in_int8_through_relu_and_pooling_and_the_answer_is_the_same():
    work = block()
    variant = chosen(work, default="int8")
    with torch.no_grad(), count_conversions() as conversions:
        stayed = variant.model(work.inputs.args[0])
    assert conversions == {"to int8": 3, "kept": 1}, (
        "the images, the pooled values, which the sum reads too, and the mean"
    )
    alone = copy.deepcopy(variant.module)
    for layer in (alone.stem, alone.one, alone.two, alone.head):
        layer.requantization = Requantization()
    with torch.no_grad(), count_conversions() as conversions:
        assert error(alone(work.inputs.args[0]), stayed) < 0.02
    assert conversions == {"to int8": 4}
    assert error(stayed, work.output()) < 0.05


@pytest.mark.parametrize(
    "relu", [nn.ReLU(), nn.ReLU6(), nn.ReLU6(inplace=True), nn.Hardtanh(-1, 2), nn.GELU()]
)
def test_whatever_follows_an_int8_layer_its_answer_is_right(relu):
    work = block(relu)
    assert error(chosen(work, default="int8").model(work.inputs.args[0]), work.output()) < 0.08


STEPS = Int8Tensor(torch.randint(0, 255, (2, 4, 6, 6), dtype=torch.uint8), Range(-1.0, 2.0))


@pytest.mark.parametrize(
    "change",
    [
        F.relu,
        lambda one: F.relu(one, inplace=True),
        F.relu6,
        lambda one: F.hardtanh(one, -0.5, 0.5),
        lambda one: F.hardtanh(one, 0.5, 1),
        lambda one: F.max_pool2d(one, 3, 2, 1),
        lambda one: one + one,
        lambda one: one.flatten(1),
        lambda one: one.permute(0, 2, 3, 1),
        lambda one: torch.cat([one, one], 1),
        lambda one: one.mean((2, 3)),
        lambda one: one[:, 1:3],
        lambda one: one.add_(1),
        lambda one: one.clone().mul_(2),
        lambda one: F.gelu(one),
        lambda one: one.to(torch.bfloat16),
        lambda one: one.reshape(2, -1),
        lambda one: F.relu(one).add_(1),
    ],
)
def test_an_int8_tensor_is_a_tensor_of_numbers_like_any_other(change):
    one = Int8Tensor(STEPS.quantized.clone(), STEPS.span)
    plain = one.dequantized()
    with torch.no_grad():
        made = change(one)
        wanted = change(plain)
    got = made.dequantized() if isinstance(made, Int8Tensor) else made
    assert got.dtype == wanted.dtype
    torch.testing.assert_close(got, wanted, atol=float(STEPS.span.scale), rtol=0)


def test_writing_into_a_part_of_an_int8_tensor_is_refused_not_lost():
    one = Int8Tensor(STEPS.quantized.clone(), STEPS.span)
    with torch.no_grad(), pytest.raises(StepError, match="writes in place into a part"):
        one[:, 0].add_(1)


def test_a_reader_that_is_not_in_int8_is_given_numbers():
    work = block()
    spans = calibrate(work.model, [lambda: work.output()], ["one", "two"])
    graph = observe(work.model, lambda: work.output())
    assert requantizations(graph, spans).keys() == {"one"}, "two is read by a sum"
    assert requantizations(graph, {"one": spans["one"]}) == {}
    assert requantizations(graph, spans)["one"].clamp == (0.0, None)


@pytest.mark.parametrize("how", ["min-max", "percentile", "mse"])
def test_ranges_come_from_the_data_and_outliers_may_be_cut(how):
    layer = nn.Sequential(nn.Linear(4, 4))
    values = torch.randn(400, 4)
    values[0, 0] = 100.0
    span = calibrate(layer, [lambda: layer(values), lambda: layer(values / 2)], ["0"], how)["0"]
    assert span.high < 100 if how == "percentile" else span.high <= 100.01
    full = Range(float(values.min()), 100.0)
    if how == "mse":
        assert error(span.rounded(values), values) <= error(full.rounded(values), values)
    assert span.low <= 0 <= span.high
    constant = calibrate(layer, [lambda: layer(torch.zeros(2, 4))], ["0"], how)["0"]
    assert (constant.low, constant.high, constant.scale) == (0, 0, 1)


def test_equal_weights_that_compute_something_else_have_ranges_of_their_own():
    work = Workload(nn.Sequential(nn.ReLU(), nn.Linear(4, 4)), torch.randn(8, 4))
    other = copy.deepcopy(work.model)
    other[0] = nn.Identity()
    spans = [spans_of(work, model, ["1"], Calibration())["1"] for model in (work.model, other)]
    assert spans[0].low == 0 > spans[1].low


def test_a_histogram_of_values_on_a_gpu_is_where_its_centres_are():
    histogram = _Histogram(-1.0, 1.0)
    with FakeTensorMode():
        histogram.count(torch.empty(8, device="cuda:0"))
        assert histogram.counts.device == histogram.centres.device


def test_ranges_are_those_of_the_data_that_a_workload_has_now():
    work = Workload(nn.Sequential(nn.Linear(4, 4)), torch.randn(8, 4))
    before = spans_of(work, work.model, ["0"], Calibration())["0"]
    work.train = [(100 * torch.randn(8, 4), torch.zeros(8))]
    assert spans_of(work, work.model, ["0"], Calibration())["0"].high > 10 * before.high


def test_layers_that_are_called_several_times_are_counted_at_each_call():
    class Repeated(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(self.layer(self.layer(x).exp()).exp())

    work = Workload(Repeated(), torch.randn(8, 4))
    notes = lab.apply(work, lab.Recipe([{"precision": "int8"}])).notes
    assert any("3 tensors to int8" in note and "; 0 layers receive int8" in note for note in notes)


@pytest.mark.parametrize("name", ["int8", "int8-weights"])
def test_a_layer_of_two_names_is_quantized_under_both(name, tmp_path):
    layer = nn.Linear(4, 4)
    work = Workload(nn.Sequential(layer, nn.ReLU(), layer), torch.randn(8, 4), name="repeated")
    variant = chosen(work, default=name)
    saved = lab.load(variant.save(tmp_path / "saved"), work=work)
    for model in (variant.module, saved.model):
        assert isinstance(model[0], QuantizedLayer) and model[2] is model[0]
    assert torch.equal(variant.model(work.inputs.args[0]), saved.model(work.inputs.args[0]))


def test_an_embedding_in_integers_keeps_the_dtype_around_it():
    model = nn.Sequential(nn.Embedding(8, 32), nn.LayerNorm(32), nn.Linear(32, 4)).bfloat16()
    work = Workload(model, torch.arange(8)[None])
    variant = lab.apply(work, lab.Recipe([{"precision": "int8-weights"}, "layout"]))
    assert variant.workload.output().dtype == torch.bfloat16


def span_of(values: Tensor, how: Any) -> Range:
    layer = nn.Sequential(nn.Linear(values.shape[1], 1))
    return calibrate(layer, [lambda: layer(values)], ["0"], how)["0"]


def test_mse_clips_a_lone_outlier_where_that_loses_less_in_all():
    values = torch.randn(50_000, 8)
    values[0, 0] = 20.0
    span, full = span_of(values, "mse"), Range(float(values.min()), 20.0)
    assert 4 < span.high < 17
    assert error(span.rounded(values), values) < 0.9 * error(full.rounded(values), values)


def test_percentile_gives_up_the_outliers_and_nearly_nothing_else():
    values = torch.linspace(-1, 1, 400_000).reshape(-1, 8)
    span = span_of(values, "percentile")
    assert -1 <= span.low < -0.998 and 0.998 < span.high <= 1
    values[0, 0] = 5.0
    assert 0.99 < span_of(values, "percentile").high < 1.01


@pytest.mark.parametrize("how", ["another span", "written into", "as it wants"])
def test_steps_are_taken_as_they_are_only_where_they_are_of_the_layers_own_span(how):
    span = Range(-1.0, 2.0)
    layer = quantized_layer(nn.Linear(8, 4), "int8", span)
    steps = torch.randint(0, 256, (3, 8), dtype=torch.uint8)
    given = Int8Tensor(steps, Range(-2.0, 0.5) if how == "another span" else span)
    with torch.no_grad():
        if how == "written into":
            given.mul_(0.25)
        plain = given.dequantized()
        torch.testing.assert_close(layer(given), layer(plain))
        assert error(layer(given), F.linear(plain.clamp(-1, 2), layer.weight, layer.bias)) < 0.05


def test_a_layer_does_not_hand_on_to_readers_that_want_different_spans():
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, values: Tensor) -> Tensor:
            seen = self.stem(values)
            return self.left(seen) + self.right(seen)

    model = Fork()
    graph = observe(model, lambda: model(torch.randn(2, 4)))
    spans = {"stem": Range(-1, 1), "left": Range(-2, 2), "right": Range(-2, 2)}
    assert requantizations(graph, spans)["stem"].span == Range(-2, 2)
    assert "stem" not in requantizations(graph, spans | {"right": Range(-2, 3)})


@pytest.mark.parametrize(
    "options",
    [
        {"default": "int8"},
        {"default": "int4-weights", "compensate": ["rounding"]},
        {"default": "int4-weights", "compensate": ["bias"]},
    ],
    ids=str,
)
def test_a_nan_in_the_data_names_the_layer_that_is_given_it(options):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    work = Workload(
        model, torch.randn(2, 4), train=[(torch.full((2, 4), float("nan")), torch.zeros(2))]
    )
    with pytest.raises(StepError, match=r"layer '0' \(Linear\) receives a NaN"):
        chosen(work, **options)


def test_a_layer_that_cannot_is_an_error_by_name_and_left_alone_by_pattern():
    work = Workload(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.Conv2d(4, 4, 3)),
        torch.randn(1, 3, 8, 8),
    )
    with pytest.raises(StepError, match=r"layer '0' \(Conv2d\) cannot be in int8: its padding"):
        chosen(work, layers={"0": "int8"})
    variant = chosen(work, layers={"*": "int8"})
    assert (
        type(variant.module[0]) is nn.Conv2d
        and type(variant.module[1]).__name__ == "Int8Convolution"
    )
    assert any("layer '0' stays as it is" in note for note in variant.notes)
    with pytest.raises(StepError, match="none of the chosen layers can be in int8"):
        chosen(Workload(nn.Sequential(nn.LayerNorm(4)), torch.randn(2, 4)), default="int8")


def test_a_weight_that_another_layer_reads_is_left_alone():
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.raises(StepError, match="never called"):
        chosen(
            Workload(attention, torch.randn(2, 3, 8)), layers={"self_attn.out_proj": "int8-weights"}
        )


def test_dead_channels_and_constant_inputs_give_zeros_not_nans():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].weight.data[1] = 0
    model[0].bias.data[:] = -100
    work = Workload(model, torch.randn(3, 4))
    assert torch.isfinite(chosen(work, default="int8").model(torch.randn(3, 4))).all()


def test_one_layer_at_a_time_as_a_click_does_and_back():
    work = block()
    recipe = (
        Recipe()
        .with_step({"precision": {"layers": {"one": "int8"}}})
        .with_step({"precision": {"layers": {"two": "int4-weights"}}})
    )
    variant = lab.apply(work, recipe)
    assert [
        type(variant.module.get_submodule(name)).__name__ for name in ("stem", "one", "two")
    ] == [
        "Conv2d",
        "Int8Convolution",
        "WeightsOnly",
    ]
    back = recipe.with_step({"precision": {"layers": {"one": "fp32", "two": "fp32"}}})
    assert torch.equal(lab.apply(work, back).model(work.inputs.args[0]), work.output())


def test_int8_layers_live_in_a_model_of_16_bits():
    work = block()
    variant = chosen(work, default="bf16", layers={"one": "int8"})
    assert (
        variant.module.one.scales.dtype == torch.float32
        and variant.module.two.weight.dtype == torch.bfloat16
    )
    assert error(variant.model(work.inputs.args[0]), work.output()) < 0.05


class Named(nn.Module):
    """Layers that are called with their inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.line = nn.Embedding(9, 16), nn.Linear(16, 16)

    def forward(self, ids: Tensor) -> Tensor:
        return F.relu(self.line(input=self.table(input=ids)))


@pytest.mark.parametrize(
    ("layer", "name"),
    [("line", "int8"), ("line", "int8-weights"), ("table", "int8-weights")],
)
def test_a_quantized_layer_takes_its_input_by_name(layer, name):
    work = Workload(Named(), torch.randint(0, 9, (2, 4)))
    variant = chosen(work, layers={layer: name})
    assert isinstance(variant.module.get_submodule(layer), QuantizedLayer)
    assert error(variant.model(work.inputs.args[0]), work.output()) < 0.05


def test_an_embedding_of_few_bits_outputs_the_format_around_it():
    model = nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    work = Workload(model, torch.randint(0, 9, (2, 4)))
    variant = chosen(work, default="bf16", layers={"0": "int4-weights"})
    assert error(variant.model(work.inputs.args[0]), work.output()) < 0.2
    assert variant.module[0].scales.dtype == torch.float32


def test_a_quantized_model_is_copied_and_counted():
    work = block()
    variant = chosen(work, default="int8")
    again = copy.deepcopy(variant.module)
    with torch.no_grad():
        assert torch.equal(again(work.inputs.args[0]), variant.model(work.inputs.args[0]))
    again.load_state_dict(variant.module.state_dict())
    row = lab.compare(work, int8=variant, rounds=1)["int8"]
    plain = lab.compare(work, folded=Recipe(["fold"]), rounds=1)["folded"]
    assert row.parameters == plain.parameters
    assert row.flops == pytest.approx(plain.flops)
    assert row.size_bytes < plain.size_bytes * 0.4


@pytest.mark.parametrize(("name", "copies"), [("int8-weights", 1), ("int4-weights", 2)])
def test_a_layer_that_ran_is_held_once_more_where_its_integers_are_packed(name, copies):
    layer = quantized_layer(nn.Linear(64, 32), name)
    with torch.no_grad():
        layer(torch.randn(1, 64))
    assert _module_bytes(layer) == copies * weights_bytes(layer)

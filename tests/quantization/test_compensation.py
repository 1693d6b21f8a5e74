"""What compensates the error of rounding: exact where it says so, better than plain where it says
so, and the note on what it gained.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from paifuser_lab import Recipe, Workload, apply
from paifuser_lab.errors import RecipeError, StoppedError
from paifuser_lab.model.formats import quantize
from paifuser_lab.model.graph import observe
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.quantization import Technique, calibrate, count_conversions
from paifuser_lab.quantization.compensation import TECHNIQUES, Context
from paifuser_lab.quantization.compensation.operands import layer_operands
from paifuser_lab.quantization.compensation.rescale import equalise, smooth
from paifuser_lab.quantization.compensation.rounding import round_adaptively, round_to_hessian
from paifuser_lab.quantization.compensation.techniques import correct_bias
from tests.support.models import Conv1D
from tests.support.precision import chosen, error


class Block(nn.Module):
    """Attention's shape without attention: a norm that two linear layers read, and one that a sum
    reads too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        self.one, self.two, self.out = (
            nn.Linear(16, 8),
            nn.Linear(16, 8, bias=False),
            nn.Linear(16, 16),
        )
        for norm in (self.before, self.after):
            nn.init.uniform_(norm.weight, 0.1, 8)
            nn.init.normal_(norm.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        seen = self.before(tokens)
        tokens = self.after(tokens + torch.cat([self.one(seen), self.two(seen)], -1))
        return tokens + self.out(tokens)


def scene_of(
    model: nn.Module, inputs: Tensor, name: str = "int8", layers: list[str] | None = None
) -> Context:
    """All layers with weights of two dimensions or more are chosen, and the inputs are the data."""
    model.eval()
    found = [
        path
        for path, one in model.named_modules()
        if getattr(one, "weight", None) is not None and one.weight.ndim > 1
    ]
    runs = [lambda: model(inputs)]
    return Context(
        model,
        observe(model, runs[0]),
        dict.fromkeys(layers or found, name),
        runs,
        lambda: calibrate(model, runs, found) if name == "int8" else {},
    )


def correlated(rows: int, columns: int) -> Tensor:
    """What layers are given in a network: columns that go together, on a mean that is not zero."""
    return (
        torch.randn(rows, 4) @ torch.randn(4, columns)
        + 0.3 * torch.randn(rows, columns)
        + torch.randn(columns)
    )


def uneven(model: nn.Module) -> nn.Module:
    """Give channels ranges that differ a hundredfold."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.weight.data *= torch.logspace(-1, 1, len(module.weight)).reshape(
                -1, *(1,) * (module.weight.ndim - 1)
            )
    return model


PAIRS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)),
        (2, 3, 9, 9),
        1,
    ),
    "in place": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3, bias=False)
        ),
        (2, 3, 9, 9),
        1,
    ),
    "nothing between": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 4)), (5, 6), 1),
    "rows of rows": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4, bias=False)),
        (2, 5, 6),
        1,
    ),
    "depthwise": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.ReLU(),
            nn.Conv2d(8, 4, 1),
        ),
        (2, 3, 9, 9),
        2,
    ),
    "groups": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=2), nn.ReLU(), nn.Conv2d(8, 6, 3, groups=2)
        ),
        (2, 4, 9, 9),
        1,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equalising_leaves_the_function_as_it_is_and_makes_ranges_agree(name):
    make, shape, pairs = PAIRS[name]
    model, inputs = uneven(make()), torch.randn(shape)
    before, weights = model(inputs), weights_hash(model)
    assert equalise(scene_of(model, inputs)).count == pairs
    assert weights_hash(model) != weights
    assert error(model(inputs), before) < 1e-5
    layers = [one for one in model if not isinstance(one, nn.ReLU)]
    for one, other in pairwise(layers):
        groups = getattr(other, "groups", 1)
        taken = other.weight.detach().reshape(
            groups, len(other.weight) // groups, other.weight.shape[1], -1
        )
        made = one.weight.detach().flatten(1).abs().amax(1)
        torch.testing.assert_close(made, taken.abs().amax((1, 3)).flatten(), rtol=0.02, atol=0)


def test_a_clamp_between_two_layers_does_not_scale_and_is_reported():
    model = uneven(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Conv2d(8, 4, 3)))
    before = weights_hash(model)
    done = equalise(scene_of(model, torch.randn(1, 3, 9, 9)))
    assert done.count == 0 and "1 pair left alone: a clamp such as relu6" in done.note
    assert weights_hash(model) == before


class Read(nn.Module):
    """Two layers, with something else done to what is between them."""

    def __init__(self, other: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.one, self.two, self.other = nn.Linear(4, 4), nn.Linear(4, 4), other

    def forward(self, x: Tensor) -> Any:
        return self.other(self, self.one(x))


@pytest.mark.parametrize(
    "other",
    [
        lambda model, seen: model.two(seen) + seen,
        lambda model, seen: (model.two(seen), seen),
        lambda model, seen: model.two(F.gelu(seen)),
        lambda model, seen: model.two(seen + 1),
        lambda model, seen: model.two(model.two(seen)),
        lambda model, seen: model.two(seen.t()),
        lambda model, seen: model.two(seen.reshape(2, 2, 4).transpose(1, 2).reshape(4, 4)),
    ],
)
def test_layers_are_only_rescaled_where_nothing_else_sees_it(other):
    model, inputs = uneven(Read(other)), torch.randn(4, 4)
    assert equalise(scene_of(model, inputs)).count == 0


def test_a_channel_that_is_dead_on_either_side_keeps_its_numbers():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    model[0].weight.data[0] = 0
    model[2].weight.data[:, 1] = 0
    inputs = torch.randn(5, 4)
    before = model(inputs)
    assert equalise(scene_of(model, inputs)).count == 1
    assert all(bool(torch.isfinite(one).all()) for one in model.parameters())
    assert error(model(inputs), before) < 1e-5


def test_smoothing_leaves_the_function_as_it_is_and_only_takes_norms_that_int8_layers_read_alone():
    model, inputs = Block(), torch.randn(2, 5, 16) * torch.logspace(-1, 1, 16)
    after = model.after.weight.detach().clone()
    before, peaks = model(inputs), model.before(inputs).detach().abs().flatten(0, 1).amax(0)
    assert smooth(scene_of(model, inputs)).count == 1
    assert error(model(inputs), before) < 1e-5
    assert torch.equal(model.after.weight, after), "a sum reads it too"
    found = model.before(inputs).detach().abs().flatten(0, 1).amax(0)
    weights = torch.maximum(model.one.weight.abs().amax(0), model.two.weight.abs().amax(0)).detach()
    torch.testing.assert_close(found, weights), "with a half share both come to the same range"
    assert float(found.max() / found.min()) < float(peaks.max() / peaks.min())


def test_smoothing_is_for_int8_alone_and_for_all_readers_of_a_norm():
    inputs = torch.randn(2, 5, 16)
    assert smooth(scene_of(Block(), inputs, "int4-weights")).count == 0
    assert smooth(scene_of(Block(), inputs, layers=["one", "out"])).count == 0


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(64, 7), (40, 64)),
    "rows of rows": (lambda: nn.Linear(12, 7, bias=False), (4, 9, 12)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding="same"), (2, 4, 30)),
    "uneven padding": (lambda: nn.Conv1d(4, 6, 4, padding="same"), (2, 4, 30)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 9)),
    "reflect": (lambda: nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="reflect"), (2, 4, 9, 9)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, groups=2), (2, 4, 9, 9)),
    "depthwise": (lambda: nn.Conv2d(6, 12, 3, groups=6, dilation=2), (2, 6, 9, 9)),
    "unbatched": (lambda: nn.Conv2d(4, 6, 3), (4, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(2, 4, (1, 2, 3), padding=1), (2, 2, 5, 5, 5)),
    "gpt2": (lambda: Conv1D(7, 64), (40, 64)),
}

IN_INT8 = [name for name in LAYERS if name not in ("reflect", "uneven padding")]


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("name", LAYERS)
def test_what_a_layer_multiplies_is_what_it_does(name):
    make, shape = LAYERS[name]
    layer, inputs = make(), torch.randn(shape)
    rows = layer_operands(layer, inputs)
    weight = layer.weight.t() if isinstance(layer, Conv1D) else layer.weight
    made = rows @ weight.reshape(len(rows), -1, rows.shape[2]).transpose(1, 2)
    answer = layer(inputs) - layer(torch.zeros(shape))
    if hasattr(layer, "kernel_size"):
        answer = answer.movedim(-1 - len(layer.kernel_size), -1)
    torch.testing.assert_close(
        made.transpose(0, 1).reshape(-1, len(layer.bias) if layer.bias is not None else 7),
        answer.reshape(-1, answer.shape[-1]),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("fmt", ["int4-weights", "int8"])
@pytest.mark.parametrize("name", IN_INT8)
def test_adaptive_rounding_reduces_a_layers_output_error_on_its_data(name, fmt):
    make, shape = LAYERS[name]
    layer, inputs = make(), torch.randn(shape).cumsum(-1)
    model = nn.Sequential(layer)
    context = scene_of(model, inputs, fmt, ["0"])
    plain = context.layers()["0"]
    assert round_adaptively(context).count == 1
    made = context.layers()["0"]
    assert torch.equal(made.scales, plain.scales) and not torch.equal(made.values, plain.values)
    with torch.no_grad():
        wanted = layer(inputs)
        errors = []
        for one in (plain, made):
            twin = copy.deepcopy(layer)
            twin.weight.data = one.weight
            errors.append(error(twin(inputs), wanted))
    assert errors[1] < errors[0]


def test_layers_taken_one_at_a_time_are_rounded_like_all_at_once(monkeypatch):
    model, inputs = (
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)),
        correlated(50, 64),
    )
    together, apart = (
        scene_of(model, inputs, "int4-weights"),
        scene_of(model, inputs, "int4-weights"),
    )
    round_adaptively(together)
    monkeypatch.setattr("paifuser_lab.quantization.compensation.rounding.MAX_BYTES", 1)
    assert round_adaptively(apart).count == 2
    assert all(
        torch.equal(one.values, apart.weights[layer].values)
        for layer, one in together.weights.items()
    )


def test_adaptive_rounding_can_be_stopped_between_two_layers():
    work = Workload(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), torch.randn(8, 4))
    recipe = Recipe([{"precision": {"default": "int8-weights", "compensate": ["rounding"]}}])
    answers = iter([False])
    with pytest.raises(StoppedError, match=r"rounding' was stopped before there was a result"):
        apply(work, recipe, should_stop=lambda: next(answers, True))


def test_too_many_rows_are_sampled_reproducibly():
    layer, images = nn.Conv2d(3, 4, 3, padding=1), torch.randn(1, 3, 420, 420)
    rows = layer_operands(layer, images)
    assert rows.shape == (1, 2**22 // 27, 27)
    assert torch.equal(rows, layer_operands(layer, images))


@given(
    seed=st.integers(0, 10**6),
    bits=st.integers(2, 8),
    groups=st.sampled_from([1, 2]),
    rows=st.integers(0, 40),
)
@settings(max_examples=40, deadline=None)
def test_no_channel_is_ever_rounded_worse_than_plainly(seed, bits, groups, rows):
    torch.manual_seed(seed)
    given = torch.stack([correlated(rows, 12) for _ in range(groups)])
    given[..., 3] = 0  # an input that is always zero says nothing about its weights
    weight = torch.randn(2 * groups, 12)
    plain = quantize(weight, bits)
    made = round_to_hessian(given.transpose(1, 2) @ given, rows, weight, plain, bits)
    assert made.values.abs().max() <= 2 ** (bits - 1) - 1

    def change(numbers: Any) -> Tensor:
        gaps = (numbers.dequantized() - weight).reshape(groups, 2, 12)
        return (given @ gaps.transpose(1, 2)).square().sum(1).flatten()

    assert (change(made) <= change(plain) * 1.001 + 1e-6).all()


def test_inputs_that_have_nothing_to_do_with_each_other_leave_plain_rounding_best():
    weight = torch.randn(5, 64)
    plain = quantize(weight, 4)
    made = round_to_hessian(torch.diag(torch.rand(64) + 0.1).unsqueeze(0), 1000, weight, plain, 4)
    assert torch.equal(made.values, plain.values)


def test_random_correlations_of_few_rows_are_shrunk_away():
    weight, seen, unseen = torch.randn(50, 64), torch.randn(20, 64), torch.randn(2000, 64)
    plain = quantize(weight, 4)
    made = round_to_hessian((seen.t() @ seen).unsqueeze(0), len(seen), weight, plain, 4)
    changes = [
        float((unseen @ (one.dequantized() - weight).t()).square().sum()) for one in (plain, made)
    ]
    assert changes[1] < 1.1 * changes[0]
    alike = correlated(2200, 64)
    seen, unseen = alike[:200], alike[200:]
    made = round_to_hessian((seen.t() @ seen).unsqueeze(0), len(seen), weight, plain, 4)
    changes = [
        float((unseen @ (one.dequantized() - weight).t()).square().sum()) for one in (plain, made)
    ]
    assert changes[1] < 0.4 * changes[0]


def test_two_inputs_that_are_always_equal_may_share_their_error():
    weight = torch.tensor([[1.4, 1.4, 7.0]])
    made = round_to_hessian(
        torch.tensor([[[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]),
        1000,
        weight,
        quantize(weight, 4),
        4,
    )
    assert made.values.tolist() in ([[1, 2, 7]], [[2, 1, 7]]), (
        "1 + 2 is nearer to 2.8 than 1 + 1 is"
    )


@pytest.mark.parametrize("fmt", ["int8-weights", "int4-weights", "int8"])
@pytest.mark.parametrize("name", IN_INT8)
def test_after_bias_correction_no_channel_is_off_on_average(name, fmt):
    make, shape = LAYERS[name]
    model, inputs = nn.Sequential(make()), torch.randn(shape) + 1
    context = scene_of(model, inputs, fmt, ["0"])
    assert correct_bias(context).count == 1
    made = context.layers()["0"]
    with torch.no_grad():
        gaps = made(inputs) - model(inputs)
    channel = gaps.ndim - 1 - len(getattr(model[0], "kernel_size", ()))
    others = [place for place in range(gaps.ndim) if place != channel]
    context.shifts.clear()
    with torch.no_grad():
        before = (context.layers()["0"](inputs) - model(inputs)).mean(others).abs().max()
    assert gaps.mean(others).abs().max() < max(1e-4, 0.2 * float(before))


def test_a_transposed_convolution_with_an_output_size_and_an_embedding_are_no_obstacle():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.up = nn.Embedding(9, 4), nn.ConvTranspose1d(4, 3, 3, stride=2)

        def forward(self, ids: Tensor) -> Tensor:
            return self.up(self.table(ids).transpose(1, 2), output_size=[12])

    work = Workload(Mixed(), torch.randint(0, 9, (2, 5)))
    variant = chosen(work, default="int4-weights", compensate=["bias", "rounding"])
    assert any("bias correction of 1 layer:" in note for note in variant.notes)
    assert "adaptive rounding of 0 layers: nothing to change" in variant.notes


class Net(nn.Module):
    """A residual network with a head; its values stay in int8 for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.one, self.two = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.line, self.head = nn.Linear(16, 32), nn.Linear(32, 5)

    def forward(self, images: Tensor) -> Tensor:
        seen = F.relu(self.norm(self.stem(images)))
        seen = F.relu(seen + self.two(F.relu(self.one(seen))))
        return self.head(F.relu(self.line(seen.mean((2, 3)))))


def net(*, has_data: bool = True) -> Workload:
    model = Net()
    model.norm.running_mean.normal_()
    model.norm.running_var.uniform_(0.5, 2)
    data = [(torch.randn(8, 3, 12, 12).cumsum(2), torch.zeros(8)) for _ in range(5)]
    return Workload(model, data[4][0][:4], train=data[:4] if has_data else None)


def test_the_step_offers_the_techniques_that_there_are():
    assert set(get_args(Technique)) == set(TECHNIQUES)
    with pytest.raises(
        RecipeError, match=r"compensate.*it should be 'bias', 'equalise', 'smooth' or 'rounding'"
    ):
        Recipe([{"precision": {"default": "int8", "compensate": ["magic"]}}])
    recipe = Recipe([{"precision": {"default": "int8", "compensate": ["rounding", "bias"]}}])
    assert Recipe.from_text(recipe.to_text()) == recipe
    assert recipe.label == "int8 + rounding + bias"
    notes = chosen(net(), default="bf16", compensate=["bias"]).notes
    assert "no layer is in integers, so there is nothing to compensate" in notes


@pytest.mark.parametrize("fmt", ["int8", "int4-weights"])
@pytest.mark.parametrize("technique", ["bias", "equalise", "smooth", "rounding"])
def test_each_technique_alone_reports_the_error_that_the_step_measures(technique, fmt):
    work = net()
    before, plain = weights_hash(work.model), chosen(work, default=fmt)
    variant = chosen(work, default=fmt, compensate=[technique])
    notes = [note for note in variant.notes if "output error" in note]
    assert weights_hash(work.model) == before, "the model itself stays as it was"
    assert not [note for note in plain.notes if "output error" in note]
    if technique == "smooth":
        assert not notes and weights_hash(variant.module) == weights_hash(plain.module)
        return
    assert len(notes) == 1 and f"→ {variant.reports[-1].relative_error:.2g}" in notes[0]
    assert f"{plain.reports[-1].relative_error:.2g} →" in notes[0]
    assert weights_hash(variant.module) != weights_hash(plain.module)


def test_adaptive_rounding_brings_a_model_of_four_bits_nearer_on_images_it_has_not_seen():
    work = net()
    errors = [
        chosen(work, default="int4-weights", compensate=one).reports[-1].relative_error
        for one in ([], ["rounding"])
    ]
    assert errors[1] < 0.8 * errors[0]


def test_smoothing_is_worth_it_where_a_norm_gives_outliers():
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 8))
    model[0].weight.data[3] *= 60
    model[1].weight.data[:, 3] /= 60
    data = [(torch.randn(20, 32), torch.zeros(20)) for _ in range(3)]
    work = Workload(model, torch.randn(20, 32), train=data)
    errors = [
        chosen(work, default="int8", compensate=one).reports[-1].relative_error
        for one in ([], ["smooth"])
    ]
    assert errors[1] < 0.5 * errors[0]


def test_all_together_are_done_in_order_and_values_still_stay_in_int8():
    work = net()
    plain, variant = (
        chosen(work, default="int8"),
        chosen(work, default="int8", compensate=["bias", "rounding", "equalise"]),
    )
    notes = [note.split(" of ")[0] for note in variant.notes if "output error" in note]
    assert notes == ["cross-layer equalisation", "adaptive rounding", "bias correction"]
    counts = []
    for one in (plain, variant):
        with torch.no_grad(), count_conversions() as conversions:
            one.model(work.inputs.args[0])
        counts.append(dict(conversions))
    assert counts[0] == counts[1]


def test_without_data_a_note_says_that_the_example_inputs_were_also_the_measure():
    for has_data in (True, False):
        notes = chosen(net(has_data=has_data), default="int8", compensate=["bias"]).notes
        assert has_data != any("only the example inputs" in note for note in notes)

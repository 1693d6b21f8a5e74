"""Pruning: the cut model has the output of the uncut one with zeros there; or the group is not cut,
and the reason is reported.
"""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError, StepError
from paifuser_lab.pruning.groups import channel_groups
from paifuser_lab.pruning.groups.widths import kept_units
from paifuser_lab.workload import Inputs
from tests.support.masking import gap, masked
from tests.support.models import images
from tests.support.prune_zoo import architectures
from tests.support.prune_zoo.architecture import scattered
from tests.support.prune_zoo.convolutional import plain, residual

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.usefixtures("one_thread"),
]
EXACT = 1e-9


def pruned(work: lab.Workload, **options) -> lab.Variant:
    return lab.apply(work, lab.Recipe([{"prune": {"ratio": 0.5, "repair": [], **options}}]))


def counted(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def work_of(model: nn.Module, inputs: Tensor, **options) -> lab.Workload:
    return lab.Workload(scattered(model.eval()), inputs, **options)


@pytest.mark.parametrize("architecture", architectures(), ids=lambda entry: entry.name)
def test_a_pruned_model_equals_the_original_with_zeros(architecture):
    work = architecture.workload()
    before = copy.deepcopy(work.model.state_dict())
    variant = pruned(work)
    assert counted(variant.module) < counted(work.model)
    assert not any("not covered by its rule" in note for note in variant.notes)
    zeroed = masked(work.model, variant.module)
    assert gap(zeroed, variant.module, work.inputs) < EXACT
    assert gap(zeroed, variant.module, Inputs.of(architecture.inputs())) < EXACT, (
        "it is exact only on its example inputs"
    )
    assert all(torch.equal(before[name], value) for name, value in work.model.state_dict().items())


def test_half_of_the_channels_are_a_quarter_of_the_weights_of_a_plain_network():
    work = work_of(residual(), images(size=16))
    variant = pruned(work, round_to=1)
    assert counted(variant.module) < 0.3 * counted(work.model)
    assert variant.module.body[0][0].out_channels == 8
    assert "removed 64 of 128 channels that can go, in 5 groups" in variant.notes[0]


class RandomNetwork(nn.Module):
    """A random network of parts of several kinds."""

    def __init__(self, parts: list[tuple[str, int]]) -> None:
        super().__init__()
        self.kinds = [kind for kind, _ in parts]
        self.stem, self.layers = nn.Conv2d(3, 8, 3, padding=1), nn.ModuleList()
        width, before = 8, 8
        for kind, size in parts:
            layer, after = self._layer(kind, size, width, before)
            self.layers.append(layer)
            before, width = width, after
        self.head = nn.Linear(width, 3)

    @staticmethod
    def _layer(kind: str, size: int, width: int, before: int) -> tuple[nn.Module, int]:
        match kind:
            case "conv":
                return nn.Sequential(
                    nn.Conv2d(width, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU()
                ), size
            case "depthwise":
                return nn.Conv2d(width, width, 3, padding=1, groups=width), width
            case "groups" if width % 2 == 0:
                return nn.Conv2d(width, 2 * size, 1, groups=2), 2 * size
            case "residual":
                return nn.Sequential(
                    nn.Conv2d(width, size, 1), nn.GELU(), nn.Conv2d(size, width, 3, padding=1)
                ), width
            case "cat":
                return nn.Conv2d(width, size, 1), width + size
            case "halves" if width % 2 == 0:
                return nn.Conv2d(width // 2, width // 2, 1), width
            case "gate":
                return nn.Conv2d(width, width, 1), width
            case "across":
                return nn.Conv2d(before, width, 1), width
        return nn.Identity(), width

    def forward(self, x: Tensor) -> Tensor:
        x = before = self.stem(x)
        for kind, layer in zip(self.kinds, self.layers, strict=True):
            before, x = x, self._next(kind, layer, x, before)
        return self.head(x.mean((2, 3)))

    @staticmethod
    def _next(kind: str, layer: nn.Module, x: Tensor, before: Tensor) -> Tensor:
        match kind:
            case "residual":
                return torch.relu(x + layer(x))
            case "cat":
                return torch.cat([layer(x), x], 1)
            case "halves" if x.shape[1] % 2 == 0:
                left, right = x.chunk(2, 1)
                return torch.cat([right, layer(left)], 1)
            case "gate":
                return x * torch.sigmoid(layer(x))
            case "across":
                return x + layer(before)
        return layer(x)


KINDS = st.sampled_from(
    ["conv", "depthwise", "groups", "residual", "cat", "halves", "gate", "across"]
)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    parts=st.lists(st.tuples(KINDS, st.sampled_from([2, 4, 6, 8])), min_size=1, max_size=7),
    ratio=st.sampled_from([0.25, 0.5, 0.75]),
)
def test_random_networks_are_pruned_exactly(parts: list[tuple[str, int]], ratio: float):
    torch.manual_seed(0)
    work = work_of(RandomNetwork(parts), torch.randn(2, 3, 5, 5))
    groups = channel_groups(work).groups
    if all(group.pinned or kept_units(group, 1 - ratio, 1) == group.width for group in groups):
        with pytest.raises(StepError, match="no channel of it can be removed"):
            pruned(work, ratio=ratio, round_to=1)
        return
    variant = pruned(work, ratio=ratio, importance="random", round_to=1)
    assert counted(variant.module) < counted(work.model)
    assert gap(masked(work.model, variant.module), variant.module, work.inputs) < EXACT


def test_heads_of_a_language_model_go_with_their_key_head_in_each_layer():
    work = lab.load(
        "hf:llama",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        vocab_size=128,
    )
    variant = pruned(work, ratio=0.5, importance="random", round_to=1, repair=[])
    shapes = {
        name: (tuple(layer.q_proj.weight.shape), tuple(layer.v_proj.weight.shape))
        for name, layer in variant.module.named_modules()
        if name.endswith("self_attn")
    }
    assert len(shapes) == 2 and set(shapes.values()) == {((16, 32), (8, 32))}
    assert gap(masked(work.model, variant.module), variant.module, work.inputs) < EXACT


def test_taylor_finds_the_channels_that_do_not_affect_the_loss():
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    data = [(torch.randn(32, 4), torch.randint(0, 3, (32,)))]
    work = work_of(model, torch.randn(2, 4), loss=nn.functional.cross_entropy, train=data)
    with torch.no_grad():
        model[0].bias.abs_()  # every channel is alive
        model[2].weight[:, ::2] = 0
    assert torch.equal(pruned(work).module[0].weight, model[0].weight[1::2])
    assert pruned(work).recipe.steps[0].importance is None  # taylor is the default here


def test_widths_are_rounded_where_they_allow_it():
    model = nn.Sequential(
        nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 10), nn.ReLU(), nn.Linear(10, 3)
    )
    module = pruned(work_of(model, torch.randn(2, 4)), ratio=0.4).module
    assert module[0].out_features == 24 and module[2].out_features == 6


def test_layers_have_their_own_ratios_and_protected_ones_keep_all():
    work = work_of(plain(), images(size=16))
    module = pruned(work, round_to=1, layers={"body.1.*": 0.25}, protect=["body.2.0"]).module
    assert [module.body[index][0].out_channels for index in range(3)] == [8, 24, 32]


def test_named_layers_that_cannot_be_cut_do_not_keep_the_others_whole():
    work = work_of(plain(), images(size=16))
    variant = pruned(work, ratio=None, layers={"head": 0.5, "body.0.0": 0.25, "body.0.2": 0.5})
    assert variant.module.body[0][0].out_channels == 12 and variant.module.head.out_features == 10
    assert any(note.startswith("stays whole: 'head'") for note in variant.notes)
    assert any("'body.0.2' (ReLU) cannot lose a channel" in note for note in variant.notes)


def test_the_global_scope_removes_more_from_less_important_layers():
    work = work_of(plain(), images(size=16))
    with torch.no_grad():
        for index, factor in ((1, torch.linspace(0.01, 1, 32)), (2, torch.ones(32))):
            for weight in (work.model.body[index][0].weight, work.model.body[index][1].weight):
                weight.fill_(1.0).mul_(factor.view(-1, *[1] * (weight.ndim - 1)))
    module = pruned(work, ratio=0.3, scope="global", importance="batch-norm", round_to=1).module
    assert module.body[1][0].out_channels < module.body[2][0].out_channels


def test_the_global_scope_removes_no_more_than_asked_where_scores_are_equal():
    work = work_of(plain(), images(size=16))
    for index in range(3):
        nn.init.ones_(work.model.body[index][1].weight)
    module = pruned(work, ratio=0.25, scope="global", importance="batch-norm", round_to=1).module
    assert [module.body[index][0].out_channels for index in range(3)] == [12, 24, 24]


def test_a_pruned_model_can_be_pruned_again_folded_and_compared(monkeypatch):
    monkeypatch.setenv(
        "PAIFUSER_HARDWARE", "H100"
    )  # published figures: nothing is measured for this test alone
    work = work_of(residual(), images(size=16))
    recipe = lab.Recipe([{"prune": {"ratio": 0.5}}, {"prune": {"ratio": 0.5}}, "fold"])
    variant = lab.apply(work, recipe)
    once = lab.apply(work, recipe[:1])
    assert counted(variant.module) < 0.5 * counted(once.module)
    row = lab.compare(work, recipe[:1], rounds=1)[recipe[:1].label]
    assert row.parameters < 0.5 * counted(work.model)
    profile = lab.profile(variant, seconds=0.2)
    assert profile.total_ms > 0 and "H100" not in profile.machine, "this machine ran it"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ratio": 1.5}, RecipeError, "ratio = 1.5"),
        ({"protect": ["boddy.*"]}, RecipeError, "'boddy.*' matches no layer; the nearest are"),
        ({"layers": {"head": 0.5}}, StepError, "'head'.*the model's answer has these channels"),
        ({"protect": ["*"]}, StepError, r"'body\.0\.0': it is protected"),
        ({"ratio": 0.01, "round_to": 1}, StepError, "of which that share is none; ask for more"),
    ],
    ids=str,
)
def test_what_cannot_be_cut_is_refused_with_the_reason(options, error, message):
    with pytest.raises(error, match=message):
        pruned(work_of(plain(), images(size=16)), **options)


def test_a_model_with_nothing_to_cut_is_refused_with_the_reason():
    work = work_of(nn.Sequential(nn.Linear(16, 16)), torch.randn(2, 16))
    with pytest.raises(StepError, match="'0': the model's answer has these channels"):
        pruned(work)
    quantized = [{"precision": {"default": "int8-weights"}}, {"prune": {"ratio": 0.5}}]
    with pytest.raises(StepError, match="no layer has weights in floating point"):
        lab.apply(work, lab.Recipe(quantized))


def test_quantized_layers_stay_and_the_others_are_pruned():
    work = work_of(plain(), images(size=16))
    recipe = lab.Recipe(
        [{"precision": {"layers": {"body.2.0": "int8-weights"}}}, {"prune": {"ratio": 0.5}}]
    )
    module = lab.apply(work, recipe).module
    assert module.body[0][0].out_channels == 8 and module.body[1][0].out_channels == 32


@pytest.mark.parametrize("before", ["layout", {"precision": {"default": "bf16"}}])
def test_earlier_steps_do_not_prevent_pruning(before):
    work = work_of(residual(), images(size=16))
    module = lab.apply(work, lab.Recipe([before, {"prune": {"ratio": 0.5}}])).module
    assert module.body[0][0].out_channels == 8 and module.head.in_features == 16


class AttentionCall(nn.Module):
    """torch's attention, called with one of several sets of options."""

    def __init__(self, call: dict, **options) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, **options)
        self.call, self.last = call, nn.Linear(16, 3)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        y, _ = self.attention(x, memory, memory, **self.call)
        return self.last(y)


PADDING = torch.tensor([[False] * 4 + [True], [False] * 5])
BACKENDS = {
    "plain": ({}, {}),
    "no weights": ({"need_weights": False}, {}),
    "batch first": ({}, {"batch_first": True}),
    "no bias": ({"average_attn_weights": False}, {"bias": False}),
    "padding": ({"key_padding_mask": PADDING, "need_weights": False}, {"batch_first": True}),
    "mask": (
        {"attn_mask": torch.randn(5, 5).triu(), "key_padding_mask": PADDING},
        {"batch_first": True},
    ),
    "other widths": ({}, {"kdim": 12, "vdim": 12}),
}


@pytest.mark.parametrize("way", BACKENDS)
def test_torchs_attention_loses_heads_however_it_is_called(way):
    call, options = BACKENDS[way]
    memory = torch.randn(2, 5, options.get("kdim", 16))
    x = torch.randn(2, 5, 16)
    inputs = (
        (x, memory) if options.get("batch_first") else (x.transpose(0, 1), memory.transpose(0, 1))
    )
    work = lab.Workload(scattered(AttentionCall(call, **options).eval()), inputs)
    twice = lab.apply(
        work, lab.Recipe([{"prune": {"ratio": ratio, "round_to": 1}} for ratio in (0.25, 0.4)])
    )
    assert (
        twice.module.attention.num_heads == 2 and twice.module.attention.out_proj.in_features == 8
    )
    assert gap(masked(work.model, twice.module), twice.module, work.inputs) < EXACT


def test_a_cut_leaves_an_attention_that_has_lost_heads_sparse(times):
    model = AttentionCall({"need_weights": False}, batch_first=True)
    model.last = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
    x = torch.randn(2, 130, 16)
    work = lab.Workload(scattered(model.eval()), (x, x.clone()))
    cut = {"prune": {"ratio": 0.25, "round_to": 1}}
    sparse = {"attention": {"keep": 0.25, "even_if_slower": True}}
    module = lab.apply(work, lab.Recipe([cut, sparse, cut])).module
    assert module.attention.num_heads < 4 and module.last[0].out_features == 18
    assert module.attention.sparsity.keep == 0.25


def test_attention_whose_weights_are_read_keeps_its_heads():
    class Read(AttentionCall):
        def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
            y, weights = self.attention(x, memory, memory)
            return self.last(torch.relu(y)), weights

    work = lab.Workload(scattered(Read({}).eval()), (torch.randn(5, 2, 16), torch.randn(5, 2, 16)))
    assert pruned(work, layers={"attention.out_proj": 0.5}).module.attention.num_heads == 4


class Counting(nn.Module):
    """Divides by a number of channels that it counts itself, so that fewer channels change the
    output.
    """

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.one(x))
        return self.head(torch.relu(self.two(x)) / x.shape[1])


class Slightly(Counting):
    """Counts its channels where that changes the output by a ten-thousandth only."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.one(x))
        return self.head(torch.relu(self.two(x)) * (1 + x.shape[1] * 1e-5))


class OfOneSign(Counting):
    """Counts its channels only on inputs of the opposite sign to the examples."""

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.relu(self.one(x))
        return self.head(torch.relu(self.two(inside)) / (inside.shape[1] if x.sum() < 0 else 16))


@pytest.mark.parametrize("model", [Counting, Slightly, OfOneSign])
def test_only_the_cut_that_changes_the_output_or_that_on_other_inputs_is_left_out(model):
    work = work_of(model(), torch.rand(2, 4))
    variant = pruned(work)
    assert variant.module.one.out_features == 16 and variant.module.two.out_features == 8
    assert any("'one': without it the output differs by" in note for note in variant.notes)
    for inputs in (work.inputs, Inputs.of(-work.inputs.tensors[0])):
        assert gap(masked(work.model, variant.module), variant.module, inputs) < EXACT


class Centred(nn.Module):
    """Subtracts a tensor that is no buffer, in the layer that flattens its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
        self.one, self.two, self.head = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.two(torch.relu(self.one(x - self.mean))))
        return self.head(torch.flatten(x.mean((2, 3), keepdim=True), 1))


def test_a_layer_with_a_tensor_that_is_no_buffer_is_pruned():
    work = work_of(Centred(), images())
    variant = pruned(work)
    assert variant.module.one.out_channels == 8 and variant.module.two.out_channels == 8
    assert gap(masked(work.model, variant.module), variant.module, work.inputs) < EXACT

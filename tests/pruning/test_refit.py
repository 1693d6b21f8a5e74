"""Refit after a cut: the cut is exact, then the outputs are brought closer to those of before."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.measure import output_error
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.pruning.groups import couple, cut
from paifuser_lab.pruning.refit import refit_model, shrunk_layers
from paifuser_lab.pruning.refit.least_squares import Sums, fit
from paifuser_lab.pruning.refit.shrunk_layers import RefitContext
from paifuser_lab.pruning.refit.techniques import reestimate_statistics
from paifuser_lab.workload.data import samples_of
from tests.support.masking import gap, masked
from tests.support.models import enliven, images
from tests.support.prune_zoo.architecture import scattered

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.usefixtures("one_thread"),
]
BOTH = ["least-squares", "batch-norm"]


def pruned(work: lab.Workload, repair: list[str] | None, ratio: float = 0.5) -> lab.Variant:
    return lab.apply(
        work,
        lab.Recipe(
            [
                {
                    "prune": {
                        "ratio": ratio,
                        "importance": "magnitude",
                        "round_to": 1,
                        "repair": repair,
                    }
                }
            ]
        ),
    )


def error_of(work: lab.Workload, variant: lab.Variant) -> float:
    return output_error(work.output(), work.inputs.clone()(variant.model))[0]


class Redundant(nn.Module):
    """Every second channel in the middle repeats the one before, so that half of them can replace
    the others.
    """

    def __init__(self, *, has_norm: bool, has_bias: bool, groups: int = 1, **geometry: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=has_bias)
        self.norm = enliven(nn.BatchNorm2d(8)) if has_norm else nn.Identity()
        self.last = nn.Conv2d(8, 6, 3, bias=has_bias, groups=groups, **geometry)
        self.after = enliven(nn.BatchNorm2d(6)) if has_norm else nn.Identity()
        with torch.no_grad():
            for value in (*self.conv.state_dict().values(), *self.norm.state_dict().values()):
                if value.ndim:
                    value[1::2] = value[::2]

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.last(torch.relu(self.norm(self.conv(x)))))


@pytest.mark.parametrize(
    "options",
    [
        {"has_norm": False, "has_bias": True},
        {"has_norm": False, "has_bias": False},
        {"has_norm": True, "has_bias": False},
        {"has_norm": True, "has_bias": True, "stride": 2, "padding": 1},
        {"has_norm": False, "has_bias": True, "dilation": 2, "padding": 3},
        {"has_norm": False, "has_bias": True, "groups": 2},
    ],
    ids=str,
)
def test_removing_redundant_channels_costs_almost_nothing_after_a_refit(options):
    work = lab.Workload(Redundant(**options).eval(), images(32, 9))
    model = copy.deepcopy(work.model)
    structure = couple(model, work.inputs)
    removed = set(structure.units[0][1::2])
    cut(model, structure, removed)
    before = output_error(work.output(), model(*work.inputs.args))[0]
    refit_model(
        work,
        work.model,
        model,
        shrunk_layers(work.model, model, structure, removed),
        ["least-squares"],
    )
    assert (
        before > 0.05 and output_error(work.output(), model(*work.inputs.args))[0] < 0.02 * before
    )


def test_a_linear_layer_gets_the_weights_that_least_squares_over_its_examples_give():
    first, last = nn.Linear(4, 6), nn.Linear(6, 3)
    data = [(torch.randn(80, 4), None) for _ in range(4)]
    work = lab.Workload(
        scattered(nn.Sequential(first, nn.Tanh(), last)).eval(), data[0][0][:4], train=data
    )
    model = pruned(work, ["least-squares"]).module
    x = torch.tanh(model[0](torch.cat([batch for batch, _ in data[:3]])))
    targets = work.model(torch.cat([batch for batch, _ in data[:3]]))
    solved = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1)], 1), targets).solution
    assert torch.allclose(model[2].weight, solved[:-1].T, atol=0.02)
    assert torch.allclose(model[2].bias, solved[-1], atol=0.02)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    groups=st.integers(1, 3),
    inputs=st.integers(1, 5),
    outputs=st.integers(1, 4),
    rows=st.integers(1, 40),
    shifts=st.booleans(),
)
def test_no_fit_is_worse_than_the_old_weights_and_the_sums_give_every_error(
    groups, inputs, outputs, rows, shifts
):
    torch.manual_seed(rows)
    weight, bias = (
        torch.randn(groups, outputs, inputs).double(),
        torch.randn(groups, outputs).double(),
    )
    parts = []
    for _ in range(2):
        x, y = torch.randn(groups, rows, inputs) + 1, torch.randn(groups, rows, outputs) - 2
        sums = Sums.zeros(groups, inputs, outputs, x)
        sums.add(x[:, : rows // 2], y[:, : rows // 2])
        sums.add(x[:, rows // 2 :], y[:, rows // 2 :])
        direct = (
            (y.double() - x.double() @ weight.transpose(1, 2) - bias.unsqueeze(1)).square().sum(1)
        )
        assert torch.allclose(sums.errors(weight, bias), direct, rtol=1e-8, atol=1e-8)
        parts.append(sums)
    fitted = fit(*parts, weight, bias, may_shift=shifts)
    assert fitted.after <= fitted.before * (1 + 1e-9)
    assert torch.allclose(
        parts[1].errors(fitted.weight, fitted.bias).sum(),
        torch.tensor(fitted.after).double(),
        rtol=1e-6,
        atol=1e-6,
    )
    assert shifts or torch.equal(fitted.bias, bias)


def test_batch_norms_keep_the_statistics_of_the_cut_model():
    model = scattered(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4))
    ).eval()
    work, cut_model = lab.Workload(model, images(64, 9)), copy.deepcopy(model)
    structure = couple(cut_model, work.inputs)
    removed = set(structure.units[0][:4])
    cut(cut_model, structure, removed)
    result = reestimate_statistics(RefitContext(model, cut_model, {}, samples_of(work), work))
    assert result.note == "measured the statistics of 1 batch-norm again"
    with torch.no_grad():
        inputs = cut_model[:3](work.inputs.args[0]).transpose(0, 1).flatten(1)
    assert torch.allclose(cut_model[3].running_mean, inputs.mean(1), rtol=1e-4, atol=1e-5)
    assert torch.allclose(cut_model[3].running_var, inputs.var(1), rtol=1e-4, atol=1e-5)
    assert not cut_model[3].training


def test_batch_norms_are_refitted_on_the_examples_to_learn_from():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    inputs = images(8, 9)
    data = [(inputs, torch.zeros(8))]
    work = lab.Workload(model, inputs, train=data)
    reestimate_statistics(RefitContext(model, model, {}, samples_of(work), work))
    with torch.no_grad():
        learned = model[0](inputs[:6]).transpose(0, 1).flatten(1)
    assert torch.allclose(model[1].running_mean, learned.mean(1), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def digits() -> lab.Workload:
    """A trained network; its variants are built once. Weights are stored in 16 bits: noise makes
    equal ones distinct, by which the reference finds what was cut.
    """
    work = lab.load("resnet18-digits-tiny")
    with torch.no_grad():
        for weight in work.model.parameters():
            weight += 1e-5 * torch.randn_like(weight)
    return work


@pytest.fixture(scope="module")
def refit(digits: lab.Workload) -> lab.Variant:
    """The network cut in half, and refit as it is by default."""
    return pruned(digits, None)


def test_a_trained_network_cut_in_half_is_far_above_chance_after_the_refit(digits, refit):
    work, plain = digits, pruned(digits, [])
    assert work.evaluate(plain.model) < 0.4
    assert work.evaluate(refit.model) > 0.85
    assert any(
        "least squares gave 20 layers new weights: output error" in note for note in refit.notes
    )
    assert [weight.shape for weight in plain.module.parameters()] == [
        weight.shape for weight in refit.module.parameters()
    ]
    assert gap(masked(work.model, plain.module), plain.module, work.inputs) < 1e-9, (
        "the cut itself is no longer exact"
    )


def test_a_transformer_is_refit_by_its_output_error():
    work = lab.load(
        "hf:bert",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=128,
    )
    data = [
        (
            {
                "input_ids": torch.randint(0, 128, (8, 16)),
                "attention_mask": torch.ones(8, 16).long(),
            },
            None,
        )
        for _ in range(8)
    ]
    work.train = data
    plain, refit = (pruned(work, repair) for repair in ([], BOTH))
    assert error_of(work, refit) < 0.5 * error_of(work, plain)
    assert "there is no batch-norm whose statistics could be measured again" in refit.notes


def test_the_refit_is_on_by_default_only_with_train_data():
    model, data = (
        enliven(scattered(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)))),
        [(torch.randn(64, 4), None)],
    )
    without_data, with_data = (
        lab.Workload(model, torch.randn(8, 4)),
        lab.Workload(model, torch.randn(8, 4), train=data),
    )
    assert pruned(without_data, None).weights_hash == pruned(without_data, []).weights_hash
    assert (
        pruned(with_data, None).weights_hash
        == pruned(with_data, BOTH).weights_hash
        != pruned(with_data, []).weights_hash
    )


def test_equal_recipes_refit_to_the_same_bits_and_leave_the_original_unchanged(digits, refit):
    before = weights_hash(digits.model)
    assert pruned(digits.copied(), None).weights_hash == refit.weights_hash
    assert weights_hash(digits.model) == before


def test_a_refit_that_gains_nothing_is_undone(digits, refit):
    assert "batch-norms again, and took that back" in refit.notes[-1]
    assert refit.weights_hash == pruned(digits, ["least-squares"]).weights_hash


class Twice(nn.Module):
    """The middle layer runs twice, one layer shares another's weight, and the head has a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.shared, self.same, self.head = (
            nn.Linear(8, 8) for _ in range(5)
        )
        self.same.weight = self.shared.weight
        self.head.register_forward_hook(lambda module, args, output: output * 1.0)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.middle(torch.relu(self.middle(x))))
        return self.head(torch.relu(self.same(torch.relu(self.shared(x)))))


def test_layers_that_run_twice_or_share_weights_keep_them():
    work = lab.Workload(scattered(Twice()).eval(), torch.randn(64, 8))
    plain, refit = (pruned(work, repair) for repair in ([], ["least-squares"]))
    assert plain.weights_hash == refit.weights_hash
    assert any(
        "least squares tried 1 layer and found no better weights" in note for note in refit.notes
    )


class Overflowing(nn.Module):
    """The input of the last layer is infinite for some examples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)) / (x[:, :1] > -3)).clamp(-9, 9).nan_to_num()


def test_an_infinity_changes_no_weights():
    data = torch.randn(32, 4)
    data[3, 0] = -10
    work = lab.Workload(
        scattered(Overflowing()).eval(), torch.randn(4, 4).abs(), train=[(data, None)]
    )
    plain, refit = (pruned(work, repair) for repair in ([], ["least-squares"]))
    assert plain.weights_hash == refit.weights_hash


def test_the_note_says_when_the_refit_is_evaluated_on_its_own_examples():
    work = lab.Workload(Redundant(has_norm=False, has_bias=True).eval(), images(2, 9))
    assert any(
        "on the example inputs that it learned from" in note
        for note in pruned(work, ["least-squares"]).notes
    )


def test_batches_that_do_not_fit_together_are_left_out():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1)).eval()
    batches = [(images(8, 9), None), (images(4, 9), None), (images(8, 11), None)]
    samples = samples_of(lab.Workload(model, images(1, 9), train=batches))
    assert (samples.count, samples.learned, samples.source) == (12, 9, "train data")


def test_a_batch_norm_with_one_value_per_channel_keeps_its_statistics():
    model = enliven(
        nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.ReLU(),
            nn.Conv2d(8, 4, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.BatchNorm2d(4),
        )
    )
    variant = pruned(lab.Workload(model, images(1, 9)), ["batch-norm"])
    assert torch.equal(variant.module[4].running_var, model[4].running_var)

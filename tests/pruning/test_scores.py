"""One importance: the step `prune` removes the channels that `lab.importance` shows as lowest."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError, StepError
from paifuser_lab.saliency.channels import CHANNEL_ESTIMATORS

pytestmark = pytest.mark.usefixtures("one_thread")


class Chain(nn.Module):
    """Convolutions one after another, with batch-norms, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12)
        self.second, self.late = nn.Conv2d(12, 10, 3), nn.BatchNorm2d(10)
        self.head = nn.Linear(10, 3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(images)))
        return self.head(torch.relu(self.late(self.second(hidden))).mean((2, 3)))


class Residual(nn.Module):
    """A stem and two branches that add to it: three layers whose channels go together."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.one, self.two = (nn.Conv2d(12, 12, 3, padding=1) for _ in range(2))
        self.norm_one, self.norm_two = nn.BatchNorm2d(12), nn.BatchNorm2d(12)
        self.head = nn.Linear(12, 3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.norm(self.stem(images))
        hidden = hidden + self.norm_one(self.one(torch.relu(hidden)))
        hidden = hidden + self.norm_two(self.two(torch.relu(hidden)))
        return self.head(torch.relu(hidden).mean((2, 3)))


def work_of(model: nn.Module, **options: Any) -> lab.Workload:
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.weight, 0.2, 2)
            nn.init.normal_(norm.bias)
    data = [(torch.randn(6, 3, 8, 8), torch.randint(0, 3, (6,))) for _ in range(20)]
    return lab.Workload(
        model.eval(), data[0][0], **({"loss": F.cross_entropy, "train": data} | options)
    )


def kept_rows(work: lab.Workload, layer: str, options: dict[str, Any]) -> set[int]:
    """Which output channels of a layer the step keeps, by the values of their weights."""
    variant = lab.apply(work, lab.Recipe([{"prune": {"repair": [], **options}}]))
    before = work.model.get_submodule(layer).weight.detach().sum((2, 3))[:, :1]
    after = variant.module.get_submodule(layer).weight.detach().sum((2, 3))[:, :1]
    return {int((before == row).all(1).nonzero()[0]) for row in after}


def highest(values: Tensor, count: int) -> set[int]:
    return set(values.topk(count).indices.tolist())


@pytest.mark.parametrize("method", CHANNEL_ESTIMATORS)
@pytest.mark.parametrize("layer", ["first", "second"])
def test_the_step_cuts_the_channels_below_the_shown_threshold(method, layer):
    work = work_of(Chain())
    shown = lab.importance(work, method)[layer]
    assert shown.values
    fifth = sorted(shown.normalised)[-5]
    kept = shown.kept(fifth)
    assert kept == 5
    ratio = 1 - kept / shown.channels
    options = {"importance": method, "layers": {layer: ratio}}
    assert kept_rows(work, layer, options) == highest(torch.tensor(shown.values), kept)


@pytest.mark.parametrize("method", CHANNEL_ESTIMATORS)
def test_coupled_channels_are_cut_by_the_sum_over_their_layers(method):
    work = work_of(Residual())
    shown = lab.importance(work, method)
    values = torch.tensor([shown[layer].values for layer in ("stem", "one", "two")])
    expected = highest(values.double().sum(0), 6)
    options = {"importance": method, "layers": {"stem": 0.5}}
    assert kept_rows(work, "stem", options) == expected


@pytest.mark.parametrize("method", ["random", "taylor2", "fisher"])
def test_the_step_uses_the_same_random_seed_as_the_chart(method):
    work = work_of(Chain())
    shown = lab.importance(work, method, seed=7)["first"]
    options = {"importance": method, "layers": {"first": 0.5}, "seed": 7}
    assert kept_rows(work, "first", options) == highest(torch.tensor(shown.values), 6)


def test_heads_of_torchs_attention_are_scored_by_their_projection_weights():
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.last = nn.MultiheadAttention(16, 4), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.attention(x, x, x)[0]).mean(0)

    model = Attending().eval()
    with torch.no_grad():  # the third head's rows of queries, keys and values are the least
        for part in range(3):
            model.attention.in_proj_weight[16 * part + 8 : 16 * part + 12] *= 1e-3
    data = [(torch.randn(5, 4, 16), torch.randint(0, 3, (4,))) for _ in range(3)]
    work = lab.Workload(model, data[0][0], loss=F.cross_entropy, train=data)
    step = {"layers": {"attention": 0.25}, "round_to": 1, "repair": []}
    for method in ("magnitude", "taylor", "fisher"):
        module = lab.apply(work, lab.Recipe([{"prune": {**step, "importance": method}}])).module
        left = module.attention.in_proj_weight[:12].detach()
        kept = torch.cat([torch.arange(8), torch.arange(12, 16)])
        assert torch.equal(left, model.attention.in_proj_weight.detach()[kept])


@pytest.mark.parametrize("method", ["batch-norm", "activation"])
def test_a_group_without_a_value_is_scored_by_magnitude_and_noted(method):
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight_in = nn.Parameter(torch.randn(8, 4))
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(F.linear(x, self.weight_in)))

    data = [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(2)]
    model = Bare().eval()
    work = lab.Workload(model, data[0][0], loss=F.cross_entropy, train=data)
    variant = lab.apply(
        work, lab.Recipe([{"prune": {"ratio": 0.5, "importance": method, "repair": []}}])
    )
    left = highest(model.weight_in.detach().norm(dim=1), 4)
    assert torch.equal(variant.module.weight_in, model.weight_in[sorted(left)])
    assert any(f"no {method} value, so magnitude" in note for note in variant.notes)


def test_a_method_without_its_data_is_refused_and_an_unknown_one_lists_the_others():
    work = work_of(Chain(), train=None)
    for method, estimator in CHANNEL_ESTIMATORS.items():
        recipe = lab.Recipe([{"prune": {"ratio": 0.5, "importance": method}}])
        if estimator.needs == "nothing":
            lab.apply(work, recipe)
        else:
            with pytest.raises(StepError, match=f"importance '{method}' needs the workload's"):
                lab.apply(work, recipe)
    with pytest.raises(RecipeError, match=r"importance = 'tailor'.*'taylor'.*'fisher'"):
        lab.Recipe([{"prune": {"ratio": 0.5, "importance": "tailor"}}])


def test_test_data_are_used_where_there_are_no_others_and_noted():
    data = [(torch.randn(6, 3, 8, 8), torch.randint(0, 3, (6,))) for _ in range(3)]
    work = work_of(Chain(), train=None, test=data)
    shown = lab.importance(work, "fisher")["first"]
    options = {"importance": "fisher", "layers": {"first": 0.5}}
    assert kept_rows(work, "first", options) == highest(torch.tensor(shown.values), 6)
    variant = lab.apply(work, lab.Recipe([{"prune": options}]))
    assert "estimated on the test data" in variant.notes


@pytest.mark.parametrize("method", CHANNEL_ESTIMATORS)
def test_a_value_does_not_depend_on_the_other_selected_layers(method):
    work = work_of(Chain())
    both, alone = lab.importance(work, method), lab.importance(work, method, layers="second")
    assert alone["second"].values == pytest.approx(both["second"].values, rel=1e-5)

"""Folding batch-norm: exact on every structure, and what stays is named with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.measure import output_error
from paifuser_lab.model.fold import FoldPlan, plan_fold
from paifuser_lab.model.graph import observe
from paifuser_lab.model.layers import BATCH_NORMS
from paifuser_lab.model.weights import weights_hash
from tests.support.models import Small, enliven, images

EXACT = 1e-12  # float64


def planned(model: nn.Module, *inputs: Tensor) -> FoldPlan:
    return plan_fold(model.eval(), observe(model.eval(), lambda: model(*inputs)))


def folded(model: nn.Module, *inputs: Tensor) -> lab.Variant:
    """Fold in float64, and check what must always hold."""
    model, doubled = enliven(model).double(), tuple(one.double() for one in inputs)
    before, flags = weights_hash(model), [one.training for one in model.modules()]
    work = Workload(model, doubled)
    reference = work.output()
    variant = lab.apply(work, Recipe(["fold"]))
    with torch.no_grad():
        assert output_error(reference, variant.model(*doubled))[0] < EXACT
        assert output_error(reference, work.output())[0] == 0
    assert weights_hash(model) == before and [one.training for one in model.modules()] == flags
    left = {name for name, one in variant.module.named_modules() if isinstance(one, BATCH_NORMS)}
    noted = {note.split("'")[1] for note in variant.notes if " stays: " in note}
    assert left == noted, "each batch-norm that is left is named with its reason"
    return variant


class Block(nn.Module):
    """A random piece of a network; the drawn kind decides how its parts are joined."""

    def __init__(self, kind: str, width: int, *, bias: bool, affine: bool, groups: int) -> None:
        super().__init__()
        self.kind = kind
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=bias, groups=groups)
        self.norm = nn.BatchNorm2d(width, affine=affine)
        self.other = nn.Conv2d(width, width, 1, bias=not bias)
        self.last = nn.BatchNorm2d(width)
        self.up = nn.ConvTranspose2d(
            width, width, 3, padding=1, bias=bias, groups=1 if kind == "transposed" else groups
        )
        self.join = nn.Conv2d(2 * width, width, 1)
        self.hooked = 0

    def forward(self, x: Tensor) -> Tensor:
        match self.kind:
            case "plain":
                return torch.relu_(self.norm(self.conv(x)))
            case "pre-activation":
                return self.conv(torch.relu(self.norm(x)))
            case "residual":
                return torch.relu(x + self.last(self.other(torch.relu_(self.norm(self.conv(x))))))
            case "in place":
                y = self.conv(x)
                return self.norm(y.relu_())
            case "in place after":
                y = self.conv(x)
                return self.norm(y) + y.mul_(2)
            case "branch":
                y = self.conv(x)
                return self.norm(y) + self.last(y)
            case "cat":
                return self.join(torch.cat([self.norm(self.conv(x)), self.last(self.other(x))], 1))
            case "shared":
                return self.norm(self.conv(torch.relu(self.norm(self.conv(x)))))
            case "one norm for two":
                return self.norm(self.conv(x)) + self.norm(self.other(x))
            case "transposed" | "transposed in groups":
                return self.norm(self.up(x))
            case "two norms":
                return self.last(self.norm(self.conv(x)))
            case "functional":
                return self.norm(
                    nn.functional.conv2d(
                        x, self.conv.weight, self.conv.bias, padding=1, groups=self.conv.groups
                    )
                )
            case "also read":
                return self.norm(self.conv(x)) * self.conv.weight.sum()
            case _:
                raise AssertionError(self.kind)


# how many batch-norm layers of each kind of block are folded
FOLDED = {
    "plain": 1,
    "residual": 2,
    "cat": 2,
    "transposed": 1,
    "pre-activation": 0,
    "in place": 0,
    "in place after": 0,
    "branch": 0,
    "shared": 0,
    "one norm for two": 0,
    "transposed in groups": 1,
    "two norms": 1,
    "functional": 0,
    "also read": 0,
}
BLOCKS = st.builds(
    lambda kind, bias, affine, groups: Block(kind, 4, bias=bias, affine=affine, groups=groups),
    st.sampled_from([*FOLDED]), st.booleans(), st.booleans(), st.sampled_from([1, 2, 4]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(BLOCKS, min_size=1, max_size=4), st.booleans(), st.integers(1, 3))
def test_folding_does_not_change_any_networks_output(
    blocks: list[Block], reused: bool, batch: int
) -> None:
    folded(nn.Sequential(*blocks, *blocks[: int(reused)]), torch.randn(batch, 4, 5, 5))


@pytest.mark.parametrize(("kind", "count"), FOLDED.items())
def test_each_kind_of_block_folds_what_it_can(kind: str, count: int) -> None:
    model = nn.Sequential(Block(kind, 4, bias=False, affine=True, groups=2))
    variant = folded(model, torch.randn(2, 4, 5, 5))
    assert variant.notes[0] == (
        f"folded {count} batch-norm layers" if count else "no batch-norm could be folded"
    )
    assert sum(isinstance(one, nn.Identity) for one in variant.module.modules()) == count


ONE_DIMENSIONAL: dict[str, tuple[Callable[[], list[nn.Module]], tuple[int, ...], int]] = {
    "linear, two dimensions": (lambda: [nn.Linear(3, 4), nn.BatchNorm1d(4)], (5, 3), 1),
    "linear without bias": (lambda: [nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4)], (5, 3), 1),
    "linear, a norm without weights": (
        lambda: [nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False)],
        (5, 3),
        1,
    ),
    "linear, three dimensions": (lambda: [nn.Linear(3, 4), nn.BatchNorm1d(6)], (5, 6, 3), 0),
    "linear, three equal dimensions": (lambda: [nn.Linear(3, 4), nn.BatchNorm1d(4)], (5, 4, 3), 0),
    "convolution of a row": (lambda: [nn.Conv1d(3, 4, 2), nn.BatchNorm1d(4)], (5, 3, 6), 1),
    "convolution without a batch": (lambda: [nn.Conv1d(3, 5, 2), nn.BatchNorm1d(5)], (3, 6), 0),
    "convolution of a volume": (
        lambda: [nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4, affine=False)],
        (1, 2, 3, 3, 3),
        1,
    ),
    "dilated, padded in a circle": (
        lambda: [
            nn.Conv2d(2, 4, 3, padding=2, dilation=2, padding_mode="circular"),
            nn.BatchNorm2d(4),
        ],
        (1, 2, 6, 6),
        1,
    ),
    "dropout between": (
        lambda: [nn.Conv2d(2, 4, 1), nn.Dropout(), nn.BatchNorm2d(4)],
        (1, 2, 4, 4),
        1,
    ),
    "a norm for many devices": (lambda: [nn.Conv2d(2, 4, 1), nn.SyncBatchNorm(4)], (1, 2, 4, 4), 1),
    "a flat view between": (
        lambda: [nn.Conv2d(2, 4, 1), nn.Flatten(), nn.BatchNorm1d(64)],
        (2, 2, 4, 4),
        0,
    ),
}


@pytest.mark.parametrize(("make", "shape", "count"), ONE_DIMENSIONAL.values(), ids=ONE_DIMENSIONAL)
def test_layers_of_every_rank_fold_where_the_channels_are_the_same(
    make: Callable[[], list[nn.Module]], shape: tuple[int, ...], count: int
) -> None:
    variant = folded(nn.Sequential(*make()), torch.randn(shape))
    assert sum(isinstance(one, nn.Identity) for one in variant.module.modules()) == count


CONVOLVED_BACK: dict[int, tuple[type[nn.Module], type[nn.Module]]] = {
    1: (nn.ConvTranspose1d, nn.BatchNorm1d),
    2: (nn.ConvTranspose2d, nn.BatchNorm2d),
    3: (nn.ConvTranspose3d, nn.BatchNorm3d),
}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2, 3, 6]),
    st.sampled_from([6, 12]),
    st.sampled_from([6, 18]),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 1]),
    st.booleans(),
    st.booleans(),
)
def test_transposed_convolutions_fold_exactly_in_any_number_of_groups(
    rank: int, groups: int, width: int, out: int, stride: int, extra: int, bias: bool, affine: bool
) -> None:
    kind, norm = CONVOLVED_BACK[rank]
    geometry: Any = {
        "kernel_size": 3,
        "stride": stride,
        "output_padding": extra if stride == 2 else 0,
        "padding": 1,
    }
    model = nn.Sequential(
        kind(width, out, groups=groups, bias=bias, **geometry), norm(out, affine=affine)
    )
    variant = folded(model, torch.randn(2, width, *[4] * rank))
    assert variant.notes == ("folded 1 batch-norm layers",) and isinstance(
        variant.module[1], nn.Identity
    )
    assert (
        type(variant.module[0]) is kind and variant.module[0].weight.shape == model[0].weight.shape
    )


def test_a_grouped_transposed_convolution_that_was_folded_is_loaded_as_it_was_saved(
    tmp_path: Any,
) -> None:
    torch.manual_seed(0)
    model = enliven(
        nn.Sequential(nn.ConvTranspose2d(6, 12, 3, groups=3, bias=False), nn.BatchNorm2d(12))
    )
    work = Workload(model, torch.randn(1, 6, 4, 4))
    variant = lab.apply(work, Recipe(["fold"]))
    loaded = lab.Variant.load(variant.save(tmp_path / "kept"), work)
    with torch.no_grad():
        assert torch.equal(work.inputs.clone()(loaded.model), work.inputs.clone()(variant.model))


class Activated(nn.BatchNorm2d):
    """As in timm: a batch-norm that does more."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(super().forward(x))


class Returning(nn.Module):
    """Gives what the convolution gave, too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return self.norm(y), y


def pair(conv: nn.Module | None = None, norm: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(conv or nn.Conv2d(3, 4, 1), norm or nn.BatchNorm2d(4))


def hooked(place: int, kind: str) -> nn.Module:
    model = pair()
    getattr(model[place], kind)(lambda *parts: None)
    return model


def old_weight_norm() -> nn.Module:
    """The hook that torch.nn.utils.weight_norm made before there were parametrizations."""
    conv = nn.Conv2d(3, 4, 1)
    conv.register_forward_pre_hook(lambda module, args: None)
    return pair(conv)


def tied() -> nn.Module:
    first, second = pair(nn.Conv2d(4, 4, 1)), pair(nn.Conv2d(4, 4, 1))
    second[0].weight = first[0].weight
    return nn.Sequential(nn.Conv2d(3, 4, 1), *first, *second)


STAYS: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "hook on the layer": (
        lambda: hooked(0, "register_forward_hook"),
        "1",
        "'0' has hooks or parametrizations",
    ),
    "hook before the layer": (lambda: hooked(0, "register_forward_pre_hook"), "1", "'0' has hooks"),
    "hook on the norm": (lambda: hooked(1, "register_forward_hook"), "1", "'1' has hooks"),
    "weight_norm": (
        lambda: pair(parametrizations.weight_norm(nn.Conv2d(3, 4, 1))),
        "1",
        "comes from|hooks or parametrizations",
    ),
    "old weight_norm": (old_weight_norm, "1", "hooks or parametrizations"),
    "also returned": (Returning, "norm", "the output of 'conv' is used elsewhere too"),
    "no statistics": (
        lambda: pair(norm=nn.BatchNorm2d(4, track_running_stats=False)),
        "1",
        "keeps no running statistics",
    ),
    "a norm that does more": (
        lambda: pair(norm=Activated(4)),
        "1",
        "is a Activated, which may do more",
    ),
    "first of all": (
        lambda: nn.Sequential(nn.BatchNorm2d(3)),
        "0",
        "its input comes from the model itself",
    ),
    "after something else": (
        lambda: pair(nn.MaxPool2d(1), nn.BatchNorm2d(3)),
        "1",
        r"comes from '0' \(MaxPool2d\)",
    ),
    "never run": (lambda: Idle(), "norm", "did not run on the example inputs"),
    "tied, the first": (tied, "2", "weights of '1' or '2' are shared"),
    "tied, the second": (tied, "4", "weights of '3' or '4' are shared"),
}


class Idle(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


@pytest.mark.parametrize(("make", "norm", "reason"), STAYS.values(), ids=STAYS)
def test_a_batch_norm_that_cannot_be_folded_stays_with_a_reason(
    make: Callable[[], nn.Module], norm: str, reason: str
) -> None:
    variant = folded(make(), torch.randn(2, 3, 4, 4))
    (note,) = (note for note in variant.notes if note.startswith(f"batch-norm '{norm}' stays: "))
    assert pytest.raises(AssertionError, match=reason).matches(AssertionError(note)), note


def test_the_plan_names_pairs_and_changes_nothing() -> None:
    model = Small()
    before = weights_hash(model)
    assert planned(model, images()) == FoldPlan((("conv", "norm"),), {})
    assert weights_hash(model) == before and isinstance(model.norm, nn.BatchNorm2d)


@pytest.mark.parametrize("name", ["resnet18-tiny", "mobilenetv2-tiny", "yolo-tiny", "unet-tiny"])
def test_models_of_the_zoo_lose_every_batch_norm(name: str) -> None:
    work = lab.load(name)
    norms = sum(isinstance(one, BATCH_NORMS) for one in work.model.modules())
    variant = lab.apply(work, Recipe(["fold"]))
    assert variant.notes == (f"folded {norms} batch-norm layers",) and norms > 5
    assert (
        not any(isinstance(one, BATCH_NORMS) for one in variant.module.modules())
        and variant.reports[0].relative_error < 1e-5
    )


def test_folding_twice_has_nothing_left_to_do() -> None:
    work: Any = Workload(Small(), images())
    assert lab.apply(work, Recipe(["fold", "fold"])).notes == (
        "folded 1 batch-norm layers",
        "no batch-norm to fold",
    )


class Skips(nn.Module):
    """Leaves the batch-norm out where `condition` of the input is false."""

    def __init__(self, condition: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
        self.limit = nn.Parameter(torch.tensor(0.5))
        self.condition = condition

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.block(self.norm(y) if self.condition(self, x) else y)


@pytest.mark.parametrize(
    "condition",
    [
        lambda self, x: x.mean() > 0,
        lambda self, x: not torch.equal(x, x.abs() - 1),
        lambda self, x: x[x > 0].numel() > 4,
        lambda self, x: len(x.flatten().gt(0).nonzero()) > 4,
        lambda self, x: x.mean().tolist() > 0,
        lambda self, x: x.detach().numpy().mean() > 0,
        lambda self, x: np.asarray(x).mean() > 0,
    ],
    ids=["value", "comparison", "mask", "nonzero", "list", "numpy", "array"],
)
def test_a_norm_that_another_input_may_skip_stays(condition: Any) -> None:
    model, x = Skips(condition), torch.rand(2, 3, 6, 6) + 0.1
    variant = folded(model, x)
    assert "norm" in variant.notes[-1] and "branches on values" in variant.notes[-1]
    assert isinstance(variant.module.block[1], nn.Identity), "its block has no branch"
    for other in (-x.double(), x.double() - 1.1):
        with torch.no_grad():
            assert output_error(model(other), variant.model(other))[0] < EXACT


@pytest.mark.parametrize(
    "condition",
    [
        lambda self, x: self.limit > 0,
        lambda self, x: self.limit.tolist() > 0,
        lambda self, x: np.ones(2).tolist() == [1, 1],
        lambda self, x: x[torch.tensor([0])].shape[0] == 1,
    ],
    ids=["a weight's value", "a weight's in a list", "an array's", "a shape that indices give"],
)
def test_a_branch_that_no_input_changes_does_not_hinder_folding(condition: Any) -> None:
    assert not folded(Skips(condition), images()).module.get_submodule("norm")._buffers


def test_a_value_that_once_depended_on_the_input_counts_through_weights_too() -> None:
    def condition(self: nn.Module, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.limit.copy_(x.mean())
        return self.limit > 0

    model = Skips(condition)
    assert "norm" in planned(model, torch.rand(1, 3, 6, 6)).kept


def test_a_block_whose_forward_was_replaced_proves_nothing() -> None:
    model = Skips(lambda self, x: x.mean() > 0)
    layers = list(model.block)
    model.block.forward = lambda x: layers[1](layers[0](x))
    assert "block.1" in planned(model, torch.rand(1, 3, 6, 6)).kept


def test_a_block_whose_layers_are_called_without_it_proves_nothing() -> None:
    class Indexes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))

        def forward(self, x: Tensor) -> Tensor:
            y = self.block[0](x)
            return self.block[1](y) if x.mean() > 0 else y

    assert "block.1" in planned(Indexes(), torch.rand(1, 3, 6, 6)).kept


def test_an_output_that_the_block_uses_again_on_another_branch_stays() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            z = self.norm(y)
            return z if x.mean() > 0 else z + y

    model, x = Residual(), images().abs()
    variant = folded(model, x)
    with torch.no_grad():
        assert output_error(model(-x.double()), variant.model(-x.double()))[0] < EXACT


def test_an_output_that_its_block_also_returns_stays_where_the_model_branches() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.conv(x)
            return y, self.norm(y)

    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Both()

        def forward(self, x: Tensor) -> Tensor:
            y, z = self.block(x)
            return z if x.mean() > 0 else z + y

    assert "block.norm" in planned(Chooses(), images().abs()).kept

"""One answer to what kind of layer something is, for everybody who asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from paifuser_lab.model.layers import (
    channel_of,
    has_hooks,
    is_altered,
    is_linear,
    is_pointwise,
    is_transposed_linear,
    owners_of_weights,
    tied_layers,
)

PACKAGE = Path(__file__).parents[2] / "paifuser_lab"


class Conv1D(nn.Module):
    """As in transformers: a linear layer that stores its weight as (inputs, outputs)."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.nf = outputs
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))


@pytest.mark.parametrize(
    ("layer", "channel", "linear", "transposed", "pointwise"),
    [
        (nn.Linear(2, 3), 0, True, False, False),
        (Conv1D(3, 2), 1, True, True, False),
        (nn.Conv1d(2, 3, 1), 0, False, False, True),
        (nn.Conv2d(2, 3, 1, padding="same"), 0, False, False, True),
        (nn.Conv2d(2, 3, 1, stride=2), 0, False, False, False),
        (nn.Conv2d(2, 2, 1, groups=2), 0, False, False, False),
        (nn.Conv2d(2, 3, 1, padding=1), 0, False, False, False),
        (nn.Conv3d(2, 3, 3), 0, False, False, False),
        (nn.ConvTranspose2d(2, 3, 1), 1, False, False, False),
        (nn.Embedding(4, 3), 0, False, False, False),
        (nn.BatchNorm2d(3), None, False, False, False),
        (nn.ReLU(), None, False, False, False),
    ],
)
def test_what_kind_a_layer_is(layer, channel, linear, transposed, pointwise):
    assert channel_of(layer) == channel
    assert (is_linear(layer), is_transposed_linear(layer)) == (linear, transposed)
    assert is_pointwise(layer) == pointwise


def test_a_subclass_with_a_forward_of_its_own_is_another_kind():
    class Own(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    assert channel_of(Own(2, 3)) is None


def test_hooks_and_parametrizations_alter_what_a_call_does():
    plain, hooked, before = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    before.register_forward_pre_hook(lambda *_: None)
    computed = parametrizations.weight_norm(nn.Linear(2, 2))
    layers = (plain, hooked, before, computed)
    assert [has_hooks(layer) for layer in layers] == [False, True, True, False]
    assert [is_altered(layer) for layer in layers] == [False, True, True, True]


def test_a_tied_weight_has_several_owners():
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    model["b"].weight = model["a"].weight
    assert list(owners_of_weights(model).values()) == [["a", "b"]]
    assert tied_layers(model) == [["a", "b"]] and tied_layers(model, ["b"]) == []


def test_a_shared_bias_ties_no_layers():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    model["b"].bias = model["a"].bias
    assert tied_layers(model) == []


def test_no_other_module_defines_these_functions():
    """The kinds are defined once, and imported elsewhere."""
    table = re.compile(r'"Conv1D"|= \(nn\.Conv(Transpose)?1d|def (is_pointwise|has_hooks)\(module')
    defining = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if table.search(path.read_text(encoding="utf-8"))
    }
    without_torch = {path for path in defining if path.startswith("widgets/")}
    assert defining - without_torch == {"model/layers.py"}

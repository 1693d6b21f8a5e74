"""Coupling: which channels of which weights go together, and why some stay."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from paifuser_lab.pruning.groups import channel_groups, couple, cut
from paifuser_lab.records import ChannelGroup, Coupling, Record
from paifuser_lab.workload import Inputs
from tests.support.prune_zoo import architectures

pytestmark = pytest.mark.usefixtures("one_thread")

ZOO = {entry.name: entry for entry in architectures()}


def groups_of(model: nn.Module, *inputs: Tensor) -> dict[str, ChannelGroup]:
    return {group.name: group for group in couple(model.eval(), Inputs(inputs)).groups}


def groups_in_zoo(name: str) -> dict[str, ChannelGroup]:
    work = ZOO[name].workload()
    return {
        group.name: group
        for group in couple(work.model, work.inputs).groups
        if group.pinned is None
    }


def weights(group: ChannelGroup) -> set[tuple[str, int, str]]:
    return {(member.weight, member.dimension, member.kind) for member in group.members}


def test_rows_a_bias_a_norm_and_columns_go_together():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 5, 1))
    group = groups_of(model, torch.randn(1, 3, 6, 6))["0"]
    assert group.width == 8 and group.unit == 1 and group.pinned is None
    assert weights(group) == {
        ("0.weight", 0, "rows"),
        ("0.bias", 0, "rows"),
        ("1.weight", 0, "rows"),
        ("1.bias", 0, "rows"),
        ("1.running_mean", 0, "buffer"),
        ("1.running_var", 0, "buffer"),
        ("3.weight", 1, "columns"),
    }


def test_channels_of_the_output_stay():
    group = groups_of(nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 5)), torch.randn(2, 3))["1"]
    assert group.pinned == "the model's answer has these channels"


def test_a_flattened_channel_is_read_by_as_many_columns_as_it_has_positions():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 5))
    structure = couple(model, Inputs((torch.randn(2, 3, 6, 6),)))
    index = next(i for i, group in enumerate(structure.groups) if group.name == "0")
    cut(model, structure, {structure.units[index][3]})
    assert model[2].in_features == 8 * 16 - 16 and model[0].out_channels == 7


@pytest.mark.parametrize(
    ("name", "layer", "width", "unit"),
    [
        ("attention, separate", "attention.0.query", 4, 8),
        ("attention, packed", "attention.0.qkv", 4, 24),
        ("grouped queries, gated", "attention.0.query", 2, 16),
        ("windows", "attention.0.qkv", 4, 24),
        ("group norm", "body.0", 8, 4),
        ("C2f by chunk", "into.0", 16, 2),
        ("channel shuffle", "stem.0", 16, 2),
        ("groups", "body.2.0", 4, 16),
        ("pixel shuffle", "1", 16, 4),
    ],
)
def test_a_unit_is_the_smallest_removable_part(name, layer, width, unit):
    group = groups_in_zoo(name)[layer]
    assert (group.width, group.unit) == (width, unit)


def test_a_residual_ties_every_layer_that_writes_to_it():
    group = groups_in_zoo("bottleneck")["body.0.0"]
    assert set(group.layers) >= {"body.0.0", "body.1.inside.2.0", "body.2.inside.2.0"}


@pytest.mark.parametrize("heads", [1, 4])
def test_a_single_head_loses_only_value_channels(heads):
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (
                projection(x).unflatten(-1, (heads, -1)).transpose(1, 2)
                for projection in (self.query, self.key, self.value)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(y.transpose(1, 2).flatten(2))

    groups = groups_of(Attention(), torch.randn(2, 5, 8))
    if heads == 1:
        assert groups["query"].pinned and groups["key"].pinned
        assert (groups["value"].width, groups["value"].unit) == (8, 1)
    else:
        assert (groups["query"].width, groups["query"].unit) == (4, 2)


def test_an_operator_without_a_rule_fixes_its_inputs():
    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.linalg.qr(self.one(x))[0]
            return self.head(torch.relu(self.two(x)))

    groups = groups_of(Sorted(), torch.randn(9, 4))
    assert groups["one"].pinned == "operator 'linalg_qr' has no rule"
    assert groups["two"].pinned is None


def test_a_layer_that_did_not_run_fixes_what_it_could_have_read():
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 3)

        def forward(self, ids: Tensor) -> Tensor:
            x = self.stem(ids.float())
            return self.one(x) if int(ids.sum()) > 0 else self.two(x)

    groups = groups_of(Either(), torch.ones(2, 4, dtype=torch.int64))
    assert groups["stem"].pinned == "layer 'two' did not run on the example inputs and may read it"
    assert groups["two"].pinned == "it did not run on the example inputs"


def test_a_tied_weight_is_one_weight():
    groups = groups_in_zoo("autoencoder, tied")
    assert weights(groups["into"]) == {("into.weight", 0, "rows"), ("into.bias", 0, "rows")}


def test_normalising_over_channels_fixes_them():
    groups = groups_of(
        nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)), torch.randn(2, 4)
    )
    assert groups["0"].pinned == "'native_layer_norm' in layer '1' needs all of it"


def test_the_record_is_printed_and_saved(tmp_path):
    work = ZOO["vision transformer"].workload()
    record = channel_groups(work)
    assert Record.load(record.save(tmp_path / "coupling.json")) == record
    assert isinstance(record, Coupling)
    assert "vision transformer: " in str(record) and "the model's answer" in str(record)
    assert {"layer", "units", "channels", "weights", "note"} == set(record.table()[0])


def test_coupling_changes_nothing():
    work = ZOO["residual"].workload()
    before = {name: value.clone() for name, value in work.model.state_dict().items()}
    couple(work.model, work.inputs)
    assert all(torch.equal(before[name], value) for name, value in work.model.state_dict().items())
    assert torch.backends.mha.get_fastpath_enabled() and torch.backends.mkldnn.enabled

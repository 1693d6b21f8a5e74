"""The predicted cost of fewer channels is the cost that the cut model has."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.pruning.groups import channel_groups, couple, cut_cost
from paifuser_lab.records import ChannelGroup, CutCost, CutLayer, CutWeights, Length, Member
from tests.support.models import Small, images
from tests.support.prune_zoo import architectures

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.usefixtures("one_thread"),
]
# products of two activations are estimated in proportion
ATTENTION = ("attention, packed", "language model, tied")
TESTED = ("residual", "dense", "C2f by chunk", "depthwise", "groups", "flattened", *ATTENTION)


def cost_of(work):
    return cut_cost(
        work.model,
        couple(work.model, work.inputs),
        lab.profile(work, runs=1, seconds=0.01, threads=1),
    )


def some_removed(cost, seed=0):
    generator = random.Random(seed)
    free = [group for group in cost.groups if group.pinned is None and group.width > 1]
    return {group.layers[0]: generator.choice([0.2, 0.5, 0.75]) for group in free}


@pytest.fixture(scope="module")
def cost():
    work = next(entry for entry in architectures() if entry.name == "residual").workload()
    return cost_of(work)


@pytest.mark.parametrize(
    "architecture",
    [entry for entry in architectures() if entry.name in TESTED],
    ids=lambda entry: entry.name,
)
def test_the_cut_model_has_the_predicted_cost(architecture):
    work = architecture.workload()
    cost = cost_of(work)
    removed = some_removed(cost)
    variant = lab.apply(
        work, lab.Recipe([{"prune": {"layers": removed, "importance": "magnitude"}}])
    )
    whole, predicted = cost.predict(cost.full), cost.predict(cost.widths(removed))
    after = lab.profile(variant, runs=1, seconds=0.01, threads=1)
    assert whole.parameters == sum(weight.numel() for weight in work.model.parameters())
    assert (
        predicted.parameters
        == sum(weight.numel() for weight in variant.module.parameters())
        < whole.parameters
    )
    assert predicted.flops == pytest.approx(
        2 * after.root.total_macs, rel=0.05 if architecture.name in ATTENTION else 1e-9
    )
    assert predicted.latency_ms < whole.latency_ms == cost.latency_ms


def test_widths_match_the_step_and_the_later_of_two_layers_of_a_group_counts(cost):
    group = next(
        candidate
        for candidate in cost.groups
        if len(candidate.layers) > 3 and candidate.pinned is None
    )
    first, other = group.layers[0], group.layers[-1]
    index = cost.groups.index(group)
    assert cost.widths({first: 0.5})[index] == group.width // 2
    assert cost.widths({first: 0.5, other: 0.25})[index] == round(group.width * 0.75)
    assert cost.widths({other: 0.25, first: 0.5})[index] == group.width // 2
    assert cost.widths({first: 0.9999})[index] == 1, "one unit stays"
    assert cost.widths({"no such layer": 0.5}) == cost.full


def test_a_pinned_group_keeps_all_channels(cost):
    pinned = next(group for group in cost.groups if group.pinned)
    assert cost.widths(dict.fromkeys(pinned.layers, 0.5)) == cost.full


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_fewer_units_never_cost_more(cost, data):
    few = [data.draw(st.integers(1, width)) for width in cost.full]
    more = [
        data.draw(st.integers(count, width)) for count, width in zip(few, cost.full, strict=True)
    ]
    for less, greater in zip(cost.predict(few), cost.predict(more), strict=True):
        assert less <= greater * (1 + 1e-12)


def by_hand(stairs=(), lengths=(0,), ms=8.0):
    """One layer of 8 channels that read 4 others, and 2 ms beside it."""
    members = (Member(layer="a", parameter="weight", dimension=0, kind="rows"),)
    groups = (ChannelGroup(name="a", width=8, unit=1, members=members),)
    sizes = (Length(fixed=0, terms=((0, 1),)), Length(fixed=4, terms=((0, 2),)))
    layer = CutLayer(layer="a", flops=800, ms=ms, lengths=lengths, stairs=stairs)
    return CutCost(
        workload="w",
        groups=groups,
        lengths=sizes,
        weights=(CutWeights(times=3, lengths=(0, 1)),),
        layers=(layer,),
        other_parameters=7,
        other_flops=100,
        latency_ms=ms + 2,
    )


def test_costs_by_hand():
    assert by_hand().predict((8,)) == (7 + 3 * 8 * 20, 900, 10.0)
    assert by_hand().predict((4,)) == (7 + 3 * 4 * 12, 500, 6.0)
    assert by_hand(lengths=(0, 1)).predict((4,)).flops == pytest.approx(100 + 800 * 0.5 * 12 / 20)


def test_measured_stairs_replace_the_proportion():
    stairs = ((1.0, 4.0), (4.0, 4.0), (8.0, 16.0))
    cost = by_hand().with_stairs({"a": stairs})
    assert [cost.predict((width,)).latency_ms for width in (8, 6, 4, 1)] == pytest.approx(
        [10.0, 2 + 8 * 10 / 16, 4.0, 4.0]
    )
    assert cost.predict((6,)).flops == by_hand().predict((6,)).flops, "arithmetic has no stairs"
    assert by_hand().with_stairs({"b": stairs}) == by_hand()


@pytest.mark.parametrize("count", [1, 2])
def test_the_cost_of_torch_s_fused_encoder_layer_is_predicted(count):
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.Sequential(
        nn.TransformerEncoder(layer, count, enable_nested_tensor=False), nn.Linear(16, 5)
    ).eval()
    work = lab.Workload(model, torch.randn(2, 6, 16))
    cost = cost_of(work)
    assert {row.layer for row in cost.layers} == {f"0.layers.{index}" for index in range(count)}, (
        "it runs as one operator"
    )
    for share in (0.25, 0.5):
        removed = {group.layers[0]: share for group in cost.groups if group.pinned is None}
        step = {"prune": {"layers": removed, "importance": "random", "round_to": 1}}
        variant = lab.apply(work, lab.Recipe([step]))
        seen = lab.profile(variant, runs=1, seconds=0.01, threads=1)
        predicted = cost.predict(cost.widths(removed))
        assert (
            predicted.flops == pytest.approx(2 * seen.root.total_macs, abs=20)
            and predicted.flops < 0.9 * cost.predict(cost.full).flops
        )
        assert predicted.parameters == sum(weight.numel() for weight in variant.module.parameters())


def test_channel_groups_are_shown_in_a_panel(monkeypatch):
    coupling = channel_groups(lab.Workload(Small(), images(), name="small"))
    panel = lab.show(coupling)
    assert panel.view == "coupling" and panel.data["name"] == [
        group.name for group in coupling.groups
    ]
    members = [member for group in coupling.groups for member in group.members]
    assert [
        panel.data["layer"]["names"][code]
        for code in memoryview(panel.data["layer"]["codes"]).cast("H")
    ] == [member_.layer for member_ in members]
    assert "<table>" in panel.twin() and coupling.title in panel.twin()
    assert repr(coupling).startswith("Coupling(small: ")

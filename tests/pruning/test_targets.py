"""Pruning to a share of the original: the share is reached without cutting more than needed, and
the prediction holds.
"""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError, StepError
from paifuser_lab.measure import flops as flops_of_torch
from paifuser_lab.pruning.groups import couple
from paifuser_lab.pruning.groups import widths as narrowing
from paifuser_lab.pruning.groups.costs import Cost, Size, Term, spent_flops
from paifuser_lab.pruning.groups.widths import (
    allowed_widths,
    loss_by_kept,
    solve_widths,
    take_narrowest,
)
from paifuser_lab.records import ChannelGroup
from paifuser_lab.steps.prune import Prune
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


def pruned(work: lab.Workload, to: dict | None, **options) -> lab.Variant:
    return lab.apply(work, lab.Recipe([{"prune": {"to": to, **options} if to else options}]))


def work_of(model: nn.Module, **options) -> lab.Workload:
    return lab.Workload(scattered(model.eval()), images(size=16), **options)


def counted(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def spent(work: lab.Workload, model: nn.Module | None = None) -> int:
    return flops_of_torch(model or work.model, work.inputs)


@pytest.mark.parametrize(
    "name", ["residual", "depthwise", "dense", "attention, separate", "LSTM", "Llama", "U-Net"]
)
def test_parameters_and_flops_are_predicted_exactly(name):
    work = next(entry for entry in architectures() if entry.name == name).workload()
    variant = pruned(work, {"parameters": 0.6}, importance="random")
    before, after = (
        spent_flops(couple(model, work.inputs)) for model in (work.model, variant.module)
    )
    shares = {"parameters": counted(variant.module) / counted(work.model), "FLOPs": after / before}
    assert shares["parameters"] <= 0.6
    for quantity, share in shares.items():
        assert (
            f"{quantity}: {share:.1%} of the original's predicted, {share:.1%} left"
            in variant.notes
        )
    assert gap(masked(work.model, variant.module), variant.module, work.inputs) < EXACT


@pytest.mark.parametrize("model", [plain, residual], ids=["plain", "residual"])
@pytest.mark.parametrize("share", [0.7, 0.3, 0.1])
def test_flops_equal_those_of_torch(model, share):
    work = work_of(model())
    assert spent_flops(couple(work.model, work.inputs)) == spent(work)
    variant = pruned(work, {"flops": share})
    assert spent(work, variant.module) <= share * spent(work)
    assert gap(masked(work.model, variant.module), variant.module, work.inputs) < EXACT


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_target_is_reached_within_one_allowed_width(data):
    widths = data.draw(st.lists(st.integers(2, 40), min_size=1, max_size=6))
    indices = st.integers(0, len(widths) - 1)
    sizes = st.builds(
        Size,
        st.integers(0, 3).map(float),
        st.tuples(st.tuples(indices, st.integers(1, 3).map(float))),
    )
    terms = data.draw(
        st.lists(
            st.builds(Term, st.floats(0.5, 9), st.lists(sizes, min_size=1, max_size=3).map(tuple)),
            min_size=1,
        )
    )
    step = data.draw(st.sampled_from([1, 2, 8]))
    groups = [ChannelGroup(name="g", width=width, unit=1, members=()) for width in widths]
    ladders = {index: allowed_widths(group, step, 1) for index, group in enumerate(groups)}
    losses = {
        index: loss_by_kept(torch.rand(width).double().numpy() + 0.01)
        for index, width in enumerate(widths)
    }
    least, cost = Cost(widths, terms), Cost(widths, terms)
    take_narrowest(least, ladders)
    most = (
        least.total
        + data.draw(st.floats(0, 1)) * (cost.total - least.total) * 0.999
        + 1e-9 * cost.total
    )
    solve_widths(cost, most, losses, ladders)
    assert cost.total <= most + 1e-9 * most
    assert Cost(cost.kept, terms).total == pytest.approx(cost.total)
    for index, allowed in ladders.items():
        above = [kept for kept in (widths[index], *allowed) if kept > cost.kept[index]]
        if above:
            assert cost.kept[index] in allowed
            assert cost.total - cost.saved(index, above[-1]) > most, "a group could have kept more"


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), count=st.integers(2, 6))
def test_the_lazy_queue_narrows_the_same_groups_as_a_full_search(seed, count):
    draw = numpy.random.default_rng(seed)
    widths = draw.integers(3, 20, count).tolist()
    pairs = [(left, right) for left in range(count) for right in range(left)]
    terms = [
        Term(float(draw.uniform(0.5, 5)), tuple(Size(0.0, ((group, 1.0),)) for group in pair))
        for pair in pairs
    ]
    losses = {index: loss_by_kept(draw.random(width) + 0.01) for index, width in enumerate(widths)}
    ladders = {index: tuple(range(width - 1, 0, -1)) for index, width in enumerate(widths)}
    lazy, eager = Cost(widths, terms), Cost(widths, terms)
    most = 0.3 * lazy.total
    narrowing._narrow(lazy, most, losses, ladders)
    while eager.total > most:
        steps = [
            step
            for index in ladders
            if (step := narrowing._best_narrowing(eager, index, losses, ladders, 0)) is not None
        ]
        eager.take(min(steps).group, min(steps).to)
    assert lazy.kept == eager.kept


def test_where_cost_is_flat_a_group_keeps_the_upper_end():
    def stairs(terms, sizes):
        return torch.from_numpy(sizes[:, 0]).div(16).ceil().numpy()

    cost = Cost([64], [Term(1.0, (Size(0.0, ((0, 1.0),)),))], term_costs=stairs)
    losses = {0: loss_by_kept(torch.ones(64).double().numpy())}
    solve_widths(cost, 3.0, losses, {0: tuple(range(63, 0, -1))})
    assert cost.kept == [48]
    solve_widths(cost, 1.5, losses, {0: tuple(range(63, 0, -1))})
    assert cost.kept == [16]


def test_widths_of_a_thousand_layers_are_solved_in_seconds():
    widths = [32] * 1000
    terms = [Term(9.0, (Size(0.0, ((i, 1.0),)), Size(0.0, ((i + 1, 1.0),)))) for i in range(999)]
    terms += [
        Term(1.0, (Size(0.0, ((0, 1.0),)), Size(0.0, ((i, 1.0),)))) for i in range(1, 1000)
    ]  # a stream that all read
    cost, count = Cost(widths, terms), 0
    saved = cost.saved

    def counting(group, kept):
        nonlocal count
        count += 1
        return saved(group, kept)

    cost.saved = counting
    losses = {index: loss_by_kept(torch.rand(32).double().numpy()) for index in range(1000)}
    total = cost.total
    solve_widths(cost, 0.2 * total, losses, dict.fromkeys(range(1000), (24, 16, 8)))
    assert 0.19 * total < cost.total <= 0.2 * total
    assert count < 100_000, "each narrowing should be computed a few times, not at each step"


def test_a_series_counts_against_the_original():
    work = work_of(residual())
    step = [{"prune": {"to": {"parameters": share}, "round_to": 1}} for share in (0.5, 0.25, 0.1)]
    for index, share in enumerate((0.5, 0.25, 0.1)):
        left = counted(lab.apply(work, lab.Recipe(step[: index + 1])).module) / counted(work.model)
        assert 0.9 * share < left <= share
    with pytest.raises(
        StepError,
        match=(
            r"parameters: 0\.2\d+ of the original's is left already, and 0\.4 was asked for; ask "
            r"for less"
        ),
    ):
        lab.apply(work, lab.Recipe([*step[:2], {"prune": {"to": {"parameters": 0.4}}}]))


def test_widths_are_as_round_as_the_target_allows():
    work = work_of(plain())
    wide = pruned(work, {"parameters": 0.5}).module
    assert all(
        layer.out_channels % 8 == 0 for layer in wide.modules() if isinstance(layer, nn.Conv2d)
    )
    narrow = pruned(work, {"parameters": 0.05}).module
    assert any(layer.out_channels % 8 for layer in narrow.modules() if isinstance(layer, nn.Conv2d))
    with pytest.raises(
        StepError,
        match=(
            r"parameters: 0\.05 of the original's cannot be reached: the smallest reachable share "
            r"is"
        ),
    ):
        pruned(work, {"parameters": 0.05}, round_to=8)


def test_the_reported_smallest_share_can_be_reached():
    work = work_of(plain())
    with pytest.raises(StepError, match="smallest reachable share is") as refused:
        pruned(work, {"parameters": 0.001})
    smallest = float(str(refused.value).split("smallest reachable share is ")[1].split(";")[0])
    assert counted(pruned(work, {"parameters": smallest}).module) <= smallest * counted(work.model)


def test_limits_hold_against_the_original_widths():
    work = work_of(plain())
    steps = [
        {"prune": {"to": {"parameters": share}, "limits": {"*": 0.5}, "round_to": 1}}
        for share in (0.6, 0.3)
    ]
    module = lab.apply(work, lab.Recipe(steps)).module
    assert all(
        module.body[index][0].out_channels >= whole / 2 for index, whole in enumerate((16, 32, 32))
    )
    limits = {"body.*": 0.25, "body.1.*": 0.75}
    assert pruned(work, {"parameters": 0.5}, limits=limits).module.body[1][0].out_channels >= 24
    with pytest.raises(StepError, match="cannot be reached"):
        pruned(work, {"parameters": 0.2}, limits={"*": 0.9})
    kept = pruned(work, None, ratio=0.5, round_to=1, limits={"body.1.*": 0.75}).module
    assert [kept.body[index][0].out_channels for index in range(3)] == [8, 24, 16]


def test_other_groups_compensate_for_a_refused_one():
    class Divided(nn.Module):
        """Divides by a width that it reads: narrower, it has another output."""

        def __init__(self):
            super().__init__()
            self.one, self.two, self.three, self.head = (
                nn.Linear(4, 32),
                nn.Linear(32, 32),
                nn.Linear(32, 32),
                nn.Linear(32, 3),
            )

        def forward(self, x):
            x = torch.relu(self.one(x))
            x = torch.relu(self.two(x) / self.two.weight.shape[0])
            return self.head(torch.relu(self.three(x)))

    work = lab.Workload(scattered(Divided().eval()), torch.randn(2, 4))
    variant = pruned(work, {"parameters": 0.6})
    assert variant.module.two.out_features == 32 and counted(variant.module) <= 0.6 * counted(
        work.model
    )
    assert any(note.startswith("stays whole: 'two'") for note in variant.notes)


def test_a_target_is_refused_for_a_quantized_model():
    work = work_of(plain())
    steps = [
        {"precision": {"layers": {"body.2.0": "int8-weights"}}},
        {"prune": {"to": {"parameters": 0.5}}},
    ]
    with pytest.raises(
        StepError,
        match=(
            "quantized layers are not counted, so no target can be met; put 'prune' before "
            "'precision'"
        ),
    ):
        lab.apply(work, lab.Recipe(steps))


def test_a_share_of_nothing_is_refused():
    work = lab.Workload(
        nn.Sequential(nn.Embedding(9, 16), nn.LayerNorm(16)), torch.randint(0, 9, (2, 3))
    )
    with pytest.raises(
        StepError,
        match="flops: the original has none that are counted, so there is no share of them",
    ):
        pruned(work, {"flops": 0.5})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give a ratio, a target with `to`, or layers"),
        ({"ratio": 0.5, "to": {"flops": 0.5}}, "give a ratio or a target with `to`, not both"),
        ({"to": {"flops": 0.5}, "scope": "global"}, "scope is for a ratio"),
        ({"to": {"flops": 1.5}}, "to.flops"),
        ({"to": {"flops": 0.5, "parameters": 0.5}}, "to"),
        ({"ratio": 0.5, "limits": {"a": 0}}, "limits.a"),
    ],
)
def test_contradictory_options_are_refused(options, message):
    with pytest.raises(RecipeError, match=f"step 'prune'.*{message}"):
        lab.Recipe([{"prune": options}])


def test_a_newer_target_replaces_a_ratio_and_vice_versa():
    target, ratio = Prune(to={"flops": 0.5}), Prune(ratio=0.5)
    assert ratio.joined(target) == target and target.joined(ratio) == ratio
    assert target.joined(Prune(layers={"a": 0.5})) == Prune(to={"flops": 0.5}, layers={"a": 0.5})
    assert Prune(ratio=0.5, scope="global").joined(target).scope == "uniform"
    assert target.label == "prune to 50% of the flops"


def test_named_and_protected_layers_keep_their_own_ratios():
    work = work_of(plain())
    module = pruned(
        work, {"parameters": 0.5}, layers={"body.0.*": 0.25}, protect=["body.1.0"]
    ).module
    assert module.body[0][0].out_channels == 12 and module.body[1][0].out_channels == 32
    assert counted(module) <= 0.5 * counted(work.model)


def test_named_layers_that_meet_the_target_alone_are_cut_alone():
    work = work_of(plain())
    module = pruned(work, {"parameters": 0.6}, layers={"body.2.0": 0.75}).module
    assert [module.body[index][0].out_channels for index in range(3)] == [16, 32, 8]

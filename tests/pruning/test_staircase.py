"""Widths by what they take: staircases are measured once, and a model is as quick as they say."""

from __future__ import annotations

from math import ceil

import numpy
import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.bench.masking import gap, masked
from paifuser_lab.bench.prune_zoo import architectures
from paifuser_lab.bench.prune_zoo.architecture import scattered
from paifuser_lab.bench.prune_zoo.convolutional import plain
from paifuser_lab.errors import StepError, WorkloadError
from paifuser_lab.measure import FEWEST, WARM, in_turn, own_ms
from paifuser_lab.pruning.groups import couple
from paifuser_lab.pruning.targets import measure, whole_model
from paifuser_lab.pruning.targets.latency import families_of, latency_cost
from paifuser_lab.pruning.targets.layer_families import MOST_WIDTHS, full_width, spaced
from paifuser_lab.pruning.targets.measure import kept_table, key_of, staircases
from paifuser_lab.records import Staircase, StaircaseTable, WholeLatency
from tests.support.models import images

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.usefixtures("one_thread", "own_cache"),
]
STEP, REST_MS = 8, 2.0


@pytest.fixture
def own_cache(monkeypatch, tmp_path, cache_of_this_run):
    """No rows of other tests, but the machine as it is known."""
    known = lab.hardware()
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))
    monkeypatch.setattr(measure, "hardware", lambda: known)
    return tmp_path


@pytest.fixture
def pace(monkeypatch):
    """Times by a formula instead of a clock: a step for each 8 channels read and made; what was
    timed is noted.
    """
    timed = []

    def of_widths(calls, device, seconds, clock):
        with torch.no_grad():
            for call in calls.values():
                call()
        timed.append(list(calls))
        return {(read, made): float(ceil(read / STEP) * ceil(made / STEP)) for read, made in calls}

    def of_wholes(calls, device, seconds, clock):
        timed.append(list(calls))
        models = [call.__closure__[1].cell_contents for call in calls.values()]
        return dict(zip(calls, map(taken, models), strict=True))

    monkeypatch.setattr(measure, "in_turn", of_widths)
    monkeypatch.setattr(whole_model, "in_turn", of_wholes)
    return timed


def taken(model: nn.Module) -> float:
    """What a model takes by the formula."""
    sides = [
        layer.weight.shape[:2]
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.weight.ndim > 1
    ]
    return REST_MS + sum(ceil(made / STEP) * ceil(read / STEP) for made, read in sides)


def work_of(model: nn.Module) -> lab.Workload:
    return lab.Workload(scattered(model.eval()), images(size=16))


def pruned(work: lab.Workload, share: float, **options) -> lab.Variant:
    return lab.apply(work, lab.Recipe([{"prune": {"to": {"latency": share}, **options}}]))


def test_a_model_is_as_quick_as_the_staircases_say(pace):
    work = work_of(plain())
    variant = pruned(work, 0.5)
    assert taken(variant.module) <= 0.5 * taken(work.model)
    share = taken(variant.module) / taken(work.model)
    (note,) = (
        note
        for note in variant.notes
        if "of the original's predicted" in note and note.startswith("latency")
    )
    assert note.startswith(f"latency: {share:.1%} of the original's predicted") and note.endswith(
        "measured in turn, 1 thread"
    )
    assert gap(masked(work.model, variant.module), variant.module, work.inputs) < 1e-9


def test_widths_stand_at_the_end_of_a_step(pace):
    work = work_of(plain())
    widths = [
        layer.out_channels
        for layer in pruned(work, 0.4).module.modules()
        if isinstance(layer, nn.Conv2d)
    ]
    assert all(width % STEP == 0 for width in widths) and sum(widths) < 16 + 32 + 32


def test_a_given_step_holds_for_latency_too(pace):
    widths = [
        one.out_channels
        for one in pruned(work_of(plain()), 0.5, round_to=16).module.modules()
        if isinstance(one, nn.Conv2d)
    ]
    assert all(width % 16 == 0 for width in widths)


def test_what_was_measured_is_kept_and_a_damaged_file_is_measured_anew(pace, own_cache):
    work = work_of(plain())
    first = pruned(work, 0.5)
    assert len(pace) == 5, "four layers and the whole"
    again = pruned(work_of(plain()), 0.5)
    assert len(pace) == 5 and [one.shape for one in again.module.parameters()] == [
        one.shape for one in first.module.parameters()
    ]
    (file,) = own_cache.glob("staircases-*.json")
    file.write_text("{")
    pruned(work_of(plain()), 0.6)
    assert len(pace) == 10


def test_an_interrupt_keeps_what_was_measured(pace, monkeypatch):
    families = families_of(couple(plain().eval(), lab.Workload(plain(), images(size=16)).inputs))
    right, count = measure.in_turn, 0

    def interrupted(*given):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return right(*given)

    monkeypatch.setattr(measure, "in_turn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        staircases(families, count=1, seconds=1.0)
    assert len(kept_table(1).rows) == 2


def test_out_of_reach_names_the_smallest_share(pace):
    with pytest.raises(
        StepError,
        match=(
            r"latency: 0\.01 of the original's cannot be reached: the smallest reachable share is "
            r"0\.\d+"
        ),
    ):
        pruned(work_of(plain()), 0.01)


def test_without_time_few_widths_are_measured(pace):
    family = families_of(couple(plain().eval(), lab.Workload(plain(), images(size=16)).inputs))[1]
    (hurried,) = staircases([family], count=1, seconds=0.0).values()
    assert (len(hurried.reads), len(hurried.makes)) == (2, 2)


def test_latency_at_full_width_is_that_of_the_whole_and_at_the_narrow_one_too(pace):
    work = work_of(plain())
    structure = couple(work.model, work.inputs)
    narrow = [
        max(1, group.width // 4) if group.pinned is None else group.width
        for group in structure.groups
    ]
    found = staircases(families_of(structure), count=1, seconds=1.0)
    for whole_ms, narrow_ms in ((100.0, 30.0), (100.0, None), (1.0, 0.5)):
        seen = WholeLatency(likeness="", original_ms=whole_ms, ms=whole_ms, narrow_ms=narrow_ms)
        cost = latency_cost(structure, found, seen, narrow).cost
        assert cost.total == pytest.approx(whole_ms)
        for index, width in enumerate(narrow):
            cost.take(index, width)
        if whole_ms == 100.0 and narrow_ms is not None:
            assert cost.total == pytest.approx(narrow_ms)
        assert 0 <= cost.total < whole_ms


def test_fewer_channels_never_cost_more():
    row = Staircase(
        likeness="",
        machine="",
        threads=1,
        torch_version="",
        reads=(8, 16, 24),
        makes=(8, 16),
        ms=((1.0, 2.0), (9.0, 3.0), (2.0, 4.0)),
    )
    from paifuser_lab.pruning.targets.latency import _Stairs

    at = _Stairs(row).at
    grid = numpy.array([[read, made, 1.0] for read in range(4, 30) for made in range(4, 20)])
    times = at(grid).reshape(26, 16)
    assert (numpy.diff(times, axis=0) >= 0).all() and (numpy.diff(times, axis=1) >= 0).all()
    assert at(numpy.array([[16.0, 8.0, 1.0], [24.0, 16.0, 0.5], [12.0, 8.0, 1.0]])).tolist() == [
        2.0,
        2.0,
        1.5,
    ]


@pytest.mark.parametrize("architecture", architectures()[::4], ids=lambda one: one.name)
def test_every_family_can_be_called_at_each_of_its_widths(architecture):
    work = architecture.workload()
    for family in {
        key_of(one): one for one in families_of(couple(work.model, work.inputs))
    }.values():
        room = family.room()
        reads, makes = family.grids(4)
        assert reads[-1] == full_width(family.reads) and makes[-1] == full_width(family.makes)
        for read in reads:
            for made in makes:
                assert made in family.call(room, read, made)().shape


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            "convolution 3×3 · stride 2 · padding 1 · 2 × 9×9 · bias · float32",
        ),
        (
            nn.Conv2d(8, 16, 3, groups=8),
            "convolution 3×3 · depthwise, 2 made of each · 2 × 9×9 · bias · float32",
        ),
        (
            nn.Conv2d(8, 16, 1, groups=2, bias=False),
            "convolution 1×1 · in 2 groups · 2 × 9×9 · float32",
        ),
        (
            nn.ConvTranspose2d(8, 16, 2, stride=2),
            "transposed convolution 2×2 · stride 2 · 2 × 9×9 · bias · float32",
        ),
        (
            nn.Conv2d(8, 16, 3, dilation=2).to(memory_format=torch.channels_last),
            "dilation 2 · 2 × 9×9 · bias · float32 · channels last",
        ),
    ],
)
def test_a_family_says_what_it_is_and_computes_what_the_layer_does(layer, said):
    model = nn.Sequential(nn.Conv2d(8, 8, 1), layer, nn.ReLU(), nn.Conv2d(16, 3, 1))
    work = lab.Workload(model, torch.randn(2, 8, 9, 9))
    family = families_of(couple(work.model, work.inputs))[1]
    assert said in family.likeness
    room = family.room()
    reads, makes = full_width(family.reads), full_width(family.makes)
    own = family.call(room, reads, makes)
    shape = layer.weight.shape
    values, weights = (
        room.values[: 2 * 8 * 81].view(2, 8, 9, 9),
        room.weights[: layer.weight.numel()].view(shape),
    )
    if "channels last" in said:
        values, weights = (
            values.view(2, 9, 9, 8).movedim(-1, 1),
            room.weights.view(16, 3, 3, 8).movedim(-1, 1),
        )
    with torch.no_grad():
        layer.weight.copy_(weights)
        if layer.bias is not None:
            layer.bias.copy_(room.biases[:16])
        assert torch.allclose(own(), layer(values), atol=1e-5)
        assert own().is_contiguous(memory_format=torch.channels_last) or "channels last" not in said


def test_a_grid_has_few_widths_and_the_whole_one_last():
    assert spaced(16, MOST_WIDTHS) == (2, 4, 6, 8, 10, 12, 14, 16)
    assert spaced(64, MOST_WIDTHS) == (8, 16, 24, 32, 40, 48, 56, 64)
    assert spaced(100, 4) == (32, 64, 96, 100)
    assert spaced(12, 4, 3) == (3, 6, 9, 12)
    for full in range(1, 400):
        found = spaced(full, MOST_WIDTHS)
        assert len(found) <= MOST_WIDTHS and found[-1] == full and list(found) == sorted(set(found))


def test_a_staircase_says_which_widths_are_worth_keeping(tmp_path):
    row = Staircase(
        likeness="convolution",
        machine="here",
        threads=1,
        torch_version="2",
        reads=(8, 16),
        makes=(8, 16, 24, 32),
        ms=((1.0, 1.0, 1.0, 1.0), (1.9, 2.0, 4.4, 4.0)),
    )
    assert row.worth_making == (8, 16, 32) and row.worth_reading == (8, 16)
    assert row.by_read == (1.0, 4.0)
    assert [one["note"] for one in row.table()] == ["the last before a rise"] * 2 + [""] + [
        "the last before a rise"
    ] * 3
    assert "makes        16" in str(row) and "<table>" in row._repr_html_()
    assert Staircase.load(row.save(tmp_path / "row.json")) == row
    with pytest.raises(ValueError, match="a time for each pair of widths"):
        Staircase(**{**row.model_dump(), "makes": (8, 16)})


def test_tables_join_with_the_newer_in_the_place_of_the_elder():
    empty = StaircaseTable(machine="here", threads=1, torch_version="2")
    old, new = (
        Staircase(
            likeness="a",
            machine="",
            threads=1,
            torch_version="",
            reads=(1,),
            makes=(8,),
            ms=((ms,),),
        )
        for ms in (1.0, 2.0)
    )
    whole_one = WholeLatency(likeness="w", original_ms=2.0, ms=1.0)
    joined = empty.model_copy(update={"rows": (old,)}).joined(
        empty.model_copy(update={"rows": (new,), "wholes": (whole_one,)})
    )
    assert (
        joined.rows == (new,) and joined.find("a", 1, 8) == new and joined.find("a", 1, 9) is None
    )
    assert joined.whole("w") == whole_one and joined.whole("v") is None


def test_a_layers_staircase_is_measured_really(own_cache):
    work = work_of(plain())
    seen = lab.staircase(work, "body.1.0", threads=1, seconds=0.3)
    assert (
        seen.reads[-1] == 16
        and seen.makes[-1] == 32
        and all(ms > 0 for row in seen.ms for ms in row)
    )
    assert seen.threads == 1 and lab.figure(seen) is not None
    assert lab.staircase(work, "body.1.0", threads=1) == seen


def test_a_layer_without_a_staircase_says_why():
    work = work_of(plain())
    with pytest.raises(WorkloadError, match="has no layer 'nowhere'"):
        lab.staircase(work, "nowhere")
    with pytest.raises(WorkloadError, match=r"layer 'body\.0\.1' \(BatchNorm2d\) has no staircase"):
        lab.staircase(work, "body.0.1")


def test_a_clock_of_its_own_does_not_run_while_others_do():
    import time

    taken_ms = in_turn({"sleeps": lambda: time.sleep(0.02)}, torch.device("cpu"), 0.0, own_ms)[
        "sleeps"
    ]
    assert taken_ms < 10
    assert FEWEST + WARM == 7

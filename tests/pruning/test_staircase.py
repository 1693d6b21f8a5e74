"""Widths by latency: staircases are measured once, and a pruned model is as fast as they
predict.
"""

from __future__ import annotations

from math import ceil

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import StepError, StoppedError, WorkloadError
from paifuser_lab.measure import FEWEST, WARM, in_turn, own_ms
from paifuser_lab.pruning.groups import couple
from paifuser_lab.pruning.targets import measure, whole_model
from paifuser_lab.pruning.targets.latency import families_of, latency_cost
from paifuser_lab.pruning.targets.layer_families import full_width
from paifuser_lab.pruning.targets.measure import kept_table, key_of, staircases
from paifuser_lab.records import Staircase, WholeLatency
from tests.support.masking import gap, masked
from tests.support.models import images
from tests.support.prune_zoo import architectures
from tests.support.prune_zoo.architecture import scattered
from tests.support.prune_zoo.convolutional import plain

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.usefixtures("one_thread", "own_cache"),
]
STEP, REST_MS = 8, 2.0


@pytest.fixture
def own_cache(monkeypatch, tmp_path, cache_of_this_run):
    """An empty cache, but the machine that was already measured."""
    known = lab.hardware()
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))
    monkeypatch.setattr(measure, "hardware", lambda: known)
    return tmp_path


@pytest.fixture
def pace(monkeypatch):
    """Times by a formula instead of a clock: a step every 8 input and output channels; records the
    timed calls.
    """
    timed = []

    def of_widths(calls, device, seconds, clock):
        with torch.no_grad():
            for call in calls.values():
                call()
        timed.append(list(calls))
        return {(read, make): float(ceil(read / STEP) * ceil(make / STEP)) for read, make in calls}

    def of_wholes(calls, device, seconds, clock):
        timed.append(list(calls))
        models = [call.__closure__[1].cell_contents for call in calls.values()]
        return dict(zip(calls, map(formula_ms, models), strict=True))

    monkeypatch.setattr(measure, "in_turn", of_widths)
    monkeypatch.setattr(whole_model, "in_turn", of_wholes)
    return timed


def formula_ms(model: nn.Module) -> float:
    """A model's latency by the formula."""
    sides = [
        layer.weight.shape[:2]
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.weight.ndim > 1
    ]
    return REST_MS + sum(ceil(make / STEP) * ceil(read / STEP) for make, read in sides)


def work_of(model: nn.Module) -> lab.Workload:
    return lab.Workload(scattered(model.eval()), images(size=16))


def pruned(work: lab.Workload, share: float, **options) -> lab.Variant:
    return lab.apply(work, lab.Recipe([{"prune": {"to": {"latency": share}, **options}}]))


def test_a_model_is_as_fast_as_the_staircases_predict(pace):
    work = work_of(plain())
    variant = pruned(work, 0.5)
    assert formula_ms(variant.module) <= 0.5 * formula_ms(work.model)
    share = formula_ms(variant.module) / formula_ms(work.model)
    (note,) = (
        note
        for note in variant.notes
        if "of the original's predicted" in note and note.startswith("latency")
    )
    assert note.startswith(f"latency: {share:.1%} of the original's predicted") and note.endswith(
        "measured in turn, 1 thread"
    )
    assert gap(masked(work.model, variant.module), variant.module, work.inputs) < 1e-9


def test_round_to_holds_for_latency_too(pace):
    widths = [
        layer.out_channels
        for layer in pruned(work_of(plain()), 0.5, round_to=16).module.modules()
        if isinstance(layer, nn.Conv2d)
    ]
    assert all(width % 16 == 0 for width in widths)


def test_measurements_are_cached_and_a_damaged_file_is_measured_again(pace, own_cache):
    work = work_of(plain())
    first = pruned(work, 0.5)
    assert len(pace) == 5, "four layers and the whole"
    again = pruned(work_of(plain()), 0.5)
    assert len(pace) == 5 and [weight.shape for weight in again.module.parameters()] == [
        weight.shape for weight in first.module.parameters()
    ]
    (file,) = own_cache.glob("staircases-*.json")
    file.write_text("{")
    pruned(work_of(plain()), 0.6)
    assert len(pace) == 10


def test_an_interrupt_keeps_the_finished_measurements(pace, monkeypatch):
    families = families_of(couple(plain().eval(), lab.Workload(plain(), images(size=16)).inputs))
    real, count = measure.in_turn, 0

    def interrupted(*args):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(measure, "in_turn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        staircases(families, count=1, seconds=1.0)
    assert len(kept_table(1).rows) == 2


def test_a_stop_keeps_the_finished_measurements(pace):
    families = families_of(couple(plain().eval(), lab.Workload(plain(), images(size=16)).inputs))
    with pytest.raises(StoppedError):
        staircases(families, count=1, seconds=1.0, should_stop=lambda: len(pace) == 2)
    assert len(kept_table(1).rows) == len(pace) == 2


def test_a_target_out_of_reach_names_the_smallest_share(pace):
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
    (row,) = staircases([family], count=1, seconds=0.0).values()
    assert (len(row.reads), len(row.makes)) == (2, 2)


def test_latency_equals_the_whole_model_s_at_full_and_at_narrow_width(pace):
    work = work_of(plain())
    structure = couple(work.model, work.inputs)
    narrow = [
        max(1, group.width // 4) if group.pinned is None else group.width
        for group in structure.groups
    ]
    rows = staircases(families_of(structure), count=1, seconds=1.0)
    for whole_ms, narrow_ms in ((100.0, 30.0), (100.0, None), (1.0, 0.5)):
        whole = WholeLatency(likeness="", original_ms=whole_ms, ms=whole_ms, narrow_ms=narrow_ms)
        cost, _ = latency_cost(structure, rows, whole, narrow)
        assert cost.total == pytest.approx(whole_ms)
        for index, width in enumerate(narrow):
            cost.take(index, width)
        if whole_ms == 100.0 and narrow_ms is not None:
            assert cost.total == pytest.approx(narrow_ms)
        assert 0 <= cost.total < whole_ms


@pytest.mark.parametrize("architecture", architectures()[::4], ids=lambda entry: entry.name)
def test_every_family_can_be_called_at_each_of_its_widths(architecture):
    work = architecture.workload()
    for family in {
        key_of(member): member for member in families_of(couple(work.model, work.inputs))
    }.values():
        buffers = family.buffers()
        reads, makes = family.grids(4)
        assert reads[-1] == full_width(family.reads) and makes[-1] == full_width(family.makes)
        for read in reads:
            for make in makes:
                assert make in family.call(buffers, read, make)().shape


@pytest.mark.parametrize(
    ("layer", "likeness"),
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
def test_a_family_describes_the_layer_and_computes_the_same(layer, likeness):
    model = nn.Sequential(nn.Conv2d(8, 8, 1), layer, nn.ReLU(), nn.Conv2d(16, 3, 1))
    work = lab.Workload(model, torch.randn(2, 8, 9, 9))
    family = families_of(couple(work.model, work.inputs))[1]
    assert likeness in family.likeness
    buffers = family.buffers()
    reads, makes = full_width(family.reads), full_width(family.makes)
    own = family.call(buffers, reads, makes)
    shape = layer.weight.shape
    values, weights = (
        buffers.values[: 2 * 8 * 81].view(2, 8, 9, 9),
        buffers.weights[: layer.weight.numel()].view(shape),
    )
    if "channels last" in likeness:
        values, weights = (
            values.view(2, 9, 9, 8).movedim(-1, 1),
            buffers.weights.view(16, 3, 3, 8).movedim(-1, 1),
        )
    with torch.no_grad():
        layer.weight.copy_(weights)
        if layer.bias is not None:
            layer.bias.copy_(buffers.biases[:16])
        assert torch.allclose(own(), layer(values), atol=1e-5)
        assert (
            own().is_contiguous(memory_format=torch.channels_last)
            or "channels last" not in likeness
        )


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
    assert [line["note"] for line in row.table()] == ["the last before a rise"] * 2 + [""] + [
        "the last before a rise"
    ] * 3
    assert "makes        16" in str(row) and "<table>" in row._repr_html_()
    assert Staircase.load(row.save(tmp_path / "row.json")) == row


def test_a_layers_staircase_is_measured_with_a_real_clock(own_cache):
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


def test_the_cpu_clock_does_not_run_while_the_process_sleeps():
    import time

    taken_ms = in_turn({"sleeps": lambda: time.sleep(0.02)}, torch.device("cpu"), 0.0, own_ms)[
        "sleeps"
    ]
    assert taken_ms < 10
    assert FEWEST + WARM == 7

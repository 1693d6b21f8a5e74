"""Whether a workload fits: the largest batch, what would make more fit, and limits too small."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError
from paifuser_lab.memory import predicted_peak
from paifuser_lab.memory.fit import largest_batch
from paifuser_lab.memory.predict.blocks import checkpoint_layers, repeated_blocks
from paifuser_lab.records import Fit
from tests.support.models import Perceptron

pytestmark = pytest.mark.usefixtures("one_thread")
WIDTH = 16


def workload(model: nn.Module | None = None, batch: int = 2) -> lab.Workload:
    stack = nn.Sequential(*(Perceptron(WIDTH) for _ in range(4)))
    return lab.Workload(model or stack, torch.randn(batch, WIDTH), name="small")


# The search for the largest batch: arithmetic.


@given(
    base=st.integers(0, 10**6),
    slope=st.integers(0, 10**4),
    bend=st.integers(0, 50),
    limit=st.integers(1, 10**8),
    start=st.integers(1, 300),
    most=st.sampled_from([300, 1024, 2**20]),
)
def test_the_largest_batch_is_found_in_few_predictions(base, slope, bend, limit, start, most):
    asked = []

    def needed(batch):
        asked.append(batch)
        return base + slope * batch + bend * batch * batch

    found = largest_batch(needed, limit, start, most)
    if found is None:
        assert needed(1) > limit
        return
    assert needed(found) <= limit and 1 <= found <= most
    assert found == most or needed(found + 1) > limit
    assert len(asked) <= 3 * math.log2(most) + 8


@pytest.mark.parametrize(
    ("refused", "start", "expected"),
    [({1}, 1, 10), ({1}, 4, 10), (set(range(1, 41)) - {8}, 8, 8), (set(range(9, 41)), 2, 8)],
)
def test_batches_that_the_model_refuses_do_not_fit(refused, start, expected):
    found = largest_batch(lambda batch: None if batch in refused else batch, 10, start, 40)
    assert found == expected


# Answers.


def test_a_workload_fits_or_does_not_and_the_largest_batch_is_the_last_that_does():
    work = workload()
    peak = predicted_peak(work, batch=64).peak_bytes
    fit = lab.fits(work, limit=peak)
    assert fit and fit.is_within and fit.largest_batch >= 64
    assert predicted_peak(work, batch=fit.largest_batch).peak_bytes <= peak
    assert predicted_peak(work, batch=fit.largest_batch + 1).peak_bytes > peak
    below = lab.fits(work, limit=peak, batch=fit.largest_batch + 1)
    assert not below and "does not fit" in str(below)
    assert below.largest_batch == fit.largest_batch


def test_limits_are_read_as_text():
    assert lab.fits(workload(), limit="8 GB").limit_bytes == 8 * 10**9
    assert lab.fits(workload(), limit=10**6).limit_bytes == 10**6
    assert lab.fits(workload()).limit_bytes > 10**6, "a safe share of the free memory"


def test_every_remedy_saves_what_it_says_and_each_is_priced():
    work = workload(batch=512)
    peak = predicted_peak(work, train=True).peak_bytes
    fit = lab.fits(work, train=True, limit=int(0.7 * peak))
    names = [remedy.change for remedy in fit.remedies]
    assert names[0] == f"a batch of {fit.largest_batch}" and fit.largest_batch < 512
    assert any(name.startswith("checkpointing") for name in names)
    assert "bf16 autocast" in names and names[-1] == "all of these"
    for remedy in fit.remedies:
        options = remedy.options.model_dump()
        assert predicted_peak(work, batch=remedy.batch, **options).peak_bytes == remedy.peak_bytes
        assert remedy.peak_bytes < peak and remedy.largest_batch >= fit.largest_batch
    together = fit.remedies[-1]
    assert together.peak_bytes == min(
        remedy.peak_bytes for remedy in fit.remedies if remedy.batch == 512
    )


def test_one_change_alone_is_not_offered_again_as_all_of_these():
    work, options = workload(batch=512), {"precision": "amp-bf16", "implementation": "fused"}
    peak = predicted_peak(work, train=True, **options).peak_bytes
    (remedy,) = lab.fits(work, train=True, limit=2 * peak, **options).remedies
    assert remedy.change.startswith("checkpointing")


def test_the_fewest_blocks_that_let_it_fit_are_checkpointed_and_cost_flops():
    work = workload(batch=512)
    peaks = [
        predicted_peak(work, train=True, checkpoint=("0", "1", "2", "3")[:count]).peak_bytes
        for count in range(5)
    ]
    fit = lab.fits(work, train=True, limit=peaks[2])
    remedy = next(row for row in fit.remedies if row.change.startswith("checkpointing"))
    assert remedy.options.checkpoint == ("0", "1") and remedy.peak_bytes == peaks[2]
    assert 0 < remedy.more_flops < 1 / 3
    assert "+" in fit.remedy_table()[-2]["time"] or any(
        "FLOPs" in row["time"] for row in fit.remedy_table()
    )
    all_of_them = lab.fits(work, train=True, limit="1 GB").remedies
    remedy = next(row for row in all_of_them if row.change.startswith("checkpointing"))
    assert len(remedy.options.checkpoint) == 4, "it fits already, so for the largest batch"


def test_a_fused_optimizer_is_offered_where_the_optimizer_makes_the_peak():
    work = workload(nn.Sequential(nn.Linear(WIDTH, 1024), nn.Linear(1024, WIDTH)))
    fit = lab.fits(work, train=True, limit="1 GB", implementation="foreach")
    fused = next(row for row in fit.remedies if row.change == "a fused optimizer")
    assert fused.peak_bytes < fit.predicted.peak_bytes
    again = lab.fits(work, train=True, limit="1 GB", implementation="fused")
    assert "a fused optimizer" not in [remedy.change for remedy in again.remedies]


def test_a_call_is_helped_by_bf16_and_by_nothing_of_training():
    (remedy,) = lab.fits(workload(), limit="1 GB").remedies
    assert (remedy.change, remedy.more_flops) == ("bf16", None)
    assert remedy.peak_bytes < lab.fits(workload(), limit="1 GB").predicted.peak_bytes


def test_in_bf16_the_caller_keeps_the_inputs_that_it_gave():
    work = workload(nn.Linear(WIDTH, 1))
    given = sum(tensor.nbytes for tensor in work.inputs.tensors)
    fit = lab.fits(work, limit="1 GB", precision="bf16")
    assert fit.predicted.peak_bytes >= 1.5 * given
    assert not fit.frame.empty


def test_a_limit_below_the_weights_is_a_sentence_with_the_smallest_that_works():
    work = workload(nn.Linear(WIDTH, WIDTH))
    with pytest.raises(MeasureError, match="for its weights alone") as caught:
        lab.fits(work, limit=100)
    message = str(caught.value)
    assert "1.09 kB for its weights alone and the limit is 100 B" in message and "\n" not in message
    smallest = int(re.search(r"works is ([\d,]+) bytes", message)[1].replace(",", ""))
    assert lab.fits(work, limit=smallest, batch=1)
    assert not lab.fits(work, limit=smallest - 1, batch=1)


def test_a_model_that_needs_two_examples_to_train_is_searched_from_two():
    norm = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8))
    peak = predicted_peak(workload(norm), train=True, batch=2).peak_bytes
    fit = lab.fits(workload(norm, batch=64), train=True, limit=peak)
    assert not fit and fit.largest_batch == 2


# Blocks.


def test_the_blocks_of_the_zoo_are_found():
    assert repeated_blocks(lab.load("vit-s-tiny").model) == ("blocks.0", "blocks.1")
    assert repeated_blocks(lab.load("resnet18-tiny").model)[0] == "layer1.0"
    assert repeated_blocks(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == ()


def test_checkpointed_layers_compute_the_same_gradients():
    torch.manual_seed(0)
    plain, changed = workload().model, workload().model
    changed.load_state_dict(plain.state_dict())
    checkpoint_layers(changed, ("0", "2"))
    x = torch.randn(3, WIDTH)
    for model in (plain, changed):
        model(x).sum().backward()
    pairs = zip(plain.parameters(), changed.parameters(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs)


# The record.


def test_what_a_process_may_take_in_all_is_compared_with_the_limit():
    fit = lab.fits(workload(), limit="1 GB")
    resident = int(1.42 * fit.predicted.peak_bytes) + 100_000_000
    assert fit.predicted.resident_bytes == resident and "within the limit" in fit.process_sentence
    tight = fit.model_copy(update={"limit_bytes": resident - 1})
    assert tight.is_within and "past the limit" in tight.process_sentence
    assert "fits: torch allocates" in fit.title and "fits, its process may not:" in tight.title
    for shown in (str(tight), tight._repr_html_()):
        assert tight.process_sentence in shown
    on_a_gpu = fit.predicted.model_copy(update={"device": "cuda"})
    assert on_a_gpu.resident_bytes is None
    assert Fit(predicted=on_a_gpu, limit_bytes=5).process_sentence == ""

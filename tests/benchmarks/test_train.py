"""`benchmarks train` on a small model: every way is raced, refusals left out, peers named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from benchmarks import train, train_models
from benchmarks.train_models import MODELS, Trained
from paifuser_lab.records import Record
from paifuser_lab.zoo.data import boxed_streets
from tests.support.training_loops import Digits, batch


@pytest.fixture
def small(monkeypatch):
    adam = lambda weights: torch.optim.AdamW(weights, lr=0.01)
    monkeypatch.setattr(train, "MODELS", {"digits": Trained(Digits, batch, F.cross_entropy, adam)})
    monkeypatch.setattr(train, "STEPS", 12)
    monkeypatch.setattr(train, "MOST_STEPS", 30)

    def absent(name):
        raise ImportError(name, name=name)

    monkeypatch.setattr(train, "import_module", absent)


def test_every_way_is_raced_and_the_losses_are_compared_over_seeds(small, tmp_path):
    measured = train.bench(("digits",), seconds=0.1, seeds=2)
    ways = [row.way for row in measured.rows]
    assert ways[0] == "eager" and {"precision", "channels_last", "enable()"} <= set(ways)
    assert "torch.autocast" in ways and "torch.compile" not in ways
    assert measured.rows[0].ratio == 1 and all(row.ratio > 0 for row in measured.rows)
    assert all(row.peak_bytes > 0 for row in measured.rows)
    assert measured.absent == {
        "HF Accelerate": "not installed (accelerate); the extra 'peers' has it",
        "Lightning Fabric": "not installed (lightning.fabric); the extra 'peers' has it",
    }
    (loss,) = measured.losses
    assert len(loss.plain) == len(loss.accelerated) == 2
    assert loss.judged_steps > 12  # its first run went on
    assert "digits, enable(): " in measured.summary and "not installed" in measured.summary
    assert Record.load(measured.save(tmp_path / "train.json")) == measured
    assert [row["model"] for row in measured.table()] == ["digits"]


def test_what_a_model_cannot_have_is_not_raced(small, monkeypatch):
    line = Trained(lambda: torch.nn.Linear(4, 3), lambda step: (torch.randn(2, 4), batch(0, 2)[1]))
    monkeypatch.setattr(train, "MODELS", {"line": line})
    measured = train.bench(("line",), seconds=0.1, seeds=0)
    assert not [
        row.way for row in measured.rows if "channels_last" in row.way or "enable" in row.way
    ]


def test_a_way_that_is_far_slower_leaves_after_a_few_rounds(small):
    def burn_time(contender):
        call = contender.call
        contender.call = lambda args, kwargs: (sum(range(2_000_000)), call(args, kwargs))[1]

    fast, slow = (
        train._contender(name, train.MODELS["digits"], frozenset()) for name in ("eager", "slow")
    )
    burn_time(slow)
    train._run_in_turn([fast, slow], train.MODELS["digits"], seconds=3)
    assert len(slow.block_s) == min(train.LEAVES) < train.FEWEST < len(fast.block_s)
    assert train._row("digits", fast, slow).ratio < 0.5


def test_a_switch_that_is_far_slower_alone_is_not_raced_with_others(small, monkeypatch):
    took = {"eager": 1.0, "precision": 9.0, "channels_last": 1.2}

    def block(contender, trained, step):
        contender.block_s.append(took.get(contender.name, 1.0))

    monkeypatch.setattr(train, "_block", block)
    ways = ("eager", "precision", "channels_last", "precision + channels_last", "enable()")
    contenders = [
        train._contender(way, train.MODELS["digits"], frozenset(way.split(" + "))) for way in ways
    ]
    contenders[-1].switches = contenders[1].switches  # chosen all the same
    kept = [contender.name for contender in train._warmed(contenders, train.MODELS["digits"])]
    assert kept == ["eager", "precision", "channels_last", "enable()"]
    assert not any(contender.block_s for contender in contenders), "it is not counted"


def test_of_a_large_model_no_combinations_are_raced_and_its_runs_are_shorter(small, monkeypatch):
    monkeypatch.setattr(train, "OF_LARGE", 6)
    digits = replace(train.MODELS["digits"], is_large=True)
    monkeypatch.setattr(train, "MODELS", {"digits": digits})
    measured = train.bench(("digits",), seconds=0.1, seeds=1)
    assert [row.way for row in measured.rows] == ["eager", "enable()", "torch.autocast"]
    assert all(row.peak_bytes is None for row in measured.rows)
    assert measured.table()[0]["loss, plain → `enable()`"].endswith("; 6 steps")


NAMES = ["seed-cnn", "vit-s", "bert-small", "gpt-like", "yolo-streets", "smollm2-135m"]


@pytest.mark.parametrize("name", NAMES)
def test_each_model_takes_a_step_on_its_batches(name, monkeypatch):
    monkeypatch.setattr(train_models, "find_spec", bool)  # a tiny Llama stands in
    few = lambda train, **sizes: boxed_streets(train=16, **sizes)
    monkeypatch.setattr(train_models, "boxed_streets", few)
    trained = MODELS[name]
    inputs, labels = trained.batch(3)
    again, _ = trained.batch(3)
    assert torch.equal(inputs, again) and not torch.equal(inputs, trained.batch(4)[0])
    torch.manual_seed(0)
    with torch.no_grad():
        loss = trained.loss(trained.make()(inputs[:2]), labels[:2])
    assert torch.isfinite(loss)

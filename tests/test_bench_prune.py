"""The bench of pruning runs, tells a wrong cut from a right one, and gives a record."""

from __future__ import annotations

import torch

from paifuser_lab.bench import prune
from paifuser_lab.bench.prune import PruneBench, bench
from paifuser_lab.bench.prune_zoo import Architecture
from paifuser_lab.bench.prune_zoo.convolutional import plain


def test_each_architecture_gets_a_verdict(monkeypatch, tmp_path):
    narrow = Architecture("narrow", lambda: torch.nn.Linear(4, 3), lambda: torch.randn(2, 4))
    zoo = (Architecture("plain", plain, lambda: torch.randn(1, 3, 8, 8)), narrow)
    monkeypatch.setattr(prune, "architectures", lambda: zoo)
    measured = bench(depths=(10,))
    exact, refused = measured.rows
    assert exact.verdict == "exact" and exact.removed_channels > 0.4 and exact.removed_weights > 0.6
    assert refused.verdict == "refused" and "no channel of it can be removed" in refused.note
    assert measured.summary.startswith("1 exact, 1 refused, 0 wrong of 2") and "10 layers" in measured.summary
    assert measured.table()[0]["model"] == "plain"
    assert PruneBench.load(measured.save(tmp_path / "bench.json")) == measured


def test_a_wrong_cut_is_seen(monkeypatch):
    right = prune.apply

    def wrong(work, recipe):
        variant = right(work, recipe)
        with torch.no_grad():
            variant.module.head.weight[0] = variant.module.head.weight[1]
        return variant

    monkeypatch.setattr(prune, "apply", wrong)
    monkeypatch.setattr(prune, "architectures", lambda: (Architecture("plain", plain, lambda: torch.randn(1, 3, 8, 8)),))
    (row,) = bench(depths=()).rows
    assert row.verdict == "wrong"

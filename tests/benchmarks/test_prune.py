"""The benchmark of pruning detects wrong results and returns a record."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

import pytest
import torch

from benchmarks import prune, prune_peer
from benchmarks.prune import PruneBench, PruneRow, bench
from paifuser_lab.errors import MeasureError, MissingExtraError
from tests.support.prune_zoo import Architecture
from tests.support.prune_zoo.convolutional import plain


def test_each_architecture_gets_a_verdict(monkeypatch, tmp_path):
    narrow = Architecture("narrow", lambda: torch.nn.Linear(4, 3), lambda: torch.randn(2, 4))
    zoo = (Architecture("plain", plain, lambda: torch.randn(1, 3, 8, 8)), narrow)
    monkeypatch.setattr(prune, "architectures", lambda: zoo)
    measured = bench(depths=(10,))
    exact, refused = measured.rows
    assert exact.verdict == "exact" and exact.removed_channels > 0.4 and exact.removed_weights > 0.6
    assert refused.verdict == "refused" and "no channel of it can be removed" in refused.note
    assert (
        measured.summary.startswith("exact on 1, refused on 1, wrong on 0; ")
        and "10 layers" in measured.summary
    )
    assert measured.table()[0]["model"] == "plain"
    assert PruneBench.load(measured.save(tmp_path / "bench.json")) == measured


def test_a_wrong_result_is_detected(monkeypatch):
    original_apply = prune.apply

    def wrong(work, recipe):
        variant = original_apply(work, recipe)
        with torch.no_grad():
            variant.module.head.weight[0] = variant.module.head.weight[1]
        return variant

    monkeypatch.setattr(prune, "apply", wrong)
    monkeypatch.setattr(
        prune,
        "architectures",
        lambda: (Architecture("plain", plain, lambda: torch.randn(1, 3, 8, 8)),),
    )
    (row,) = bench(depths=()).rows
    assert row.verdict == "wrong"


def test_a_missing_or_unknown_peer_is_refused_before_anything_is_pruned(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    monkeypatch.setattr(prune, "_row", lambda *_: pytest.fail("something was pruned"))
    with pytest.raises(MissingExtraError, match=r"pip install 'paifuser-lab\[peers\]'"):
        bench(["plain"], depths=(), peer="torch-pruning")
    with pytest.raises(
        MeasureError, match="'depgraph' is not a peer in pruning; there is torch-pruning"
    ):
        bench(["plain"], depths=(), peer="depgraph")


def returns_row(pipe, name, ratio):
    pipe.send("ready")
    pipe.send(PruneRow(name=name, verdict="exact", seconds=0.0))


def hangs(pipe, name, ratio):
    pipe.send("ready")
    time.sleep(60)


def crashes(pipe, name, ratio):
    pipe.send("ready")
    os._exit(1)


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(),
    reason="a process begins from nothing here",
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("work", "limit_s", "verdict", "note"),
    [
        (returns_row, 60.0, "exact", ""),
        (hangs, 0.1, "timed out", "it had not returned after 0.1 s"),
        (crashes, 60.0, "failed", "its process ended without a result"),
    ],
)
def test_the_outcome_of_a_process_is_reported_whatever_it_does(
    monkeypatch, work, limit_s, verdict, note
):
    monkeypatch.setattr(prune_peer, "_work", work)
    monkeypatch.setattr(prune_peer, "get_all_start_methods", list)
    monkeypatch.setattr(prune_peer, "get_context", lambda _: multiprocessing.get_context("fork"))
    row = prune_peer.peer_row("plain", 0.5, limit_s)
    assert (row.verdict, row.note) == (verdict, note)


def test_peers_rows_are_shown_beside_ours():
    ours = PruneRow(name="net", verdict="exact", removed_weights=0.7, seconds=1.0)
    theirs = PruneRow(name="net", verdict="timed out", seconds=30.0, note="late")
    record = PruneBench(
        machine="here",
        ratio=0.5,
        rows=(ours,),
        layers_to_seconds={},
        peer="torch-pruning",
        peer_rows=(theirs,),
    )
    _, row = record.table()
    assert (row["model"], row["verdict"]) == ("net, torch-pruning", "timed out")
    assert record.summary.splitlines()[1] == (
        "torch-pruning: exact on 0, wrong on 0, failed on 0, refused on 0, timed out on 1"
    )


@pytest.mark.filterwarnings("ignore")
def test_the_peer_prunes_the_architectures_that_it_supports():
    pytest.importorskip("torch_pruning", reason="the extra 'peers' is not installed")
    plain, gpt2 = (prune_peer.peer_row(name, 0.5) for name in ("plain", "GPT-2"))
    assert plain.verdict == "exact" and plain.removed_weights > 0.6
    assert gpt2.verdict != "exact"

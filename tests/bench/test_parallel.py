"""`bench parallel` on a tiny model: every way is raced and trained, and the pages show it."""

from __future__ import annotations

import pytest

from paifuser_lab.bench.pages.folder import Records
from paifuser_lab.bench.pages.parallel import BLOCKS
from paifuser_lab.bench.parallel import WAYS, bench
from paifuser_lab.bench.parallel_rows import LinkStep
from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Record

TINY = {"width": 16, "depth": 2, "batch": 8, "batches": 2}


@pytest.fixture(scope="module")
def measured():
    return bench(seeds=1, rounds=1, steps=24, links=(), size=TINY)


def test_every_way_is_raced_and_trained_on_two_processes(measured):
    ways = {row.way: row for row in measured.ways}
    assert list(ways) == list(WAYS)
    weights = 4 * measured.parameters
    assert ways["DDP"].sent_bytes == pytest.approx(weights)  # 2 (n − 1) / n of it, on two
    assert ways["DDP, bf16"].sent_bytes == pytest.approx(weights / 2)
    assert ways["DDP, PowerSGD"].sent_bytes < weights / 2
    assert ways["local 32, int8 differences"].sent_bytes < ways["local 32"].sent_bytes
    assert ways["local 32"].sent_bytes < ways["local 8"].sent_bytes < weights / 2
    assert ways["FSDP2"].optimizer_bytes < 0.6 * ways["DDP"].optimizer_bytes
    assert all(len(row.losses) == 1 and row.steps_per_s > 0 for row in measured.ways)
    assert ways["DDP"].ratio == 1
    assert ways["DDP"].losses[0] == pytest.approx(measured.alone[0], rel=0.02)


def test_pipelines_are_measured_by_profile_and_in_equal_parts(measured):
    found = [(record.schedule, record.split) for record in measured.pipelines]
    splits = ("measured times", "equal numbers of layers")
    assert found == [(schedule, split) for schedule in ("gpipe", "1f1b") for split in splits]
    assert all(0 < record.measured_bubble < 1 for record in measured.pipelines)


def test_the_record_is_kept_and_the_pages_show_it(measured, tmp_path):
    links = (
        LinkStep(way="DDP", ranks=2, gbit_per_s=1, simulated_ms=4.5, measured_ms=4.75),
        LinkStep(way="DDP", ranks=16, gbit_per_s=1, simulated_ms=8.25),
    )
    known = measured.model_copy(update={"links": links})
    assert Record.load(known.save(tmp_path / "parallel.json")) == known
    pages = {name: block(Records(tmp_path)) for name, block in BLOCKS.items()}
    assert all(f"| {way} |" in pages["parallel"] for way in WAYS)
    assert "| DDP | 1 Gbit/s | 4.5 (4.75) | 8.25 |" in pages["links"]
    assert pages["pipelines"].count("\n") == 5
    assert "simulated 4.5 ms, measured 4.75 ms" in known.summary
    assert [block(Records(tmp_path / "none")) for block in BLOCKS.values()] == [""] * 3


def test_an_unknown_model_is_refused_with_the_names():
    with pytest.raises(MeasureError, match="'resnet99' is not trained here; there are cnn, vit"):
        bench("resnet99")

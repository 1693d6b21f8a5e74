"""`benchmarks parallel` on a tiny model: every way is raced and trained, and the pages show it."""

from __future__ import annotations

import pytest

from benchmarks import parallel, parallel_equal, parallel_kills
from benchmarks.measured import Records
from benchmarks.pages import block
from benchmarks.parallel import WAYS, LinkStep, ParallelBench, bench
from benchmarks.parallel_equal import EqualBench, EqualRow
from benchmarks.parallel_kills import Kill, KillBench
from paifuser_lab.records import Record

TINY = {"width": 16, "depth": 2, "batch": 8, "batches": 2}


@pytest.fixture(scope="module")
def parts():
    """The record after each part, the whole one last."""
    records: list[ParallelBench] = []
    bench(seeds=1, rounds=1, steps=24, links=(), size=TINY, keep=records.append)
    return records


@pytest.fixture(scope="module")
def measured(parts):
    return parts[-1]


def test_the_record_grows_after_each_part(parts):
    raced, trained, whole = parts
    assert not raced.alone and all(row.losses == () for row in raced.ways)
    assert len(trained.alone) == 1 and not trained.pipelines
    assert trained.ways == whole.ways and whole.pipelines
    text = str([raced.table(), raced.summary])  # is shown also where it was stopped
    assert "DDP, bf16" in text


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


def test_a_simulated_exchange_takes_at_least_what_it_takes_without_a_link(monkeypatch):
    """Ranks compute for 10 ms; the rest of a step over the loopback is the exchange's."""

    def run(race, model, options, rounds, steps, gbit_per_s, names, *, processes, threads):
        whole = 0.020 if gbit_per_s else 0.005 * processes + 0.010
        return [{way: {"seconds": [whole * 8], "steps": 8, "computed_ms": 10.0} for way in names}]

    monkeypatch.setattr(parallel, "run", run)
    (rows,) = parallel._links("gpt-like", TINY, (1e6,), 8)
    found = {(row.way, row.ranks): (row.simulated_ms, row.measured_ms) for row in rows}
    for way in parallel.CHECKED:
        assert found[way, 2] == pytest.approx((20, 20), rel=0.02)
        assert found[way, 4] == pytest.approx((30, 20), rel=0.02)
        assert found[way, 16] == (pytest.approx(20, rel=0.05), None)


def test_the_record_is_kept_and_the_pages_show_it(measured, tmp_path):
    links = (
        LinkStep(way="DDP", ranks=2, gbit_per_s=1, simulated_ms=4.5, measured_ms=4.75),
        LinkStep(way="DDP", ranks=16, gbit_per_s=1, simulated_ms=8.25),
    )
    known = measured.model_copy(update={"links": links})
    assert Record.load(known.save(tmp_path / "parallel.json")) == known
    pages = {name: block(name, Records(tmp_path)) for name in ("parallel", "links", "pipelines")}
    assert all(f"| {way} |" in pages["parallel"] for way in WAYS)
    assert "| DDP | 1 Gbit/s | 4.5 (4.75) | 8.25 |" in pages["links"]
    assert pages["pipelines"].count("\n") == 5
    assert "simulated 4.5 ms, measured 4.75 ms" in known.summary


def stopped_run(parts):
    """In place of `parallel.run`: some parts come, and then Ctrl-C or SIGTERM."""

    def run(function, *args, on_told, **options):
        for rank in (0, 1):
            for part in parts:
                on_told(rank, part)
        raise KeyboardInterrupt

    return run


def test_what_was_measured_before_a_stop_is_kept(monkeypatch):
    raced = {
        way: {
            "seconds": [1.0, 2.0],
            "steps": 24,
            "sent_bytes": 8.0,
            "wait_share": 0.5,
            "weights_bytes": 4,
            "optimizer_bytes": 8,
        }
        for way in WAYS
    }
    monkeypatch.setattr(parallel, "run", stopped_run([("race", raced)]))
    kept = bench(size=TINY)
    assert [row.way for row in kept.ways] == list(WAYS) and not kept.links
    monkeypatch.setattr(parallel, "run", stopped_run([]))
    with pytest.raises(KeyboardInterrupt):
        bench(size=TINY)


def test_rows_before_a_stop_are_kept_once_and_the_record_is_saved_after_each(monkeypatch):
    rows = [
        EqualRow(model="cnn", processes=2, strategy=name, steps=20, difference=0, tolerance=1,
                 spread=0)
        for name in ("DDP", "ZeRO")
    ]  # fmt: skip
    saved: list[EqualBench] = []
    monkeypatch.setattr(parallel_equal, "run", stopped_run(rows))
    kept = parallel_equal.bench(keep=saved.append)
    assert list(kept.rows) == rows
    assert [len(record.rows) for record in saved] == [1, 2]


def test_what_is_not_equal_to_one_process_is_marked(tmp_path):
    row = EqualRow(
        model="cnn",
        processes=2,
        strategy="DDP",
        steps=20,
        difference=3e-6,
        tolerance=1e-4,
        spread=0,
    )
    others = (
        row.model_copy(update={"processes": 4, "difference": 0.5}),
        row.model_copy(update={"model": "vit", "spread": 1e-9}),
    )
    bench = EqualBench(machine="a machine", rows=(row, *others))
    assert not bench.is_good and EqualBench(machine="a machine", rows=(row,)).is_good
    assert not EqualBench(machine="a machine").is_good
    bench.save(tmp_path / "parallel_equal.json")
    page = block("equal", Records(tmp_path))
    assert "1 of 3 trainings on a machine equal one process" in page
    assert "| DDP | 20 | 0.0001 | 3e-06 | 0.5 (not equal) | 3e-06 (not equal) |" in page


def test_kills_are_told_in_a_line(tmp_path):
    kill = Kill(rank=1, step=3, resumed_at=1, seconds=8.5)
    bench = KillBench(processes=2, steps=24, kills=(kill,), is_equal=True)
    bench.save(tmp_path / "parallel_kills.json")
    page = " ".join(block("kills", Records(tmp_path)).split())
    assert "--kills 1`: 1 kill in 24 steps of 2 processes" in page and "8.5 s at most" in page
    assert "weights equal to the undisturbed" in page
    assert "weights different from" in bench.model_copy(update={"is_equal": False}).summary


def test_kills_before_a_stop_are_kept_and_their_weights_not_judged(monkeypatch, tmp_path):
    steps = iter([3, 17])

    def stop(*options):
        if (step := next(steps, None)) is None:
            raise KeyboardInterrupt
        return Kill(rank=1, step=step, resumed_at=1, seconds=8.5)

    saved: list[KillBench] = []
    monkeypatch.setattr(parallel_kills, "_kill", stop)
    monkeypatch.setattr(parallel_kills, "_attempt", lambda *options: options[-1](None))
    kept = parallel_kills.kill_ranks(40, alone=tmp_path, keep=saved.append)
    assert [kill.step for kill in kept.kills] == [3, 17] and saved[-1] == kept
    assert "stopped early, so that its weights were not compared" in kept.summary

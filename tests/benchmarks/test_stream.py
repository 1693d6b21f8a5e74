"""The benchmark of streams: what it counts, its record and its page."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing import get_context

import pytest
from typer.testing import CliRunner

from benchmarks import stream, stream_faults, stream_overhead, stream_rows
from benchmarks.__main__ import benches as command
from benchmarks.measured import Records
from benchmarks.pages import block
from benchmarks.serve import ServeBench
from benchmarks.stream import Overhead, StreamBench
from benchmarks.stream_video import VideoBench, VideoRow
from paifuser_lab.bench import stream_batching
from paifuser_lab.bench.runner import measured
from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Record
from paifuser_lab.streaming import BatchRule, Result


@pytest.fixture
def brief(monkeypatch):
    """A short service of a frame, and few calls."""
    monkeypatch.setattr(stream_rows, "SERVICE_S", 0.002)
    monkeypatch.setattr(stream_faults, "SERVICE_S", 0.002)
    monkeypatch.setattr(stream_overhead, "CALLS", 20)
    small = lambda: stream_batching.measure(
        lambda items: items, rates=(200.0,), rules=(BatchRule(4, 1.0),), seconds=0.1
    )
    monkeypatch.setattr(stream, "measure_batching", small)


@pytest.mark.parametrize(("case", "workers"), [("2", 2), ("straggler", 8), ("no queue", 16)])
def test_each_frame_of_a_simulated_stream_is_counted_once(brief, case, workers):
    row = stream_rows.simulated(case, "threads", 0.2)
    assert (row.lost, row.doubled, row.in_order, row.workers) == (0, 0, True, workers)
    assert row.frames >= 100 and row.share > 0


def test_what_is_lost_doubled_or_out_of_order_shows_in_its_row():
    moments = [(float(index), 1.0) for index in range(6)]
    row = stream_rows.row("2", "ray", 2, [0, 1, 3, 3, 2, 5], moments, expected=7)
    assert (row.lost, row.doubled, row.in_order, row.longest_gap_ms) == (2, 1, False, 1000.0)
    cut = stream_rows.row("2", "ray", 2, [0, 1, 2], moments[:3], expected=7)
    assert (cut.lost, cut.in_order) == (4, True)


def test_the_sink_of_the_killed_driver_holds_each_frame_once(brief, tmp_path):
    sink = stream_faults.Lines(tmp_path / "lines")
    sink.open(None)
    token = sink.write(_results(0, 1))
    sink.write(_results(2, 3))  # not committed
    sink.close()
    sink.open(token)
    sink.write(_results(2, 3))
    sink.close()
    lines = (tmp_path / "lines").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3"]


def _results(*indices):
    return [Result(index, index, 1.0) for index in indices]


def test_the_record_has_a_row_a_case_and_a_page(brief, monkeypatch, tmp_path):
    monkeypatch.setattr(stream, "FLEETS", ("1", "2", "mixed", "straggler", "queue", "no queue"))
    kept = []
    measured = stream.bench(engines=("threads",), seconds=0.1, keep=kept.append)
    assert [row.case for row in measured.rows] == list(stream.FLEETS)
    assert [len(record.rows) for record in kept] == [1, 2, 3, 4, 5, 6, 6]
    assert kept[-1] == measured.model_copy(update={"elapsed_s": kept[-1].elapsed_s})
    assert [row.way for row in measured.overheads] == ["plain queues", "threads"]
    assert not measured.failures and "ms a frame" in measured.summary
    (point,) = measured.batching.points
    assert 1 <= point.mean_batch <= 4 and point.rule == "up to 4, 1 ms"
    assert Record.load(measured.save(tmp_path / "stream.json")) == measured
    page = block("stream", Records(tmp_path))
    assert "| straggler | threads | 8 |" in page and "| plain queues |" in page
    assert "| up to 4, 1 ms | 200 |" in block("batching", Records(tmp_path))


def _interrupts(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("part", [lambda _: ((), {"interrupted": ""}), _interrupts])
def test_an_interrupt_ends_the_bench_and_keeps_what_was_measured(brief, monkeypatch, part):
    monkeypatch.setattr(stream, "FLEETS", ("1",))
    monkeypatch.setattr(stream, "overheads", part)
    measured = stream.bench(engines=("threads",), seconds=0.1)
    assert [row.case for row in measured.rows] == ["1"]
    assert (measured.overheads, measured.batching) == ((), None)
    assert "until then" in measured.failures["interrupted"]


def _waits(file):
    try:
        file.write_text("begun")
        time.sleep(60)
    except KeyboardInterrupt:
        file.with_name("ended").write_text("")


def test_a_stream_in_a_process_of_its_own_is_ended_with_the_bench(monkeypatch, tmp_path):
    monkeypatch.setattr(stream_faults, "get_context", lambda _: get_context("fork"))

    def interrupt():
        while not (tmp_path / "file").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        stream_faults._in_own_process(_waits, tmp_path / "file")
    assert (tmp_path / "ended").exists()


def test_servers_and_videos_have_their_pages(tmp_path):
    served = ServeBench(
        machine="here", model="net", clients=200, seconds=60.0, max_batch=32, max_delay_ms=5.0,
        answered=60_000, refused={"503": 2}, lost=1, per_s=1000.0, p50_ms=200.0, p95_ms=240.0,
        p99_ms=260.0, mean_batch=31.0, stopped_cleanly=True,
    )  # fmt: skip
    served.save(tmp_path / "serve.json")
    text = " ".join(block("serve", Records(tmp_path)).split())
    assert "60,000 requests were answered, 1,000 a second; refused: 2 with 503; lost: 1." in text
    assert "p99 260 ms" in text and text.endswith("every request answered.")
    rows = tuple(
        VideoRow(
            size=size, frames=96, encoded_bytes=1e4, decoded_bytes=1e6, encoded_per_s=80.0,
            decoded_per_s=10.0, ratio=8.0, stage_ms={"decode": 30.0, **more},
        )
        for size, more in (("540p", {"infer": 10.0}), ("4K", {}))
    )  # fmt: skip
    VideoBench(machine="here", workers=2, rows=rows).save(tmp_path / "stream_video.json")
    page = block("stream-video", Records(tmp_path))
    assert "| 540p | 10 kB | 1 MB | 80 | 10 | 8 |" in page
    assert "| 540p | 30 (75 %) | 10 (25 %) | 40 |" in page
    assert "| 4K | 30 (100 %) | – | 30 |" in page


def test_without_ray_the_threads_are_measured_and_the_reason_is_kept(brief, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(stream, "FLEETS", ("2",))
    measured = stream.bench(seconds=0.1)
    assert [(row.case, row.engine) for row in measured.rows] == [("2", "threads")]
    assert "paifuser-lab[cluster]" in measured.failures["ray"]


def test_a_way_that_is_not_installed_or_fails_is_named_and_the_others_are_measured(
    brief, monkeypatch
):
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    monkeypatch.delattr("ray.serve", raising=False)

    def fails():
        raise OSError("no memory")

    ways = {**stream_overhead.WAYS, "ray": fails, "a plain actor": fails, "Ray Data": fails}
    monkeypatch.setattr(stream_overhead, "WAYS", ways)
    found, failures = stream_overhead.overheads(["ray"])
    assert [row.way for row in found] == ["plain queues"]
    assert failures["ray"] == "OSError: no memory"
    assert "ModuleNotFoundError" in failures["Ray Serve"]


def test_an_error_of_this_package_stays_as_it_is():
    def fails():
        raise MeasureError("too short")

    with pytest.raises(MeasureError, match=r"^too short$"):
        measured(fails)


def test_the_command_measures_the_engines_that_are_named_and_keeps_each_part(
    brief, monkeypatch, tmp_path
):
    monkeypatch.setattr(stream, "FLEETS", ("1",))
    path = tmp_path / "record.json"

    def overheads(engines):
        assert engines == ["threads"]
        assert [row.case for row in StreamBench.load(path).rows] == ["1"], "before the end"
        return (Overhead(way="threads", p50_ms=0.1, p95_ms=0.2),), {}

    monkeypatch.setattr(stream, "overheads", overheads)
    arguments = ["stream", "threads", "--seconds", "0.1", "--json", str(path)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert len(StreamBench.load(path).overheads) == 1
    refused = CliRunner().invoke(command, ["stream", "dask"])
    assert isinstance(refused.exception, MeasureError)

"""The benchmark of streams: what it counts, its record and its page."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from paifuser_lab.bench import stream, stream_batching
from paifuser_lab.bench.pages import render
from paifuser_lab.bench.serve import ServeBench
from paifuser_lab.bench.stream import Overhead, StreamBench
from paifuser_lab.bench.stream_video import VideoBench, VideoRow
from paifuser_lab.cli.documents import bench as command
from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Record
from paifuser_lab.streaming import BatchRule


@pytest.mark.parametrize(("case", "workers"), [("2", 2), ("straggler", 8), ("no queue", 16)])
def test_each_frame_of_a_simulated_stream_is_counted_once(monkeypatch, case, workers):
    monkeypatch.setattr(stream, "SERVICE_S", 0.002)
    row = stream.row_of(case, "threads", 0.2)
    assert (row.lost, row.doubled, row.in_order, row.workers) == (0, 0, True, workers)
    assert row.frames >= 100 and row.share > 0


def test_the_record_has_a_row_a_case_and_a_page(monkeypatch, tmp_path):
    monkeypatch.setattr(stream, "SERVICE_S", 0.002)
    monkeypatch.setattr(stream, "WORKERS", (1, 2))
    small = lambda: stream_batching.measure(
        lambda items: items, rates=(200.0,), rules=(BatchRule(4, 1.0),), seconds=0.1
    )
    monkeypatch.setattr(stream, "measure_batching", small)
    measured = stream.bench(engines=("threads",), seconds=0.1)
    cases = [row.case for row in measured.rows]
    assert cases == ["1", "2", "mixed", "straggler", "queue", "no queue"]
    assert [row.way for row in measured.overheads] == ["plain queues", "threads"]
    assert not measured.failures and "ms a frame" in measured.summary
    (point,) = measured.batching.points
    assert 1 <= point.mean_batch <= 4 and point.rule == "up to 4, 1 ms"
    assert Record.load(measured.save(tmp_path / "stream.json")) == measured
    page = render("<!-- measured:stream -->\n<!-- /measured -->", tmp_path)
    assert "| straggler | threads | 8 |" in page and "plain queues" in page
    curve = render("<!-- measured:batching -->\n<!-- /measured -->", tmp_path)
    assert "| up to 4, 1 ms | 200 |" in curve


def test_servers_and_videos_have_their_pages(tmp_path):
    served = ServeBench(
        machine="here", model="net", clients=200, seconds=60.0, max_batch=32, max_delay_ms=5.0,
        answered=60_000, refused={"503": 2}, lost=1, per_s=1000.0, p50_ms=200.0, p95_ms=240.0,
        p99_ms=260.0, mean_batch=31.0, stopped_cleanly=True,
    )  # fmt: skip
    served.save(tmp_path / "serve.json")
    text = " ".join(render("<!-- measured:serve -->\n<!-- /measured -->", tmp_path).split())
    assert "60,000 requests were answered, 1,000 a second; refused: 2 with 503; lost: 1." in text
    assert "p99 260 ms" in text and text.endswith("every request answered. <!-- /measured -->")
    rows = tuple(
        VideoRow(
            size=size, frames=96, encoded_bytes=1e4, decoded_bytes=1e6, encoded_per_s=80.0,
            decoded_per_s=10.0, ratio=8.0, stage_ms={"decode": 30.0, **more},
        )
        for size, more in (("540p", {"infer": 10.0}), ("4K", {}))
    )  # fmt: skip
    VideoBench(machine="here", workers=2, rows=rows).save(tmp_path / "stream_video.json")
    page = render("<!-- measured:stream-video -->\n<!-- /measured -->", tmp_path)
    assert "| 540p | 10 kB | 1 MB | 80 | 10 | 8 |" in page
    assert "| 540p | 30 (75 %) | 10 (25 %) | 40 |" in page
    assert "| 4K | 30 (100 %) | – | 30 |" in page


def test_the_command_measures_the_engines_that_are_named(monkeypatch, tmp_path):
    rows = (Overhead(way="threads", p50_ms=0.1, p95_ms=0.2),)
    record = StreamBench(machine="here", service_ms=36.0, overheads=rows)
    monkeypatch.setattr(
        stream, "bench", lambda engines, seconds: record if engines == ("threads",) else None
    )
    path = tmp_path / "record.json"
    result = CliRunner().invoke(command, ["stream", "threads", "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert Record.load(path) == record
    refused = CliRunner().invoke(command, ["stream", "dask"])
    assert isinstance(refused.exception, MeasureError)

"""The benchmark of streams: what it counts, its record and its page."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from paifuser_lab.bench import stream, stream_batching
from paifuser_lab.bench.pages import render
from paifuser_lab.bench.stream import Overhead, StreamBench
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

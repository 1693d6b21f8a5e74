"""The benchmark of int4-weights runs on tiny sizes and returns a record; its times are never
asserted.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import benches
from benchmarks.int4 import EAGER, Int4Bench, bench

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = {"width": 64, "inner": 96, "blocks": 1, "answers": 40}
OWN = {EAGER, "eager bf16", "int4", "int4, always integers", "int4, always weights"}


def test_every_implementation_is_measured_for_each_number_of_rows_and_a_failed_engine_is_recorded(
    tmp_path,
):
    measured = bench((1, 40), seconds=0.01, engines="no-such-engine", **TINY)
    assert {(row.way, row.rows) for row in measured.rows} == {
        (way, rows) for way in OWN for rows in (1, 40)
    }
    assert measured.parameters == 4 * 64 * 64 + 3 * 64 * 96 + 64 * 40
    errors = {(row.way, row.rows): row.error for row in measured.rows}
    assert (
        errors["int4", 1] == errors["int4, always integers", 1] != errors["int4, always weights", 1]
    )
    assert (
        errors["int4", 40]
        == errors["int4, always weights", 40]
        != errors["int4, always integers", 40]
    )
    assert errors[EAGER, 1] == 0 and all(row.ms > 0 and row.ratio > 0 for row in measured.rows)
    assert "no-such-engine" in measured.failures["int4, no-such-engine"]
    assert Int4Bench.load(measured.save(tmp_path / "bench.json")) == measured
    assert len(measured.table()) == 2 * len(OWN)


def test_the_command_writes_the_record(tmp_path):
    sizes = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    result = CliRunner().invoke(
        benches,
        [
            "int4",
            "1",
            "--seconds",
            "0.1",
            "--engines",
            "",
            *sizes,
            "--json",
            str(tmp_path / "int4.json"),
        ],
    )
    assert result.exit_code == 0, result.output
    assert {row.way for row in Int4Bench.load(tmp_path / "int4.json").rows} == OWN

"""The widgets' benchmark as far as it needs no browser: its arithmetic on time stamps, what its
notebook records, and what it refuses.
"""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import benches
from benchmarks.probe import Probe
from benchmarks.widgets import WidgetRow, WidgetsBench, _delays
from paifuser_lab.errors import MeasureError, MissingExtraError
from paifuser_lab.records import Record
from tests.support.jupyterlab import browsing

ROW = WidgetRow(
    rows=301,
    create_ms=2.5,
    data_bytes=19_000,
    code_bytes=31_000,
    style_bytes=45_000,
    twin_bytes=300_000,
    twin_ms=200.0,
    received_bytes=400_000,
    paint_ms=250.0,
    click_to_python_ms=(10.0, 20.0),
    python_to_paint_ms=(11.0, 21.0),
)


def test_a_delay_ends_with_the_first_effect_before_the_next_cause():
    assert _delays([0, 100, 200], [7, 8, 103, 211]) == [7, 3, 11]
    assert _delays([0, 100, 200], [-5, 7, 211, 300]) == [7, 11]
    with pytest.raises(MeasureError, match="Only 1 of 3 changes arrived"):
        _delays([0, 100, 200], [7])


def test_the_goals_are_shown_below_the_figures(tmp_path):
    measured = WidgetsBench(machine="here", clicks=3, rows=(ROW,))
    (row,) = measured.table()
    assert row["sum kB"] == "95.0" and "sum < 150 kB" in measured.summary
    assert Record.load(measured.save(tmp_path / "widgets.json")) == measured


def test_the_notebook_records_the_panel_and_the_selections(tmp_path):
    probe = Probe(20)
    probe.display()
    probe.panel.selected = "0.1"
    probe.change(2)
    probe.save(str(tmp_path / "stamps.json"))
    stamps = json.loads((tmp_path / "stamps.json").read_text())
    probe.panel.close()
    assert stamps["rows"] == 21 and [layer for layer, _ in stamps["clicked"]] == ["0.1"]
    assert [layer for layer, _ in stamps["changed"]] == ["0", "0.0"]
    assert (
        stamps["shown_at"]
        < stamps["clicked"][0][1]
        < stamps["changed"][0][1]
        < stamps["changed"][1][1]
    )
    assert (
        stamps["data_bytes"] > 0
        and stamps["code_bytes"] > stamps["data_bytes"]
        and stamps["twin_bytes"] > 1000
    )


def test_a_panel_too_small_is_refused():
    refused = CliRunner().invoke(benches, ["widgets", "3"])
    assert refused.exit_code == 2 and "greater than or equal to 10" in refused.output


def test_without_playwright_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with (
        pytest.raises(
            MissingExtraError, match=r"driving a browser needs playwright.*paifuser-lab\[dev\]"
        ),
        browsing(),
    ):
        pass


def test_without_a_browser_the_error_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "none"))
    with pytest.raises(MeasureError, match="name it in the variable CHROMIUM"), browsing():
        pass

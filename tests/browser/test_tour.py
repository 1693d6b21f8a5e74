"""The tour, as a person runs it: in JupyterLab, in Chromium."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser import jupyterlab

QUICK = 'model = "resnet18-digits-tiny"\nrounds = 5\nseconds = 2.0\nout = ""'

pytestmark = jupyterlab.marks()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_tour_runs_through_and_shows_its_table_and_figure(tmp_path, dark):
    jupyterlab.quick_copy("00_tour.ipynb", tmp_path / "notebooks", QUICK)
    with (
        jupyterlab.serving(tmp_path / "notebooks", tmp_path / "home", dark=dark) as lab,
        jupyterlab.showing(lab, "00_tour.ipynb") as shown,
    ):
        shown.run_all(timeout_s=300)
        assert shown.errors() == []
        table = shown.page.locator(".jp-RenderedHTMLCommon table", has_text="baseline")
        table.wait_for(timeout=10_000)
        assert "onnxruntime" in table.inner_text()
        theme, other = ("dark", "light") if dark else ("light", "dark")
        assert shown.page.locator(f"img.pf-figure-{theme}:visible").count() == 2
        assert shown.page.locator(f"img.pf-figure-{other}:visible").count() == 0
        assert shown.strangers == []
        if folder := os.environ.get("PAIFUSER_SCREENSHOTS"):
            name = f"tour-{'dark' if dark else 'light'}.png"
            shown.page.locator(".jp-NotebookPanel").first.screenshot(path=Path(folder) / name)
            table.scroll_into_view_if_needed()
            shown.page.screenshot(path=Path(folder) / f"table-{name}")

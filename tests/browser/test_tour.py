"""The tour, as a person runs it: in JupyterLab, in Chromium, light and dark."""

from __future__ import annotations

from typing import Any

from tests.browser import audit, jupyterlab
from tests.browser.living import keep

QUICK = 'model = "resnet18-digits-tiny"\nrounds = 5\nseconds = 1.0\nout = ""'

pytestmark = jupyterlab.marks()


def test_the_tour_runs_through_and_shows_its_table_and_figures_in_both_themes(
    served: tuple[Any, Any],
):
    server, browser = served
    jupyterlab.quick_copy("00_tour.ipynb", server.folder / "tour", QUICK)
    with jupyterlab.showing(server, "tour/00_tour.ipynb", browser) as shown:
        shown.run_all(timeout_s=300)
        assert shown.errors() == []
        table = shown.page.locator(".jp-RenderedHTMLCommon table", has_text="baseline")
        table.wait_for(timeout=10_000)
        assert "onnxruntime" in table.inner_text()
        for theme, other in (("light", "dark"), ("dark", "light")):
            audit.dress(shown.page, f"JupyterLab {theme.title()}")
            assert shown.page.locator(f"img.pf-figure-{theme}:visible").count() == 1
            assert shown.page.locator(".pf-figure-svg:visible").count() == 1, "with tooltips"
            assert shown.page.locator(f"img.pf-figure-{other}:visible").count() == 0
            keep(shown, f"tour-{theme}")
        assert shown.strangers == []

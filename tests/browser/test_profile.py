"""The profile notebook, as a person runs it: the tree folds, the roofline tells its dots' names,
nothing leaves the machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser import jupyterlab

QUICK = 'model = "resnet18-tiny"\nstep = "fold"\nseconds = 1.0\nout = ""'

pytestmark = jupyterlab.marks()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_profile_notebook_shows_a_folding_tree_and_a_roofline_with_names(tmp_path, dark):
    parameters = os.environ.get("PAIFUSER_NOTEBOOK_PARAMETERS", QUICK)
    jupyterlab.quick_copy("10_profile.ipynb", tmp_path / "notebooks", parameters)
    with (
        jupyterlab.serving(tmp_path / "notebooks", tmp_path / "home", dark=dark) as lab,
        jupyterlab.showing(lab, "10_profile.ipynb") as shown,
    ):
        shown.run_all(timeout_s=300)
        assert shown.errors() == []
        tree = shown.page.locator(".pf-profile").first
        layer = tree.locator("summary", has_text="layer1").first
        folder_of = layer.locator("xpath=..")
        assert folder_of.get_attribute("open") is not None, "what takes time stands open"
        layer.focus()
        shown.page.keyboard.press("Enter")
        assert folder_of.get_attribute("open") is None, "a container folds from the keyboard"
        shown.page.keyboard.press("Enter")
        roofline = shown.page.locator(".pf-panel .pf-roofline").first
        roofline.scroll_into_view_if_needed()
        dot = roofline.locator('[role=option][aria-label*="layer1.0.conv1"]')
        assert dot.count() > 0, "every dot of the roofline has its name"
        shown.page.locator(".pf-layer-grid").first.get_by_role("row").filter(
            has_text="maxpool"
        ).first.click()
        roofline.locator('[aria-selected=true][aria-label*="maxpool"]').first.wait_for(
            state="attached", timeout=10_000
        )
        assert shown.page.locator("svg:visible").count() >= 2
        assert (
            "predicted"
            in shown.page.locator(".jp-RenderedHTMLCommon", has_text="achieved").first.inner_text()
        )
        assert shown.strangers == []
        if folder := os.environ.get("PAIFUSER_SCREENSHOTS"):
            cells = shown.page.locator(".jp-CodeCell")
            for index in range(cells.count()):
                cells.nth(index).scroll_into_view_if_needed()
                cells.nth(index).screenshot(
                    path=Path(folder) / f"profile-{'dark' if dark else 'light'}-{index:02}.png"
                )

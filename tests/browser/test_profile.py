"""The profile notebook, as a person runs it: the tree folds, the roofline tells its dots' names,
nothing leaves the machine.
"""

from __future__ import annotations

from typing import Any

from tests.browser import audit, jupyterlab
from tests.browser.living import keep

QUICK = 'model = "resnet18-tiny"\nstep = "fold"\nseconds = 0.5\nout = ""'

pytestmark = jupyterlab.marks()


def test_the_profile_notebook_shows_a_folding_tree_and_a_roofline_with_names(
    served: tuple[Any, Any],
):
    server, browser = served
    jupyterlab.quick_copy("10_profile.ipynb", server.folder / "profile", QUICK)
    with jupyterlab.showing(server, "profile/10_profile.ipynb", browser) as shown:
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
        roofline = shown.page.locator('.pf-panel [aria-label="roofline"]').first
        roofline.scroll_into_view_if_needed()
        dot = roofline.locator('[role=option][aria-label*="layer1.0.conv1"]')
        assert dot.count() > 0, "every dot of the roofline has its name"
        shown.page.locator(".pf-layer-grid").first.get_by_role("row").filter(
            has_text="maxpool"
        ).first.click()
        roofline.locator('[aria-selected=true][aria-label*="maxpool"]').first.wait_for(
            state="attached", timeout=10_000
        )
        pair = shown.page.locator(".jp-RenderedHTMLCommon", has_text="achieved").first
        for theme in audit.THEMES:
            audit.dress(shown.page, theme)
            assert shown.page.locator("svg:visible").count() >= 2
            assert "predicted" in pair.inner_text()
            keep(shown, f"profile-{theme.split()[-1].lower()}")
        assert shown.strangers == []

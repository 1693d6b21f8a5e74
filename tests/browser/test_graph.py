"""The Graph tab by mouse and keyboard, in light and dark; each time Python is read back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import audit, jupyterlab
from tests.browser.living import living_panel

pytestmark = jupyterlab.marks()
OPEN = """
work = lab.load("resnet18-tiny")
bench = lab.Workbench(work, rounds=1, seconds=0.1)
bench
""".strip()
READ = """
state = bench.wait(60)
report = {"recipe": bench.recipe.to_text(), "selected": bench.selected, "error": state.error}
Path("state.json").write_text(json.dumps(report))
""".strip()


@pytest.fixture(scope="module")
def opened(served: tuple[Any, Any]) -> Any:
    with living_panel(served, "workbench", [OPEN, READ]) as (shown, panel, read):
        panel.get_by_role("tab", name="Graph").click()
        panel.locator(".pf-graph-svg [role=option]").first.wait_for(timeout=60_000)
        yield shown, panel, read


@pytest.mark.parametrize("theme", audit.THEMES)
def test_arrows_go_along_edges_and_enter_unfolds_a_block(opened, theme):
    shown, panel, _ = opened
    audit.dress(shown.page, theme)
    panel.get_by_role("button", name="fold all blocks", exact=True).click()
    inner = panel.locator('.pf-graph-svg [aria-label^="layer1.0, "]')
    inner.wait_for(state="detached", timeout=20_000)  # Python folds: keys before it go elsewhere
    chosen = panel.locator(".pf-graph-svg [aria-selected=true]")
    panel.locator(".pf-graph-svg").focus()
    shown.page.keyboard.press("Home")
    for _ in range(5):
        shown.page.keyboard.press("ArrowDown")
    assert chosen.get_attribute("aria-label").startswith("layer1, ")
    shown.page.keyboard.press("Enter")
    inner.wait_for(state="attached", timeout=20_000)
    assert audit.cut_text(panel) + audit.faint_text(panel) == []


def test_a_format_for_two_nodes_is_in_the_recipe_and_in_the_selection(opened):
    _, panel, read = opened
    panel.locator('.pf-graph-svg [aria-label^="conv1, "]').click()
    panel.locator('.pf-graph-svg [aria-label^="layer1"]').first.click(modifiers=["Shift"])
    panel.get_by_label("format of what is chosen").select_option("int8-weights")
    report = read()
    assert report["error"] is None and report["selected"] == "conv1"
    assert "conv1: int8-weights" in report["recipe"] and "layer1." in report["recipe"]


def test_the_keys_of_the_graph_zoom_a_call_along_time(opened):
    shown, panel, _ = opened
    panel.get_by_role("tab", name="Machine").click()
    page = panel.get_by_role("tabpanel", name="Machine")
    call = page.get_by_role("listbox", name="arrow keys go through them, Enter or + zooms")
    zoomed_on = page.get_by_label("layer of the zoom on")
    zoomed_on.select_option("layer1.0.conv1")
    call.focus()
    for around in ("layer1.0", "layer1"):
        shown.page.keyboard.press("-")
        assert zoomed_on.input_value() == around
    shown.page.keyboard.press("End")
    pointed = page.locator(f"#{call.get_attribute('aria-activedescendant')}")
    shown.page.keyboard.press("+")
    assert pointed.get_attribute("aria-label").startswith(f"{zoomed_on.input_value()}, ")
    assert not zoomed_on.input_value().startswith("layer1")
    shown.page.keyboard.press("0")
    assert page.locator(".pf-picture [aria-selected=true]").count() == 0

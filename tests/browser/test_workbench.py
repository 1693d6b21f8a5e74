"""The workbench, as a person uses it: click, see the effect, undo, sort, filter, save; each time
the Python side is read back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import paifuser_lab as lab
from tests.browser import audit, jupyterlab
from tests.browser.living import HTML_NAME, OFFER_FOLD, Read, keep, living_panel

pytestmark = jupyterlab.marks()

OPEN = """
tail = nn.Sequential(nn.Conv2d(16, 16, 3), nn.MaxPool2d(2))
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), tail)
model.add_module(HTML_NAME, nn.Conv2d(16, 4, 1))
work = lab.Workload(model, torch.randn(1, 3, 64, 64), name="net")
bench = lab.Workbench(work, rounds=2, seconds=0.2)
before = lab.apply(bench.session.work, lab.Recipe([])).weights_hash
bench
""".strip()
OPEN = OFFER_FOLD + OPEN
OUTSIDE = """(frame) => {
  const edge = frame.getBoundingClientRect();
  const seen = [...frame.querySelectorAll("*")].filter((element) => element.offsetParent);
  return seen
    .filter((element) => element.getBoundingClientRect().width)
    .filter((element) => element.getBoundingClientRect().right > edge.right + 1)
    .filter((element) => getComputedStyle(element.parentElement).textOverflow !== "ellipsis")
    .map((element) => element.className);
}"""
FOCUSED = """() => {
  const at = document.activeElement;
  return at.closest(".pf-row, .pf-detail")?.classList[0] ?? at.getAttribute("role");
}"""
TAKE_CELL = """() => {
  const cells = window.jupyterapp.shell.currentWidget.content.model.sharedModel;
  const { source } = cells.getCell(1);
  cells.deleteCell(1);
  return source;
}"""
READ = """
state = bench.wait(60)
report = {"recipe": [step.label for step in bench.recipe], "selected": bench.selected}
report |= {"error": state.error, "rows": len(bench.comparison.rows), "text": bench.recipe.to_text()}
report["is_original"] = bench.variant.weights_hash == before
Path("state.json").write_text(json.dumps(report))
""".strip()
RESET = """
bench.wait(60)
bench.recipe, bench.selected = lab.Recipe([], workload="net"), ""
bench.wait(60)
""".strip()


@pytest.fixture(scope="module")
def bench(served: tuple[Any, Any]) -> Iterator[tuple[Any, Any, Read]]:
    """A page with the idle workbench, and a function that reads Python's current state."""
    with living_panel(served, "workbench", [OPEN, RESET, READ]) as shown_panel_read:
        yield shown_panel_read


@pytest.fixture
def opened(bench: tuple[Any, Any, Read]) -> tuple[Any, Any, Read]:
    """The same page, its recipe and selection empty and its first tab open."""
    shown, panel, _ = bench
    audit.dress(shown.page, audit.THEMES[0])
    shown.run_cell(1, timeout_s=120)
    frame = panel.locator(".pf-workbench")
    frame.evaluate("(element) => { element.style.width = ''; }")
    frame.focus()
    shown.page.keyboard.press("1")
    return bench


def test_a_click_makes_a_variant_and_undo_withdraws_it(opened, served):
    shown, panel, read = opened
    folder = served[0].folder / "workbench"
    assert read()["recipe"] == []
    panel.get_by_label("what would help").get_by_role("button").filter(has_text="fold").click()
    panel.get_by_label("recipe, in the order in which it is applied").get_by_text(
        "fold batch-norm"
    ).wait_for()
    report = read()
    assert (
        report["recipe"] == ["fold batch-norm"]
        and report["rows"] >= 2
        and not report["is_original"]
    )
    for theme in reversed(audit.THEMES):
        audit.dress(shown.page, theme)
        keep(shown, f"workbench-folded-{theme.split()[-1].lower()}")
    panel.get_by_role("button", name="Export").click()
    panel.get_by_role("menuitem", name="Save recipe").click()
    panel.get_by_text("recipe.yaml").first.wait_for(timeout=20_000)
    assert lab.Recipe.load(folder / "recipe.yaml") == lab.Recipe(["fold"])
    panel.get_by_role("button", name="Export").click()
    panel.get_by_role("menuitem", name="Insert as a cell").click()
    panel.get_by_text("inserted below").wait_for(timeout=20_000)
    below = shown.page.evaluate(TAKE_CELL)
    assert below.startswith("import paifuser_lab as lab") and "{'fold': {}}" in below
    panel.get_by_role("button", name="Undo").click()
    report = read()
    assert report["recipe"] == [] and report["is_original"]
    panel.get_by_role("button", name="Redo").click()
    assert read()["recipe"] == ["fold batch-norm"]


def test_a_precision_is_chosen_per_row_and_names_are_escaped(opened):
    shown, panel, read = opened
    # a long name is cut in its middle; its tooltip is whole
    row = panel.get_by_role("row").filter(has=shown.page.get_by_title(HTML_NAME, exact=True))
    row.click()
    row.locator("select").select_option("bf16")
    report = read()
    assert (
        report["recipe"] == [f"{HTML_NAME}: bf16"]
        and report["selected"] == HTML_NAME
        and report["error"] is None
    )
    assert shown.page.locator("img[src=x]").count() == 0
    audit.resize(panel.locator(".pf-workbench"), 900)
    row.click()
    beside = panel.locator(".pf-detail-format select")
    assert beside.input_value() == "bf16" and beside.bounding_box()["height"] > 16
    assert row.locator("select").input_value() == "bf16", "and in the row as well"
    keep(shown, "workbench-format-900")
    beside.select_option("")
    assert read()["recipe"] == []


def test_enter_on_a_layer_goes_to_what_one_can_do_with_it_and_escape_comes_back(opened):
    shown, panel, _ = opened
    audit.resize(panel.locator(".pf-workbench"), 900)
    grid = panel.get_by_role("treegrid", name="layers")

    def entered(kind: str) -> str:
        panel.get_by_label("filter layers by path or kind").fill(kind)
        # a row that the filter is about to hide would take the focus with it
        other = {"Conv2d": "maxpool", "MaxPool2d": "conv1"}[kind]
        grid.get_by_role("row", name=other).first.wait_for(state="detached")
        grid.get_by_role("row").nth(1).click()
        shown.page.keyboard.press("Enter")
        return str(shown.page.evaluate(FOCUSED))

    assert entered("Conv2d") == "pf-row", "its format"
    shown.page.keyboard.press("Escape")
    assert shown.page.evaluate(FOCUSED) == "treegrid"
    assert entered("MaxPool2d") == "pf-detail", "no format can be chosen for it"
    shown.page.keyboard.press("Escape")
    assert shown.page.evaluate(FOCUSED) == "treegrid"
    panel.get_by_label("filter layers by path or kind").fill("")


def test_number_keys_open_tabs_one_after_the_other(opened):
    shown, panel, _ = opened
    panel.get_by_role("treegrid", name="layers").get_by_role("row").nth(1).click()
    names = []
    for key in "321":
        shown.page.keyboard.press(key)
        names.append(panel.get_by_role("tab", selected=True).inner_text())
    assert len(set(names)) == 3, "the focus stays in the workbench when its page is hidden"


def test_the_table_is_sorted_filtered_and_navigated_by_keyboard(opened):
    shown, panel, read = opened
    panel.get_by_role("columnheader", name="Time, ms").click()
    assert panel.locator("[aria-sort=descending], [aria-sort=ascending]").count() == 1
    panel.get_by_role("row").nth(1).click()
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("MaxPool")
    shown.page.wait_for_timeout(300)
    rows = [row.inner_text() for row in panel.get_by_role("row").all()]
    assert any("MaxPool2d" in text for text in rows) and not any(
        "BatchNorm2d" in text for text in rows
    )
    shown.page.keyboard.press("Escape")
    shown.page.keyboard.press("ArrowDown")
    assert read()["selected"] != ""


def test_a_narrow_frame_keeps_its_height_and_nothing_leaves_it(opened):
    shown, panel, _ = opened
    frame = panel.locator(".pf-workbench")
    audit.resize(frame, 456)
    for key in "1234":
        frame.focus()
        shown.page.keyboard.press(key)
        shown.page.wait_for_timeout(200)
        assert panel.get_by_role("tab", selected=True).count() == 1
        assert frame.bounding_box()["height"] == 720
        assert frame.evaluate(OUTSIDE) == []
    keep(shown, "workbench-456")


def test_tabs_keys_and_details_work_without_a_mouse(opened):
    shown, panel, _ = opened
    panel.locator(".pf-workbench").focus()
    shown.page.keyboard.press("2")
    assert panel.get_by_role("tab", selected=True).inner_text() == "Options"
    assert panel.get_by_text("Attention: none in this model").is_visible()
    segments = panel.get_by_role("radiogroup").get_by_role("radio")
    segments.first.focus()
    shown.page.keyboard.press("ArrowRight")
    assert segments.nth(1).get_attribute("aria-checked") == "true"
    shown.page.keyboard.press("?")
    assert panel.get_by_role("dialog", name="keys").is_visible()
    shown.page.keyboard.press("Escape")
    assert panel.get_by_role("dialog", name="keys").is_hidden()
    shown.page.keyboard.press("1")
    strip = panel.get_by_role("img", name="where the time goes")
    assert strip.locator(".pf-part").count() >= 3
    strip.locator(".pf-part").nth(1).click()
    assert panel.locator(".pf-rows .pf-chosen").count() == 1

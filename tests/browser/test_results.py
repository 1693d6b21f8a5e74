"""Results and the sheet in a browser: compare, go back, save a folder, allow more, stop."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import paifuser_lab as lab
from tests.browser import audit, jupyterlab
from tests.browser.living import Read, keep, living_panel

pytestmark = jupyterlab.marks()

OPEN = """
import time
from dataclasses import replace
from paifuser_lab.planner import SearchResult
from paifuser_lab.records import Candidate
from paifuser_lab.jobs.queries import QUERIES

def find(context):
    "Tells what was asked for, and searches until it is stopped."
    Path("asked.json").write_text(json.dumps(dict(context.options)))
    yield {"candidates": found.model_copy(update={"took_s": 1.0, "is_done": False})}
    while not context.should_stop():
        time.sleep(0.05)
    yield {"candidates": found.model_copy(update={"took_s": 2.0, "is_interrupted": True})}

model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 4, 1))
work = lab.Workload(model, torch.randn(1, 3, 32, 32), name="net")
bench = lab.Workbench(work, rounds=2, seconds=0.2)
QUERIES["faster"] = replace(QUERIES["faster"], find=find)
for steps in ([], ["fold"], ["fold", "layout"]):
    bench.recipe = lab.Recipe(steps, workload="net")
    bench.wait(60)
strict = {"output_error": 1e-9}
steps = ["fold", "layout", {"precision": {"default": "bf16"}}]
bench.recipe = lab.Recipe(steps, workload="net", limit=strict)
bench.wait(60)
row = Candidate(
    label="Less", steps=({"layout": {}},), why="less", status="outside the limits", speedup=2.0,
    latency_ms=1.0, interval=(1.9, 2.1), word="faster", tone="good", relative_error=0.05,
    reason="too much is lost", allow={"metric_drop": 0.05},
)
best = row.model_copy(update={"label": "Best", "status": "measured", "rank": 1, "allow": None})
found = SearchResult(
    workload="net", goal="latency", metric_drop=0.01, may_train=False, seconds=60, took_s=59,
    machine="this one", planned=2, is_done=True, rows=(best, row),
)
bench.candidates = found
bench
""".strip()
READ = """
state = bench.wait(60)
report = {"recipe": [step.kind for step in bench.recipe], "error": state.error}
Path("state.json").write_text(json.dumps(report))
""".strip()
BELOW = """(frame) => {
  const edge = (name) => frame.querySelector(name).getBoundingClientRect();
  return edge(".pf-over").top - edge(".pf-bench-main").bottom;
}"""


@pytest.fixture(scope="module")
def opened(served: tuple[Any, Any]) -> Any:
    """A workbench with two recipes tried and a search that was made; its folder."""
    with living_panel(served, "results", [OPEN, READ]) as (shown, panel, read):
        shown.page.set_viewport_size({"width": 1500, "height": 1000})
        yield shown, panel.locator(".pf-workbench"), read, served[0].folder / "results"


def wait_for_file(page: Any, path: Path) -> Any:
    """The JSON in a file, as soon as it is written."""
    for _ in range(100):
        if path.exists() and (text := path.read_text()):
            return json.loads(text)
        page.wait_for_timeout(100)
    raise AssertionError(f"{path.name} is not written")


def test_allow_searches_again_with_what_it_lets_in_and_stop_ends_it(
    opened: tuple[Any, Any, Read, Path],
):
    shown, frame, read, folder = opened
    audit.resize(frame, 1100)
    frame.focus()
    shown.page.keyboard.press("f")
    sheet = frame.get_by_role("dialog", name="Make it faster")
    assert sheet.get_by_role("button", name="Apply").get_attribute("title").startswith("replaces")
    goals = sheet.get_by_role("radiogroup", name="Goal").get_by_role("radio")
    goals.filter(has_text="Latency").focus()
    shown.page.keyboard.press("ArrowRight")
    assert goals.filter(has_text="Size").get_attribute("aria-checked") == "true"
    sheet.get_by_role("button", name="Allow 0.05").click()
    asked = wait_for_file(shown.page, folder / "asked.json")
    assert asked == {"goal": "size", "metric_drop": 0.05, "may_train": False}
    sheet.get_by_text("2 of 2 candidates so far").wait_for()
    keep(shown, "results-searching")
    chips = frame.locator(".pf-chip:not(.pf-over-edge)")
    assert chips.count() == 2 and frame.get_by_role("button", name="Undo").is_visible()
    assert audit.cut_text(frame) == []
    sheet.get_by_role("button", name="close").click()
    frame.get_by_role("button", name="Stop").click()
    status = frame.locator(".pf-faster-status").filter(has_text="measured in 2 s, stopped")
    status.wait_for(state="attached")  # a closed sheet keeps up, too
    frame.focus()
    shown.page.keyboard.press("f")
    sheet.get_by_role("button", name="Search again").wait_for()
    sheet.get_by_text("measured in 2 s, stopped").wait_for()
    assert read() == {"recipe": ["fold", "layout"], "error": None}


def test_the_sheet_closes_by_a_click_on_a_tab_and_by_escape_outside_it(
    opened: tuple[Any, Any, Read, Path],
):
    shown, frame, _, _ = opened
    sheet = frame.get_by_role("dialog", name="Make it faster")
    for close in ("Machine", "Machine", "Escape"):
        frame.focus()
        if sheet.is_hidden():
            shown.page.keyboard.press("f")
        sheet.wait_for()
        if close == "Escape":
            frame.get_by_role("button", name="Redo").focus()
            shown.page.keyboard.press("Escape")
        else:
            frame.get_by_role("tab", name=close).click()
        sheet.wait_for(state="hidden")
        assert frame.get_by_role("tab", name="Machine").get_attribute("aria-selected") == "true"


def test_what_is_refused_is_not_here_until_it_is_allowed(opened: tuple[Any, Any, Read, Path]):
    shown, frame, read, _ = opened
    audit.resize(frame, 1200)
    frame.focus()
    shown.page.keyboard.press("3")
    page = frame.get_by_role("tabpanel", name="Results")
    current = page.get_by_role("row", selected=True)
    assert current.get_attribute("data-number") == "2"
    refused = page.locator("[data-number='3']")
    assert "the output differs" in refused.inner_text() and "here now" not in refused.inner_text()
    page.get_by_text("What the search measured").wait_for()
    page.get_by_text("1. Best").wait_for()
    notice = frame.get_by_role("status").filter(has_text="Refused: ")
    assert "channels last is here again" in notice.inner_text()
    for theme in reversed(audit.THEMES):
        audit.dress(shown.page, theme)
        for width in (720, 1100, 1740):
            audit.resize(frame, width)
            keep(shown, f"results-refused-{width}-{theme.split()[-1].lower()}")
            assert audit.cut_text(frame) + audit.faint_text(frame) == []
    audit.resize(frame, 1200)
    notice.get_by_role("button", name="Allow").click()
    refused.get_by_text("here now").wait_for()
    assert read() == {"recipe": ["fold", "layout", "precision"], "error": None}
    assert notice.count() == 0
    frame.focus()
    shown.page.keyboard.press("u")
    page.locator("[data-number='2']").get_by_text("here now").wait_for()


def test_results_are_sorted_marked_and_gone_back_to_by_keys(opened: tuple[Any, Any, Read, Path]):
    shown, frame, read, _ = opened
    audit.resize(frame, 1200)
    frame.focus()
    shown.page.keyboard.press("3")
    page = frame.get_by_role("tabpanel", name="Results")
    page.get_by_role("columnheader", name="Size").get_by_role("button").click()
    numbers = page.locator(".pf-result").evaluate_all(
        "(rows) => rows.sort((a, b) => a.dataset.index - b.dataset.index)"
        ".map((row) => row.dataset.number)"
    )
    assert numbers == ["0", "1", "2", "3"], "the largest first, equal ones as they were tried"
    grid = page.get_by_role("grid", name="everything tried")
    grid.focus()
    for key in ("Home", " ", "ArrowDown", " "):
        shown.page.keyboard.press(key)
    page.get_by_role("table", name="A and B").wait_for()
    assert page.get_by_role("checkbox", checked=True).count() == 2
    for key in ("Home", " ", "ArrowDown", " "):
        shown.page.keyboard.press(key)
    assert page.get_by_role("checkbox", checked=True).count() == 0
    shown.page.keyboard.press("Enter")
    page.locator("[data-number='1']").get_by_text("here now").wait_for()
    assert grid.evaluate("(grid) => grid === document.activeElement"), "the keys are still its own"
    assert read()["recipe"] == ["fold"]
    frame.focus()
    shown.page.keyboard.press("u")
    page.locator("[data-number='2']").get_by_text("here now").wait_for()


def test_two_results_are_compared_gone_back_to_and_saved_as_a_folder(
    opened: tuple[Any, Any, Read, Path],
):
    shown, frame, read, folder = opened
    audit.resize(frame, 1200)
    frame.focus()
    shown.page.keyboard.press("3")
    page = frame.get_by_role("tabpanel", name="Results")
    for number in (1, 2):
        page.get_by_role("checkbox", name=f"compare {number}").click()
    page.get_by_role("table", name="A and B").wait_for()
    page.get_by_text("Only B has channels last.").wait_for()
    page.get_by_role("button", name=re.compile("go back to 1")).click()
    here = page.get_by_role("row", selected=True).and_(page.locator("[data-number='1']"))
    here.get_by_text("here now").wait_for()
    assert read()["recipe"] == ["fold"]

    save = page.get_by_role("button", name="Save folder")
    (folder / "net-faster").write_text("in the way")
    save.click()
    notice = frame.get_by_role("alert").filter(has_text="net-faster")
    notice.wait_for()
    keep(shown, "results-notice")
    assert frame.evaluate(BELOW) >= 0, "a notice covers no row"
    assert shown.page.evaluate("() => document.activeElement.textContent") == "Save folder"
    notice.get_by_role("button", name="dismiss").click()
    notice.wait_for(state="detached")
    (folder / "net-faster").unlink()
    save.click()
    page.get_by_text('saved: lab.load("net-faster", work=original)').wait_for()
    assert lab.Recipe.load(folder / "net-faster" / "recipe.yaml") == lab.Recipe(["fold"])
    keep(shown, "results-saved")

"""From opening a model to a saved recipe that runs without the page, with the keyboard alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from tests.browser import jupyterlab
from tests.browser.living import keep, living_panel

pytestmark = jupyterlab.marks()

MODEL = "resnet18-digits-tiny"
OPEN = f"""
from paifuser_lab.measure import MachineWatch
from paifuser_lab.records.quality import Quality

MachineWatch.quality = lambda watch, **own: Quality(others_share=0.01)
bench = lab.Workbench(lab.load("{MODEL}"), rounds=3, seconds=0.5)
bench
""".strip()
READ = """
bench.wait(120)
report = {"recipe": bench.recipe.to_text(), "rows": len(bench.session.state.results.rows)}
report["hash"] = bench.variant.weights_hash
Path("state.json").write_text(json.dumps(report))
""".strip()


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until the focus is on an element that matches."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(f"() => document.activeElement.matches({json.dumps(selector)})"):
            return
    raise AssertionError(f"Tab does not reach {selector}")


def test_from_opening_to_a_saved_recipe_that_runs_in_batch_by_keyboard_alone(
    served: tuple[Any, Any],
):
    with living_panel(served, "journey", [OPEN, READ]) as (shown, panel, read):
        page, frame = shown.page, panel.locator(".pf-workbench")
        original = read()
        frame.focus()
        page.keyboard.press("f")
        sheet = frame.get_by_role("dialog", name="Make it faster")
        sheet.locator("tr.pf-best").wait_for(timeout=90_000)
        tab_to(page, ".pf-best button")
        keep(shown, "journey-sheet")
        chosen = sheet.locator(".pf-best th span").inner_text()
        page.keyboard.press("Enter")
        sheet.wait_for(state="hidden")
        frame.locator(".pf-chip").first.wait_for(state="attached")
        applied = read()
        assert applied["recipe"] != original["recipe"] and chosen

        frame.focus()
        page.keyboard.press("u")
        frame.get_by_text("no step yet: this is the model as it is").wait_for()
        undone = read()
        assert (undone["recipe"], undone["hash"]) == (original["recipe"], original["hash"])
        frame.focus()
        page.keyboard.press("r")
        frame.locator(".pf-chip").first.wait_for(state="attached")
        assert read() == applied

        frame.focus()
        page.keyboard.press("3")
        table = frame.get_by_role("tabpanel", name="Results")
        table.get_by_text("here now", exact=True).wait_for()
        rows = table.get_by_role("grid").get_by_role("row")
        chosen_rows = rows.filter(has_text=chosen.split()[-1].lower())
        assert applied["rows"] == 2 and chosen_rows.count() == 1
        tab_to(page, ".pf-recipe-bar [aria-haspopup]")
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        frame.get_by_text("recipe.yaml").first.wait_for(timeout=20_000)
        keep(shown, "journey-saved")
        folder = served[0].folder / "journey"
    command = [sys.executable, "-m", "paifuser_lab.cli", "run", "recipe.yaml"]
    ran = subprocess.run(
        [*command, "--out", "out", "--rounds", "1"], cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    reports = [path.read_text() for path in (folder / "out").glob("*.json")]
    assert any(f'"weights_hash":"{applied["hash"]}"' in re.sub(r"\s", "", text) for text in reports)

"""The workbench, as a person uses it: click, see the effect, undo, sort, filter, save; each time
the Python side is read back.
"""

from __future__ import annotations

import json
from contextlib import contextmanager

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

import paifuser_lab as lab
from tests.browser import jupyterlab
from tests.browser.living import keep

pytestmark = jupyterlab.marks()

NASTY = "<img src=x onerror=alert(1)>"
OPEN = """
import json
import torch
import paifuser_lab as lab
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Sequential(nn.Conv2d(16, 16, 3), nn.MaxPool2d(2)))
model.add_module("NASTY", nn.Conv2d(16, 4, 1))
bench = lab.Workbench(lab.Workload(model, torch.randn(1, 3, 64, 64), name="net"), rounds=2, seconds=0.2)
before = lab.apply(bench.session.work, lab.Recipe([])).weights_hash
bench
""".strip().replace("NASTY", NASTY)
READ = """
state = bench.wait(60)
result = {"recipe": [step.label for step in bench.recipe], "selected": bench.selected, "error": state.error,
        "rows": len(bench.comparison.rows), "is_original": bench.variant.weights_hash == before, "text": bench.recipe.to_text()}
from pathlib import Path
Path("result.json").write_text(json.dumps(result))
""".strip()


@contextmanager
def opened(tmp_path, *, dark=False):
    """A page with the workbench, idle, and a way to read what Python has by now."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook = new_notebook(
        cells=[new_code_cell(OPEN), new_code_cell(READ)], metadata={"kernelspec": kernel}
    )
    nbformat.write(notebook, folder / "bench.ipynb")
    with (
        jupyterlab.serving(folder, tmp_path / "home", dark=dark) as server,
        jupyterlab.showing(server, "bench.ipynb") as shown,
    ):
        shown.run_all(timeout_s=120)

        def read():
            (folder / "result.json").unlink(missing_ok=True)
            shown.run_all_from(1, timeout_s=120)
            return json.loads((folder / "result.json").read_text())

        panel = shown.page.locator(".pf-panel").first
        panel.get_by_role("row").nth(3).wait_for(timeout=60_000)
        yield shown, panel, read, folder
        assert shown.errors() == [] and shown.strangers == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_click_makes_a_variant_and_undo_takes_it_back(tmp_path, dark):
    with opened(tmp_path, dark=dark) as (shown, panel, read, folder):
        assert read()["recipe"] == []
        panel.get_by_label("what would help").get_by_role("button").filter(has_text="fold").click()
        panel.get_by_label("recipe, in the order in which it is applied").get_by_text(
            "fold batch-norm"
        ).wait_for()
        result = read()
        assert (
            result["recipe"] == ["fold batch-norm"] and result["rows"] >= 2 and not result["is_original"]
        )
        keep(shown, f"workbench-folded-{'dark' if dark else 'light'}")
        panel.get_by_role("button", name="Save recipe").click()
        panel.get_by_text("recipe.yaml").first.wait_for(timeout=20_000)
        assert lab.Recipe.load(folder / "recipe.yaml") == lab.Recipe(["fold"])
        panel.get_by_role("button", name="Undo").click()
        result = read()
        assert result["recipe"] == [] and result["is_original"]
        panel.get_by_role("button", name="Redo").click()
        assert read()["recipe"] == ["fold batch-norm"]


def test_a_precision_is_chosen_a_row_at_a_time_and_names_are_only_text(tmp_path):
    with opened(tmp_path) as (shown, panel, read, _):
        row = panel.get_by_role("row").filter(has_text=NASTY)
        row.click()
        row.locator("select").select_option("bf16")
        result = read()
        assert (
            result["recipe"] == [f"{NASTY}: bf16"]
            and result["selected"] == NASTY
            and result["error"] is None
        )
        assert shown.page.locator("img[src=x]").count() == 0


def test_the_table_is_sorted_filtered_and_walked_from_the_keyboard(tmp_path):
    with opened(tmp_path) as (shown, panel, read, _):
        panel.get_by_role("columnheader", name="self ms").click()
        assert panel.locator("[aria-sort=descending], [aria-sort=ascending]").count() == 1
        panel.get_by_role("row").nth(1).click()
        shown.page.keyboard.press("/")
        shown.page.keyboard.type("MaxPool")
        shown.page.wait_for_timeout(300)
        rows = [one.inner_text() for one in panel.get_by_role("row").all()]
        assert any("MaxPool2d" in one for one in rows) and not any(
            "BatchNorm2d" in one for one in rows
        )
        shown.page.keyboard.press("Escape")
        shown.page.keyboard.press("ArrowDown")
        assert read()["selected"] != ""

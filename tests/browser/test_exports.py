"""The tab Export as a person uses it: choose targets, export, look at the rows, download a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.browser import audit, jupyterlab
from tests.browser.living import HTML_NAME, keep, living_panel

pytestmark = jupyterlab.marks()

OPEN = """
model = nn.Sequential()
model.add_module(HTML_NAME, nn.Conv2d(3, 8, 3, padding=1))
model.add_module("head", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)))
with torch.no_grad():
    model[0].weight.mul_(1e6)
    model[1][2].weight.mul_(1e-3)
work = lab.Workload(model.eval(), torch.randn(1, 3, 16, 16), name="net")
bench = lab.Workbench(work, rounds=2, seconds=0.2)
bench.wait(120)
bench
""".strip()
READ = """
state = bench.wait(120)
found = (state.record("export") or {}).get(state.recipe.digest)
report = {"error": state.error, "folder": found.folder if found else ""}
report["refused"] = [row.target for row in found.refused] if found else []
Path("state.json").write_text(json.dumps(report))
""".strip()


def test_a_model_is_exported_downloaded_and_refused_in_a_precision_that_it_does_not_bear(
    served: Any,
):
    with living_panel(served, "exports", [OPEN, READ]) as (shown, panel, read):
        shown.page.set_viewport_size({"width": 1900, "height": 1000})
        panel.get_by_role("tab", name="Export").click()
        page = panel.get_by_role("tabpanel", name="Export")
        always = page.get_by_role("checkbox", name=re.compile("^ONNX"))
        assert always.is_checked() and always.is_disabled()
        keep(shown, "exports-empty")
        page.get_by_role("button", name="Export ·").click()
        assert read() == {"error": None, "folder": "net-export", "refused": []}
        rows = page.get_by_role("table", name="what was exported")
        assert "run here, compared" in rows.inner_text()
        link = page.get_by_role("link", name="net-export")
        assert link.get_attribute("href").endswith("/lab/tree/exports/net-export")
        page.get_by_text("files and their hashes").click()
        with shown.page.expect_download() as download:
            page.get_by_role("button", name="download run.py").click()
        own = served[0].folder / "exports" / "net-export" / "run.py"
        assert Path(download.value.path()).read_bytes() == own.read_bytes()
        keep(shown, "exports-done")

        page.get_by_role("combobox", name="precision").select_option("fp16")
        page.get_by_role("button", name="Again ·").click()
        report = read()
        assert report["folder"] == "" and "onnx" in report["refused"]
        assert f"The first layer past 1e-02 is '{HTML_NAME}'" in page.inner_text()
        page.get_by_text("layers compared").click()
        keep(shown, "exports-refused")
        assert audit.cut_text(panel) == [] and audit.faint_text(panel) == []
        audit.dress(shown.page, "JupyterLab Dark")
        assert audit.faint_text(panel) == []
        keep(shown, "exports-refused-dark")

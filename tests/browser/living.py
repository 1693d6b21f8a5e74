"""A live notebook in a browser, whose last cell reports the state of the Python side."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.browser import jupyterlab
from tests.support.jupyterlab import write_notebook

Read = Callable[[], Any]
MOST_READS = 5  # of a report that changes each time

HTML_NAME = "<img src=x onerror=alert(1)>"
# What the first cell of every notebook begins with.
START = f"""
import json
from pathlib import Path
import torch
import paifuser_lab as lab
from torch import nn

torch.manual_seed(0)
HTML_NAME = "{HTML_NAME}"
"""
# A cell: folding is offered whatever the advice predicts of a model on this machine.
OFFER_FOLD = """
from paifuser_lab.widgets import presenter

def offer_fold(state):
    is_taken = any(step.kind == "fold" for step in state.recipe)
    known = {"label": "fold batch-norm", "step": {"fold": {}}, "why": "a batch-norm follows"}
    return [known | {"saves_ms": 0.1, "basis": "estimated", "is_taken": is_taken}]

presenter.offers = offer_fold
"""


@contextmanager
def living(served: tuple[Any, Any], name: str, cells: Sequence[str]) -> Iterator[tuple[Any, Read]]:
    """Run a notebook of these cells; `read()` runs its last cell, which writes `state.json`, until
    it writes the same twice: the page sends a message only once the one before is answered, and a
    cell that is run meanwhile comes before it.
    """
    server, browser = served
    folder = server.folder / name
    write_notebook(folder / "live.ipynb", [START + cells[0], *cells[1:]])
    with jupyterlab.showing(server, f"{name}/live.ipynb", browser) as shown:
        shown.run_all(timeout_s=120)
        assert not (errors := shown.errors()), errors

        def read_once() -> Any:
            (folder / "state.json").unlink()
            shown.run_cell(len(cells) - 1, timeout_s=120)
            return json.loads((folder / "state.json").read_text())

        def read() -> Any:
            reports = [read_once()]
            while len(reports) < MOST_READS and reports[-1:] != reports[-2:-1]:
                reports.append(read_once())
            return reports[-1]

        yield shown, read
        assert not (errors := shown.errors() + shown.strangers), errors


def wait_for_report(read: Read, expected: Any) -> None:
    """Read until the report is the expected one."""
    for _ in range(20):
        if (report := read()) == expected:
            return
    assert report == expected


@contextmanager
def living_panel(
    served: tuple[Any, Any], name: str, cells: Sequence[str]
) -> Iterator[tuple[Any, Any, Read]]:
    """Like `living`, with its first panel; a name with markup must not become an image."""
    with living(served, name, cells) as (shown, read):
        panel = shown.page.locator(".pf-panel").first
        panel.get_by_role("row").nth(3).wait_for(timeout=60_000)
        yield shown, panel, read
        assert shown.page.locator("img[src=x]").count() == 0


def open_segment(panel: Any, name: str) -> Any:
    """The tab Options with one of its segments open."""
    panel.get_by_role("tab", name="Options").click()
    page = panel.get_by_role("tabpanel", name="Options")
    page.get_by_role("radio", name=name, exact=True).click()
    return page


def keep(shown: Any, name: str) -> None:
    """Save a screenshot of the page if screenshots are requested."""
    if folder := os.environ.get("PAIFUSER_SCREENSHOTS"):
        shown.page.screenshot(path=Path(folder) / f"{name}.png")

"""The first frame of a large model has the rows that can be seen, the others come when asked for;
counted in a page without Jupyter, where nothing else is drawn.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.session.state import State
from paifuser_lab.widgets.linker import front_end
from paifuser_lab.widgets.presenter import Presenter
from paifuser_lab.widgets.section import packed
from tests.browser import jupyterlab
from tests.support.advised import profile, row
from tests.support.jupyterlab import browsing

pytestmark = jupyterlab.marks()

BLOCKS, LAYERS = 30, 9
ROWS = 1 + BLOCKS * (1 + LAYERS)
MAX_ROWS, MAX_ELEMENTS = 48, 1500  # a table of this height has 25 rows
# What a panel's module gets of anywidget, with the values that Python would send.
RENDER = """
async ([code, style, traits]) => {
  const decoded = (value) => {
    if (Array.isArray(value)) return value.map(decoded);
    if (value === null || typeof value !== "object") return value;
    if (typeof value.bytes !== "string")
      return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, decoded(one)]));
    const bytes = Uint8Array.from(atob(value.bytes), (letter) => letter.charCodeAt(0));
    return new DataView(bytes.buffer);
  };
  const values = { selected: "", requests: [], served: 0, live: {}, ...decoded(traits) };
  const model = {
    get: (name) => values[name], set: (name, value) => (values[name] = value),
    save_changes() {}, on() {}, off() {},
  };
  document.head.append(Object.assign(document.createElement("style"), { textContent: style }));
  const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  const count = () => [...document.querySelectorAll(".pf-rows .pf-row")].length;
  const started = new Promise((resolve) => requestAnimationFrame(() => setTimeout(() =>
    resolve([count(), document.querySelectorAll(".pf-panel *").length]))));
  module.default.render({ model, el: document.body });
  return started;
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as chromium:
        yield chromium


def large() -> lab.Profile:
    """A profile of blocks of linear layers."""
    rows = []
    for block in range(BLOCKS):
        rows.append(row(f"{block}", "Sequential", 0.0))
        rows += [row(f"{block}.{index}", "Linear", 0.03) for index in range(LAYERS)]
    return profile(*rows)


def traits_of(view: str, record: lab.Profile) -> dict[str, Any]:
    """What Python sends of it: to the table alone, or to the workbench."""
    if view == "layers":
        return {"data": packed(record)}
    work = lab.Workload(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2), name="a chain")
    presenter = Presenter(work)
    state = State(lab.Recipe([]), baseline=record, profile=record)
    return {
        "data": presenter.profile(record, record),
        "state": presenter.state(state),
        "views": presenter.views(state),
        "detail": presenter.detail(state, ""),
    }


def encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: encoded(one) for key, one in value.items()}
    return [encoded(one) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("view", ["layers", "workbench"])
def test_the_first_frame_builds_the_rows_that_can_be_seen_and_every_row_can_be_reached(
    browser: Any, view: str
):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    rows, elements = page.evaluate(RENDER, [*front_end(view), encoded(traits_of(view, large()))])
    assert 0 < rows <= MAX_ROWS and elements <= MAX_ELEMENTS
    grid = page.get_by_role("treegrid")
    assert grid.get_attribute("aria-rowcount") == str(ROWS + 1)
    last = page.get_by_role("row").and_(page.locator(f"[aria-rowindex='{ROWS + 1}']"))
    assert last.count() == 0
    grid.focus()
    page.keyboard.press("End")
    assert last.get_attribute("aria-selected") == "true" and last.is_visible()
    page.keyboard.press("/")
    page.keyboard.type("29.8")
    page.get_by_text(f"1 of {ROWS}").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("columnheader", name="Layer").get_by_role("button", name="Layer").click()
    page.locator(".pf-rows [aria-rowindex='2']").wait_for()
    assert errors == []
    page.close()

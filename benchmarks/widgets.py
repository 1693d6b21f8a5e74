"""The cost of a widget in a real JupyterLab: creation, bytes on the wire, first paint; from a click
to Python, and from Python to paint.

The page and Python run on one machine and read one clock. A time of paint is the first one after
the frame that shows the change; the first paint is counted from before the panel is created. The
twin is the static figure that is sent along for viewers without widgets.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy
import typer

from paifuser_lab.bench.runner import BenchRecord, Columns
from paifuser_lab.errors import MeasureError
from paifuser_lab.progress import progress
from paifuser_lab.records import Record
from tests.support.jupyterlab import Lab, Page, browsing, serving, showing, write_notebook

from .child import ROOT

SIZES = (300, 2000)
TIMEOUT_S = 240.0
GOAL = "goals for 300 rows: created < 50 ms, sum < 150 kB, paint < 200 ms, p95 of a click < 50 ms"
PANEL = ".jp-OutputArea .pf-panel"

CELLS = (
    "import sys\nsys.path.insert(0, {root!r})\n"
    "from benchmarks.probe import Probe\nprobe = Probe({rows})",
    "probe.display()",
    "probe.change({clicks})",
    "probe.save('stamps.json')",
)

# `painted` is when the first rows were on the screen, `clicked` the time of each click, `chosen`
# when each selection was on the screen.
WATCH = """(panel) => {
  const now = () => performance.timeOrigin + performance.now();
  const seen = (window.pfSeen = { painted: 0, clicked: [], chosen: [] });
  const afterPaint = (then) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = then;
    channel.port2.postMessage(0);
  });
  let chosen = null;
  const update = () => {
    if (!seen.painted && document.querySelector(`${panel} .pf-rows .pf-row`)) {
      seen.painted = -1;
      afterPaint(() => (seen.painted = now()));
    }
    const row = document.querySelector(`${panel} .pf-rows .pf-chosen`);
    const key = row && row.dataset.index;
    if (key !== chosen) {
      chosen = key;
      if (key !== null) afterPaint(() => seen.chosen.push(now()));
    }
  };
  new MutationObserver(update).observe(document.body, {
    childList: true, subtree: true, attributes: true, attributeFilter: ['class', 'data-index'],
  });
  const onClick = (event) => seen.clicked.push(performance.timeOrigin + event.timeStamp);
  document.addEventListener('click', onClick, true);
}"""


class WidgetRow(Record):
    """One size of panel. Spans are the 50th and the 95th percentile, in ms."""

    rows: int
    create_ms: float
    data_bytes: int
    code_bytes: int
    style_bytes: int
    twin_bytes: int
    twin_ms: float
    received_bytes: int
    paint_ms: float
    click_to_python_ms: tuple[float, float]
    python_to_paint_ms: tuple[float, float]

    @property
    def widget_bytes(self) -> int:
        """The bytes of data, code and style."""
        return self.data_bytes + self.code_bytes + self.style_bytes


class WidgetsBench(BenchRecord):
    """The result of `python -m benchmarks widgets`."""

    caption = "a profile's panel in JupyterLab on {0.machine}, {0.clicks} clicks each"
    clicks: int
    rows: tuple[WidgetRow, ...]
    columns: ClassVar[Columns] = {
        "rows": lambda row: f"{row.rows:,}",
        "create ms": lambda row: f"{row.create_ms:.1f}",
        "data kB": lambda row: _kilo(row.data_bytes),
        "code kB": lambda row: _kilo(row.code_bytes),
        "style kB": lambda row: _kilo(row.style_bytes),
        "sum kB": lambda row: _kilo(row.widget_bytes),
        "+ twin kB": lambda row: _kilo(row.twin_bytes),
        "twin ms": lambda row: f"{row.twin_ms:.0f}",
        "received kB": lambda row: _kilo(row.received_bytes),
        "first paint ms": lambda row: f"{row.paint_ms:.0f}",
        "click → Python ms, p50 p95": lambda row: "{:.1f}  {:.1f}".format(*row.click_to_python_ms),
        "Python → paint ms, p50 p95": lambda row: "{:.1f}  {:.1f}".format(*row.python_to_paint_ms),
    }

    @property
    def summary(self) -> str:
        """The goals."""
        return GOAL


def bench(
    rows: Annotated[
        list[int] | None,
        typer.Argument(help="Sizes of the panel; 300 and 2000 where none is named.", min=10),
    ] = None,
    *,
    clicks: Annotated[
        int, typer.Option(help="How often a row is clicked, and selected from Python.", min=2)
    ] = 30,
) -> WidgetsBench:
    """Measure a widget in a real JupyterLab: create, wire, paint, click to Python and back."""
    sizes, measured = rows or SIZES, []
    with tempfile.TemporaryDirectory() as folder, progress("panels", len(sizes)) as shown:
        home = Path(folder)
        for size in sizes:
            cells = [cell.format(rows=size, clicks=clicks, root=str(ROOT)) for cell in CELLS]
            write_notebook(home / "notebooks" / str(size) / "panel.ipynb", cells)
        with serving(home / "notebooks", home / "home") as lab, browsing() as browser:
            for size in sizes:
                measured.append(_measured(lab, browser, size, clicks))
                shown.advance(doing=f"{size} rows")
    return WidgetsBench(clicks=clicks, rows=tuple(measured))


def _measured(lab: Lab, browser: Any, size: int, clicks: int) -> WidgetRow:
    with showing(lab, f"{size}/panel.ipynb", browser) as shown:
        seen, received = _run_panel(shown, clicks)
        if errors := shown.errors():
            raise MeasureError(
                f"The panel of {size} rows failed in its notebook: "
                f"{errors[0].strip().splitlines()[-1]}."
            )
    stamps = json.loads((lab.folder / str(size) / "stamps.json").read_text(encoding="utf-8"))
    clicked = [arrived for _, arrived in stamps.pop("clicked")]
    changed = [when for _, when in stamps.pop("changed")]
    return WidgetRow(
        **{key: value for key, value in stamps.items() if key != "shown_at"},
        received_bytes=received,
        paint_ms=seen["painted"] - stamps["shown_at"],
        click_to_python_ms=_percentiles(_delays(seen["clicked"], clicked)),
        python_to_paint_ms=_percentiles(_delays(changed, seen["chosen"])),
    )


def _run_panel(shown: Page, clicks: int) -> tuple[dict[str, Any], int]:
    """Show the panel, click on its rows, select from Python; the page's time stamps, and the bytes
    received until the first paint.
    """
    page, frames = shown.page, _frames(shown.page)
    page.reload()  # so that every frame is observed
    page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for(timeout=60_000)
    shown.wait_until_ready()
    shown.run_cell(0, TIMEOUT_S)
    page.evaluate(WATCH, PANEL)
    before = sum(frames)
    shown.run_cell(1, TIMEOUT_S)
    page.wait_for_function("() => window.pfSeen.painted > 0", timeout=60_000)
    received = sum(frames) - before
    rows = page.locator(f"{PANEL} .pf-rows .pf-row")
    for click in range(clicks):
        rows.nth(1 + click % max(1, rows.count() - 3)).click()
        page.wait_for_timeout(60)
    page.evaluate(
        "() => { window.pfClicked = [...window.pfSeen.clicked]; window.pfSeen.chosen = []; }"
    )
    shown.run_cell(2, TIMEOUT_S)
    seen: dict[str, Any] = page.evaluate("() => ({ ...window.pfSeen, clicked: window.pfClicked })")
    shown.run_cell(3, TIMEOUT_S)
    return seen, received


def _frames(page: Any) -> list[int]:
    """The sizes of the frames that the page's web sockets receive from now on."""
    sizes: list[int] = []
    page.on(
        "websocket",
        lambda socket: socket.on("framereceived", lambda frame: sizes.append(len(frame))),
    )
    return sizes


def _delays(causes: Sequence[float], effects: Sequence[float]) -> list[float]:
    """The time from each cause to the first effect after it, if that precedes the next cause."""
    spans = []
    for cause, until in zip(causes, [*causes[1:], float("inf")], strict=True):
        after = [effect for effect in effects if cause <= effect < until]
        spans += [min(after) - cause] if after else []
    if len(spans) < len(causes) / 2:
        raise MeasureError(
            f"Only {len(spans)} of {len(causes)} changes arrived before the next; is the machine "
            "busy?"
        )
    return spans


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    middle, high = numpy.percentile(values, [50, 95])
    return float(middle), float(high)


def _kilo(count: int) -> str:
    return f"{count / 1e3:.1f}"

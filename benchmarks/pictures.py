"""Pictures of the workbench for the README, taken of JupyterLab in Chromium, light and dark.

`python -m benchmarks pictures` (or `make pictures`) writes workbench-light.png and
workbench-dark.png. Both show the same workbench after the same measurement; only the theme of
JupyterLab changes between them.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from PIL import Image

from paifuser_lab.errors import MeasureError
from tests.support.jupyterlab import Page, browsing, serving, showing, write_notebook

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
TIMEOUT_S = 400.0
VIEWPORT = {"width": 1280, "height": 1400}
PANEL = ".jp-OutputArea .pf-panel"
STEPS = ["fold", "layout", "fuse"]
SELECTED = "layer1.0.conv1"
TRIES = 6  # at a quiet measurement
SCALE = 1.6  # device pixels per CSS pixel
COLOURS = 256  # of the palette; a screenshot in full colour is three times as large

CELL = """
import paifuser_lab as lab
bench = lab.Workbench(lab.load("{model}"), rounds={rounds}, seconds={seconds})
bench.recipe = lab.Recipe({steps!r})
bench.wait({timeout})
for _ in range({tries}):
    if bench.comparison.quality.is_quiet and bench.profile.quality.is_quiet:
        break
    bench.session.measure_again(when_quiet=True)
    bench.wait({timeout})
bench.selected = "{selected}"
bench
"""
CHANGE_THEME = """async (theme) => {
  await window.jupyterapp.commands.execute('apputils:change-theme', { theme });
}"""
# What surrounds the notebook, and scroll bars, which a picture cannot move.
HIDE = """
.jp-SideBar, .jp-LeftStackedPanel, .jp-Toolbar, #jp-top-panel, #jp-menu-panel,
#jp-bottom-panel { visibility: hidden !important; }
* { scrollbar-width: none !important; caret-color: transparent !important; }
"""


def bench(
    folder: Annotated[Path, typer.Argument(help="Where the PNG files are written.")] = Path("docs"),
    *,
    model: Annotated[str, typer.Option(help="The model in the workbench.")] = "resnet18",
    rounds: Annotated[int, typer.Option(help="Rounds of each measurement.", min=1)] = 10,
    seconds: Annotated[float, typer.Option(help="Time for each measurement.", min=0.1)] = 4.0,
) -> None:
    """Take pictures of the workbench in JupyterLab, light and dark."""
    for path in take_pictures(folder, model, rounds=rounds, seconds=seconds):
        typer.echo(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def take_pictures(
    folder: Path,
    model: str,
    *,
    rounds: int,
    seconds: float,
) -> list[Path]:
    """Write a picture of the workbench in each theme; return the paths, light first."""
    cell = CELL.format(
        model=model,
        rounds=rounds,
        seconds=seconds,
        steps=STEPS,
        timeout=TIMEOUT_S,
        tries=TRIES,
        selected=SELECTED,
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        write_notebook(home / "notebooks" / "workbench.ipynb", [cell.strip()])
        with (
            serving(home / "notebooks", home / "home") as lab,
            browsing() as browser,
            showing(lab, "workbench.ipynb", browser, scale=SCALE) as shown,
        ):
            shown.page.set_viewport_size(VIEWPORT)
            shown.run_all(TIMEOUT_S)
            if errors := shown.errors():
                raise MeasureError(f"The workbench failed in its notebook: {errors[0]}.")
            return [_take(shown, theme, folder) for theme in THEMES]


def _take(shown: Page, theme: str, folder: Path) -> Path:
    page: Any = shown.page
    page.evaluate(CHANGE_THEME, THEMES[theme])
    page.add_style_tag(content=HIDE)
    panel = page.locator(PANEL)
    panel.locator(".pf-rows .pf-row").first.wait_for()
    panel.scroll_into_view_if_needed()
    page.mouse.move(0, 0)
    page.wait_for_timeout(1500)  # transitions of the theme
    path = folder / f"workbench-{theme}.png"
    picture = Image.open(io.BytesIO(panel.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    return path

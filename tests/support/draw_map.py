"""Draw the map of CONTRIBUTING.md: `make map`.

The rooms of the package in the bands of tests/support/house.py, from the top down; techniques and
runtimes stand side by side.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from tests.support.house import BANDS

ROOT = Path(__file__).parent.parent.parent
FILES = {"light": ROOT / "docs" / "house-light.svg", "dark": ROOT / "docs" / "house-dark.svg"}
ABOUT = {
    "cli": "commands, papermill",
    "bench": "benchmarks of this machine",
    "__init__": "the public names of lab",
    "widgets": "panels in a notebook",
    "session": "undo, results, a worker",
    "jobs": "what a workbench computes",
    "planner": "recipes and formats, chosen",
    "deployment": "deploy folders",
    "variant": "load, apply, compare, save",
    "steps": "one file a kind of change",
    "streaming": "frames in order, on workers",
    "accelerate": "enable() and its switches",
    "parallel": "several processes, one model",
    "attention": "sparse, windowed",
    "engines": "what runs a model",
    "saliency": "sensitivity, importance",
    "converter": "models as files",
    "fusion": "fused operators",
    "profiler": "time, bytes, advice",
    "pruning": "groups, cuts, refit",
    "quantization": "integer layers, compensation, QAT",
    "importer": "files of other tools",
    "kernels": "CUDA: compile, launch, tune",
    "measure": "paired timing, error",
    "memory": "pools, plans, snapshots",
    "training": "the loop, distillation",
    "views": "pictures of records",
    "machine": "hardware, ceilings",
    "workload": "model, data, metric",
    "model": "any torch model, read and edited",
    "records": "frozen results, no torch",
    "_files": "safe writing, assets",
    "arguments": "checked arguments",
    "zoo": "models, data, training",
    "errors": "with a remedy; stopping",
    "progress": "progress bars",
}
PURPOSE = {
    "face": "what a person meets",
    "loop": "a recipe applied, measured, undone, replayed",
    "techniques": "what makes a model faster and smaller",
    "runtimes": "where it runs",
    "ground": "what all of them stand on",
}
COLUMNS = {"techniques": 3, "runtimes": 1}  # beside each other; other bands take the whole width
WIDTH, GAP, HEAD, ROW, BOX, ALL = 880, 12, 26, 46, 38, 4
COLOURS = {
    "light": {"ink": "#1f2328", "dim": "#59636e", "band": "#ffffff", "box": "#f6f8fa"}
    | {"edge": "#d1d9e0"},
    "dark": {"ink": "#f0f6fc", "dim": "#9198a1", "band": "#0d1117", "box": "#151b23"}
    | {"edge": "#3d444d"},
}


def _height(band: str) -> int:
    rows = -(-len(BANDS[band]) // COLUMNS.get(band, ALL))
    return HEAD + ROW * rows + GAP // 2


def svg(theme: str) -> str:
    """The map as SVG text."""
    colour, lines, x, y = COLOURS[theme], [], 0.0, 0
    column = (WIDTH - GAP * (ALL - 1)) / ALL
    for band in BANDS:
        columns = COLUMNS.get(band, ALL)
        width = columns * column + (columns - 1) * GAP
        beside = [other for other in COLUMNS if band in COLUMNS]
        height = max(map(_height, beside or [band]))
        lines.append(_band(band, (x, y, width, height), colour))
        for index, room in enumerate(BANDS[band]):
            line, place = divmod(index, columns)
            pitch = (width - GAP) / columns
            box = (x + GAP + place * pitch, y + HEAD + ROW * line, pitch - GAP)
            lines.append(_room(room, box, colour))
        lines.append("</g>")
        x = x + width + GAP if band in COLUMNS and x == 0 else 0.0
        y = y if x else y + height + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'height="{y}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, '
        'sans-serif">'
    )
    return "\n".join([head, *lines, "</svg>", ""])


def _band(band: str, place: tuple[float, int, float, int], colour: dict[str, str]) -> str:
    x, y, width, height = place
    return (
        f'<g data-band="{band}"><rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{height}" '
        f'rx="8" fill="{colour["band"]}" stroke="{colour["edge"]}"/>'
        f'<text x="{x + GAP:.0f}" y="{y + 18}" font-size="13" fill="{colour["dim"]}">'
        f'<tspan font-weight="600" fill="{colour["ink"]}">{band}</tspan> · {PURPOSE[band]}</text>'
    )


def _room(room: str, place: tuple[float, int, float], colour: dict[str, str]) -> str:
    x, y, width = place
    middle = x + width / 2
    return (
        f'<g data-room="{room}"><rect x="{x:.0f}" y="{y}" width="{width:.0f}" '
        f'height="{BOX}" rx="6" fill="{colour["box"]}" stroke="{colour["edge"]}"/>'
        f'<text x="{middle:.0f}" y="{y + 16}" text-anchor="middle" font-size="13" '
        f'font-weight="600" fill="{colour["ink"]}">{escape(room)}</text>'
        f'<text x="{middle:.0f}" y="{y + 31}" text-anchor="middle" font-size="11" '
        f'fill="{colour["dim"]}">{escape(ABOUT[room])}</text></g>'
    )


def main() -> None:
    """Write both files."""
    for theme, path in FILES.items():
        path.write_text(svg(theme), encoding="utf-8")


if __name__ == "__main__":
    main()

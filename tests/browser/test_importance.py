"""A threshold of channels is dragged in a living notebook, and Python knows what is kept."""

from __future__ import annotations

import json

import pytest

from tests.browser import jupyterlab
from tests.browser.living import keep

pytestmark = jupyterlab.marks()

CELLS = [
    """
import json
from pathlib import Path
import torch
import paifuser_lab as lab
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 32, 3), nn.ReLU(), nn.Conv2d(32, 8, 3))
for layer in (model[0], model[2]):
    layer.weight.data *= torch.linspace(0.1, 2, len(layer.weight))[:, None, None, None]
work = lab.Workload(model, torch.randn(1, 3, 16, 16), name="net")
found = lab.importance(work, "magnitude")
panel = lab.show(found)
seen = []
panel.observe(lambda change: seen.append(change["new"]), "live")
panel
""".strip(),
    """
result = {"threshold": panel.threshold, "kept": panel.kept, "live": seen, "served": panel.served}
result["expected"] = found.kept(threshold=panel.threshold)
Path("result.json").write_text(json.dumps(result))
""".strip(),
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The panel in a notebook; and what its last cell tells when it is run again."""
    folder = tmp_path_factory.mktemp("importance")
    notebooks = folder / "notebooks"
    jupyterlab.write_notebook(notebooks / "live.ipynb", CELLS)
    with (
        jupyterlab.serving(notebooks, folder / "home") as server,
        jupyterlab.showing(server, "live.ipynb") as shown,
    ):
        shown.run_all(timeout_s=120)
        assert shown.errors() == []

        def read(served):
            """What Python knows once it has served so many requests; the page sends a message when
            the one before is answered.
            """
            for _ in range(20):
                shown.run_cell(1, timeout_s=60)
                result = json.loads((notebooks / "result.json").read_text())
                if result["served"] >= served:
                    return result
            raise AssertionError(f"{served} requests were to be served, and {result['served']} were")

        yield shown, read
        assert shown.errors() == [] and shown.strangers == []


def kept_words(slider):
    """'23 of 64 channels kept' → 23."""
    return int(slider.get_attribute("aria-valuetext").split()[0])


def test_a_dragged_threshold_is_what_python_has_kept(opened):
    shown, read = opened
    mouse = shown.page.mouse
    line = shown.page.get_by_role("slider", name="threshold of 0")
    assert kept_words(line) == 64 and read(served=0)["kept"] == {"0": 64, "2": 32, "4": 8}
    box = line.bounding_box()
    x, bottom = box["x"] + 150, box["y"] + box["height"] - 24
    mouse.move(x, bottom)
    mouse.down()
    words = []
    for step in range(60):
        mouse.move(x, bottom - 2 * step)
        words.append(kept_words(line))
    keep(shown, "importance-dragged")
    mouse.up()
    result = read(served=1)
    assert 1 < result["kept"]["0"] < 64 and result["kept"]["0"] == kept_words(line)
    assert len(set(words)) > 3 and sorted(words, reverse=True) == words, "the page follows the hand"
    assert {key: count for key, count in result["kept"].items() if key != "0"} == {"2": 32, "4": 8}
    assert result["served"] == 1, "one gesture is one choice"
    on_the_way = [one for one in result["live"] if one]
    assert on_the_way and all(one["layer"] == "0" for one in on_the_way) and result["live"][-1] == {}
    assert len(on_the_way) < 60, "not every move is a message"


def test_keys_move_the_line_by_a_channel(opened):
    shown, read = opened
    line = shown.page.get_by_role("slider", name="threshold of 0")
    before = read(served=1)["kept"]["0"]
    line.press("ArrowDown")
    line.press("ArrowDown")
    line.press("ArrowUp")
    assert read(served=4)["kept"]["0"] == before + 1 == kept_words(line)
    line.press("Home")
    assert read(served=5)["kept"]["0"] == 64


def test_one_threshold_for_all_layers_leaves_the_answer_whole(opened):
    shown, read = opened
    slider = shown.page.get_by_role("slider", name="one threshold for all layers")
    box = slider.bounding_box()
    shown.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    result = read(served=6)
    assert result["kept"] == result["expected"] and result["threshold"] > 0
    assert result["kept"]["4"] == 8 and 40 <= result["kept"]["0"] + result["kept"]["2"] <= 56
    assert result["served"] == 6, "one gesture is one choice"
    keep(shown, "importance-all")
    layers = shown.page.get_by_role("listbox", name="share of channels kept, by layer")
    layers.get_by_role("option").nth(1).click()
    other = shown.page.get_by_role("slider", name="threshold of 2")
    assert kept_words(other) == result["kept"]["2"]
    layers.get_by_role("option").nth(2).click()
    assert (
        shown.page.get_by_role("slider", name="threshold of 4").get_attribute("aria-disabled")
        == "true"
    )

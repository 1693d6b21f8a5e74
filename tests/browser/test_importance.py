"""A channel threshold is dragged in a live notebook, and Python has the kept channels."""

from __future__ import annotations

import pytest

from tests.browser import jupyterlab
from tests.browser.living import keep, living

pytestmark = jupyterlab.marks()

CELLS = [
    """
model = nn.Sequential(
    nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 32, 3), nn.ReLU(), nn.Conv2d(32, 8, 3)
)
for layer in (model[0], model[2]):
    layer.weight.data *= torch.linspace(0.1, 2, len(layer.weight))[:, None, None, None]
work = lab.Workload(model, torch.randn(1, 3, 16, 16), name="net")
importance = lab.importance(work, "magnitude")
panel = lab.show(importance)
seen = []
panel.observe(lambda change: seen.append(change["new"]), "live")
panel
""".strip(),
    """
report = {"threshold": panel.threshold, "kept": panel.kept, "live": seen, "served": panel.served}
report["expected"] = importance.kept(panel.threshold)
Path("state.json").write_text(json.dumps(report))
""".strip(),
]


@pytest.fixture(scope="module")
def opened(served):
    """The panel in a notebook, and a function that runs its last cell and returns the report."""
    with living(served, "importance", CELLS) as (shown, read_state):

        def read(count):
            """The report after Python has served so many requests; the page sends a message once
            the previous one is answered.
            """
            for _ in range(20):
                report = read_state()
                if report["served"] >= count:
                    return report
            raise AssertionError(f"{count} requests were to be served, and {report['served']} were")

        yield shown, read


def kept_words(slider):
    """'23 of 64 channels kept' → 23."""
    return int(slider.get_attribute("aria-valuetext").split()[0])


def test_a_dragged_threshold_sets_the_kept_channels_in_python(opened):
    shown, read = opened
    mouse = shown.page.mouse
    line = shown.page.get_by_role("slider", name="threshold of 0")
    assert kept_words(line) == 64 and read(count=0)["kept"] == {"0": 64, "2": 32, "4": 8}
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
    report = read(count=1)
    assert 1 < report["kept"]["0"] < 64 and report["kept"]["0"] == kept_words(line)
    assert len(set(words)) > 3 and sorted(words, reverse=True) == words, "the page follows the hand"
    assert {key: count for key, count in report["kept"].items() if key != "0"} == {"2": 32, "4": 8}
    assert report["served"] == 1, "one gesture is one choice"
    during_drag = [message for message in report["live"] if message]
    assert (
        during_drag
        and all(message["layer"] == "0" for message in during_drag)
        and report["live"][-1] == {}
    )
    assert len(during_drag) < 60, "not every move is a message"


def test_keys_move_the_line_by_one_channel(opened):
    shown, read = opened
    line = shown.page.get_by_role("slider", name="threshold of 0")
    before = read(count=1)["kept"]["0"]
    line.press("ArrowDown")
    line.press("ArrowDown")
    line.press("ArrowUp")
    report = read(count=2)
    assert report["kept"]["0"] == before + 1 == kept_words(line)
    assert report["served"] == 2, "keys one after another are one choice"
    line.press("Home")
    shown.page.keyboard.press("Tab")
    assert read(count=3)["kept"]["0"] == 64


def test_one_threshold_for_all_layers_keeps_the_output_layer_whole(opened):
    shown, read = opened
    slider = shown.page.get_by_role("slider", name="one threshold for all layers")
    box = slider.bounding_box()
    shown.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    report = read(count=4)
    assert report["kept"] == report["expected"] and report["threshold"] > 0
    assert report["kept"]["4"] == 8 and 40 <= report["kept"]["0"] + report["kept"]["2"] <= 56
    assert report["served"] == 4, "one gesture is one choice"
    keep(shown, "importance-all")
    layers = shown.page.get_by_role("listbox", name="share of channels kept, by layer")
    layers.get_by_role("option").nth(1).click()
    other = shown.page.get_by_role("slider", name="threshold of 2")
    assert kept_words(other) == report["kept"]["2"]
    layers.get_by_role("option").nth(2).click()
    assert (
        shown.page.get_by_role("slider", name="threshold of 4").get_attribute("aria-disabled")
        == "true"
    )

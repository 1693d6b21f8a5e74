"""A picture is the same in both renderers: ticks, texts and keys; each is told by matplotlib's
drawing, and by the page's modules in Node.
"""

from __future__ import annotations

import base64
import json
import math
from itertools import pairwise

import pytest

from paifuser_lab._files import asset
from paifuser_lab.records import (
    BatchRow,
    BatchSweep,
    Estimate,
    MemoryPlan,
    PackedBuffer,
    StreamReport,
)
from paifuser_lab.views import (
    batch_sweep,
    canvas,
    importance,
    memory_plan,
    picture_of,
    roofline,
    sensitivity,
    stream,
)
from paifuser_lab.views.picture import (
    FORMATS,
    Axis,
    Boxes,
    Dots,
    Labels,
    Line,
    Panel,
    Picture,
    Rules,
    Tips,
    Values,
    linear_ticks,
    log_ticks,
)
from paifuser_lab.widgets.wire import pictured
from tests.support.drawn import RECORDS
from tests.support.node import printed_by_node

SWEEP = BatchSweep(
    workload="net",
    machine="a machine",
    threads=2,
    memory_limit_bytes=4 * 10**9,
    plateau=0.85,
    knee=4,
    reason="It is the knee.",
    rows=(
        *(
            BatchRow(batch=batch, latency_ms=2.0 + batch, spread_ms=(2.0 + batch, 2.5 + batch),
                     throughput_per_s=1000 * batch / (2.0 + batch), peak_bytes=10**9 + batch)
            for batch in (1, 2, 4, 8)
        ),
        BatchRow(batch=16, failure="over the limit", predicted_bytes=7 * 10**9),
    ),
)  # fmt: skip
PLAN = MemoryPlan(
    workload="net",
    machine="a machine",
    device="cpu",
    operators=4,
    buffers=(
        PackedBuffer(layer="a", operator="conv", size_bytes=5000, begin=2, end=3, offset_bytes=0),
        PackedBuffer(layer="a", operator="conv", size_bytes=5000, begin=0, end=1, offset_bytes=0),
        PackedBuffer(layer="b", operator="add", size_bytes=4000, begin=0, end=3, offset_bytes=5000),
    ),
    method="best fit by size",
    best_fit_bytes=9000,
    is_optimal=True,
    referenced_bytes=9000,
    held_bytes=12000,
)
EVERY_MARK = Picture(
    title="every mark",
    label="marks",
    rows=(
        (
            Panel(
                Axis.linear(0, 10, "across"),
                Axis.band(["first", "second"]),
                (
                    Boxes([0, 2], [4, 9], [-0.4, 0.6], [0.4, 1.4], key=["a", "b"],
                          tone=["good", "bad"],
                          tips=Tips(["a", "b"], figures=(Values("size", [1e6, math.nan], "bytes"),
                                                         Values("what", ["x", ""])))),
                    Dots([5], [0], "cross", key=["c"], tips=Tips(["c"], ["a line"])),
                    Rules("x", [3], ["here"], style="dashed"),
                    Labels([9], [1], ["9 ms"]),
                ),
            ),
            Panel(
                Axis.log(1, 1000),
                Axis.linear(0, 1),
                (
                    Line([1, 10], [0, math.nan]),
                    Dots([10, 0, 100], [0.5, 0.5, math.nan], key=["d", "nowhere", "nowhere"],
                         tips=Tips(["d", "not above 0", "not known"])),
                ),
            ),
        ),
    ),
)  # fmt: skip
ROW = RECORDS["Sensitivity"].rows[0]
SCORES = {"int8": {"quadratic": Estimate(value=0.1, error=0.02), "ablation": Estimate(value=0.2)}}
MEASURED = RECORDS["Sensitivity"].model_copy(
    update={"rows": (ROW.model_copy(update={"scores": SCORES}),)}
)
PICTURES = {
    **{name: drawn for name, record in RECORDS.items() if (drawn := picture_of(record)).panels},
    "measured": sensitivity.picture(MEASURED),
    "agreement": sensitivity.agreement(MEASURED),
    "sweep": batch_sweep.picture(SWEEP),
    "plan": memory_plan.picture(PLAN),
    "no buffers": memory_plan.picture(PLAN.model_copy(update={"buffers": ()})),
    "no layers": roofline.picture(RECORDS["Roofline"].model_copy(update={"points": ()})),
    "marks": EVERY_MARK,
    "kept channels": importance.picture(RECORDS["Importance"], {"a": 1}),
    "stream that waits": stream.picture(StreamReport(source="a", engine="ray", state="waiting")),
}
HARNESS = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const [folder, path] = process.argv.slice(2);
const page = await import(pathToFileURL(`${folder}/shared/picture.js`));
const revived = (key, value) =>
  value?.base64 === undefined
    ? value
    : new DataView(Uint8Array.from(Buffer.from(value.base64, "base64")).buffer);
const pictures = JSON.parse(readFileSync(path, "utf8"), revived);
console.log(JSON.stringify(Object.entries(pictures).map(([name, data]) => {
  const picture = page.unpackedPicture(data);
  const shown = [picture, ...picture.below, ...picture.by_layer.slice(0, 1).map((one) => one[1])];
  const frames = shown.flatMap((one) => page.framesOf(1400, one).frames);
  return [name, {
    ticks: frames.map(({ xTicks, yTicks }) => [xTicks, yTicks].map((all) =>
      all.map((tick) => tick.name))),
    texts: frames.flatMap(({ panel }) => panel.marks.flatMap((mark) =>
      mark.mark === "Rules" ? mark.names : mark.texts ?? [])),
    tips: page.spotsOf(frames).map(({ mark, row }) =>
      page.wordsOf(mark.tips, row).flat(2).filter(Boolean).join(" ")),
    keys: page.spotsOf(frames).map((spot) => spot.key),
    isInside: frames.every((frame) => page.spotsOf([frame]).every(({ x, y, width, height }) =>
      x >= frame.left - 6 && x + width <= frame.right + 6 && y >= frame.top - 6 &&
      y + height <= frame.bottom + 6)),
  }];
})));
"""


@pytest.fixture(scope="module")
def on_the_page(tmp_path_factory):
    """What the page's modules make of every picture."""
    folder = tmp_path_factory.mktemp("pictures")
    data = {name: pictured(picture) for name, picture in PICTURES.items()}
    (folder / "data.json").write_text(
        json.dumps(data, default=lambda one: {"base64": base64.b64encode(one).decode()})
    )
    return dict(printed_by_node(HARNESS, folder, asset("widgets"), folder / "data.json"))


@pytest.mark.parametrize("name", PICTURES)
def test_matplotlib_and_the_page_draw_the_same_ticks_texts_and_tooltips(name, on_the_page):
    picture, page = PICTURES[name], on_the_page[name]
    drawing = canvas.draw(picture)
    drawn = [
        [[label.get_text() for label in axis.get_ticklabels()] for axis in (axes.xaxis, axes.yaxis)]
        for axes in drawing.axes
    ]
    assert page["ticks"] == drawn
    assert sorted(page["texts"]) == sorted(
        text.get_text() for axes in drawing.axes for text in axes.texts
    )
    assert sorted(page["tips"]) == sorted(tip.replace("\n", " ") for tip in drawing.hover.values())
    marks = [mark for panel in picture.panels for mark in panel.marks if mark.tips]
    keys = [key for mark in marks for key in mark.key or [""] * len(mark.x) if key != "nowhere"]
    assert page["keys"] == keys and page["isInside"]


def test_buffers_are_gone_through_by_time_then_by_address(on_the_page):
    assert on_the_page["plan"]["keys"] == ["a", "b", "a"]
    levels = on_the_page["plan"]["texts"]
    assert levels == ["held by torch 12 kB", "arena = least 9 kB"], "equal levels are one"


def test_every_format_is_known_to_the_page():
    text = asset("widgets/shared/picture.js").read_text()
    known = text.split("const FORMATS = {")[1].split("}")[0]
    assert all(f"\n  {name}: " in known for name in FORMATS)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, (0, 2, 4, 6, 8, 10)), (0, 0.3, (0, 0.1, 0.2, 0.3)), (5, 5, (5,)), (-3, 3, (-2, 0, 2))],
)
def test_linear_ticks_are_round(low, high, expected):
    assert linear_ticks(low, high) == expected


@pytest.mark.parametrize(("low", "high"), [(1, 3), (0.02, 700), (1, 1e12), (3, 4)])
def test_log_ticks_are_few_and_within_their_ends(low, high):
    ticks = log_ticks(low, high)
    assert len(ticks) <= 6 and all(low <= tick <= high for tick in ticks)
    assert all(before < after for before, after in pairwise(ticks))


@pytest.mark.parametrize(("low", "high"), [(21.6, 42.5), (3, 4), (0.24, 0.45)])
def test_a_short_logarithmic_axis_has_ticks_too(low, high):
    assert len(log_ticks(low, high)) >= 2 and log_ticks(low, high, most=2)

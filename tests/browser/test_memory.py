"""The workbench's memory as a person uses it: what a call holds, a limit that is dragged, switches,
the packing, and a snapshot of a GPU; each time the Python side is read back. A stream's monitor
stands in the same notebook.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser import audit, jupyterlab
from tests.browser.living import HTML_NAME, Read, keep, living_panel, open_segment
from tests.support.processor import Processor

pytestmark = jupyterlab.marks()

OPEN = """
model = nn.Sequential()
for index in range(3):
    block = nn.Sequential(nn.Conv2d(3 if not index else 16, 16, 3, padding=1), nn.ReLU())
    model.add_module(f"{HTML_NAME}{index}", block)
model.add_module("head", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)))
work = lab.Workload(model.eval(), torch.randn(4, 3, 48, 48), name="net")
bench = lab.Workbench(work, rounds=2, seconds=0.2)
bench.wait(120)
bench
""".strip()
SNAPSHOT = """
from paifuser_lab.records import MemorySnapshot, SiteMemory, SnapshotMap
moment = SnapshotMap(
    moment="at the peak", time_ms=1.0, segment_bytes=(20 << 20, 2 << 20),
    segment_allocated_bytes=(12 << 20, 1 << 20), segment_stream=(0, 7),
    segment_is_large=(True, False), segment_is_expandable=(False, False),
    sites=(f"{HTML_NAME}.py:3 forward", "net.py:9 main"), categories=("weights", "activations"),
    block_segment=(0, 0, 1), block_offset_bytes=(0, 4 << 20, 0),
    block_bytes=(4 << 20, 8 << 20, 1 << 20), block_site=(0, 1, 1), block_category=(0, 1, 1),
    requested_bytes=12 << 20, free_bytes=9 << 20, largest_free_bytes=8 << 20,
)
lab.show(MemorySnapshot(
    name="run.pickle", device=0, events=3, categories=("weights", "activations"),
    time_ms=(0.0, 1.0, 2.0), held_bytes=((4 << 20,) * 3, (0, 9 << 20, 2 << 20)),
    reserved_bytes=(22 << 20,) * 3, peak_ms=1.0, peak_bytes=13 << 20,
    peak_reserved_bytes=22 << 20, blocks_at_peak=3, maps=(moment,),
    at_peak=(SiteMemory(site="net.py:9 main", category="activations", blocks=2,
                        held_bytes=9 << 20),),
))
""".strip()
STREAM = """
import numpy
from paifuser_lab.records import Latency, SetAside, StreamEvent, StreamNode, StreamReport
from paifuser_lab.streaming.stages.overlay import small_jpeg
from paifuser_lab.widgets import StreamMonitor

def spread(name, ms):
    return Latency(name=name, p50_ms=ms, p95_ms=1.4 * ms, p99_ms=2.2 * ms, count=900)

kinds = ("hedged", "hedged", "sent again", "lost", "set aside")
shades = numpy.linspace(0, 255, 180).astype("u1")
image = numpy.zeros((180, 320, 3), "u1") + shades[:, None, None]
monitor = StreamMonitor()
monitor(StreamReport(
    source=f"{HTML_NAME}.mp4", engine="ray", state="running", sink="out.mp4",
    stages=("decode", "preprocess", "infer", "postprocess", "overlay", "encode"),
    expected_frames=2400, frames=1310, groups=164, elapsed_s=9.4, frames_per_s=139.4,
    latency=spread("frame", 61), stage_latency=tuple(map(spread,
        ("decode", "preprocess", "infer", "postprocess", "overlay", "encode", "waiting"),
        (8.1, 1.2, 21, 0.9, 1.7, 5.2, 24))),
    waiting_groups=1, in_flight_groups=7, held_groups=2, window=16,
    nodes=tuple(StreamNode(name=f"{HTML_NAME}{n}", host=f"10.0.0.{n}", frames=frames, groups=9,
        share=frames / 1310, estimate_ms=27.0 + n, in_flight=2 * (state == "up"),
        hedges=2 * (n == 1), failures=n == 3, state=state)
        for n, (frames, state) in enumerate([(520, "up"), (480, "up"), (290, "up"), (20, "lost")])),
    hedged=2, sent_again=1, set_aside=1, lost_nodes=1,
    failures=(SetAside(index=77, stage="decode", message="<b>its packets are damaged</b>"),),
    events=tuple(StreamEvent(at_s=1.5 * n + 1, kind=kind, node=f"{HTML_NAME}1", group=9 * n)
        for n, kind in enumerate(kinds)),
    rates=tuple((0.5 * n + 0.5, 140 - 60 * (n == 9) + 7 * (-1) ** n) for n in range(18)),
), small_jpeg(image, 320))
monitor
""".strip()
READ = """
state = bench.wait(120)
fits = state.record("memory_fit") or {}
report = {"steps": [step.kind for step in bench.recipe], "error": state.error}
report["selected"] = bench.selected
report["limits"] = {str(key[1]): fit.limit_bytes for key, fit in fits.items()}
report["known"] = [name for name in bench.views if name.startswith("memory")]
Path("state.json").write_text(json.dumps(report))
""".strip()


@pytest.fixture(scope="module")
def opened(served: tuple[Any, Any]) -> Any:
    with living_panel(served, "memory", [OPEN, SNAPSHOT, STREAM, READ]) as (shown, panel, read):
        shown.page.set_viewport_size({"width": 1900, "height": 1000})
        yield shown, panel, read


def bytes_now(slider: Any) -> int:
    return int(slider.get_attribute("aria-valuenow"))


def test_each_question_is_answered_and_a_limit_that_is_moved_is_asked_for(
    opened: tuple[Any, Any, Read],
):
    shown, panel, read = opened
    keys = shown.page.keyboard
    page = open_segment(panel, "Memory")
    limit, pools = (page.get_by_role("region", name=name) for name in ("memory limit", "memory th"))
    packing = page.get_by_role("region", name="memory packing")
    assert page.get_by_role("button", name=re.compile(r"^Measure · \d")).count() == 4
    keep(shown, "memory-empty")
    page.get_by_role("region", name="memory", exact=True).get_by_role("button").click()
    for region in (limit, packing, pools):
        region.get_by_role("button", name="Measure ·").click()
    report = read()
    assert report["error"] is None
    assert {"memory", "memory_fit", "memory_plan"} <= set(report["known"])

    moment = page.get_by_role("slider", name="moment of the call")
    before = moment.get_attribute("aria-valuetext")
    moment.focus()
    keys.press("ArrowLeft")
    assert moment.get_attribute("aria-valuetext") != before
    page.get_by_role("heading", name="alive after").wait_for(timeout=30_000)
    keys.press("Escape")
    page.get_by_role("radio", name="By category").click()
    assert page.get_by_text("alive, with the weights").is_visible()

    line = limit.get_by_role("slider", name="memory limit")
    line.focus()
    keys.press("PageDown")
    keys.press("PageDown")
    keys.press("ArrowDown")
    by_keys = bytes_now(line)
    assert "needs" in line.get_attribute("aria-valuetext") or "fits" in line.get_attribute(
        "aria-valuetext"
    )
    keys.press("Enter")
    assert read()["limits"]["False"] == by_keys
    line.scroll_into_view_if_needed()
    box = line.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] - 4
    shown.page.mouse.move(x, y)
    shown.page.mouse.down()
    shown.page.mouse.move(x - 90, y, steps=4)
    dragged = bytes_now(line)
    assert dragged < by_keys and "It needs" in limit.inner_text()
    other = page.get_by_role("region", name="memory", exact=True).get_by_role(
        "slider", name="memory limit"
    )
    assert other.get_attribute("aria-valuetext").startswith(
        line.get_attribute("aria-valuetext").split(":")[0]
    ), "the other chart has the same limit"
    keep(shown, "memory-dragged")
    shown.page.mouse.up()
    assert read()["limits"]["False"] == dragged
    field = limit.get_by_role("textbox", name="memory limit")
    field.fill("1 GB")
    limit.get_by_role("button", name="Again ·").click()
    assert read()["limits"]["False"] == 10**9
    limit.get_by_role("radio", name="A training step").click()
    limit.get_by_role("button", name="Measure ·").click()
    assert read()["limits"]["True"] == 10**9
    assert "gradients" in limit.inner_text()

    buffers = packing.get_by_role("listbox")
    buffers.focus()
    keys.press("Home")
    keys.press("Enter")
    assert read()["selected"].startswith(HTML_NAME)


def test_a_switch_adds_its_step_and_undo_takes_it_back(opened: tuple[Any, Any, Read]):
    _, panel, read = opened
    page = open_segment(panel, "Memory")
    switch = page.get_by_role("switch", name="Use memory again")
    assert switch.get_attribute("aria-checked") == "false"
    switch.click()
    assert switch.get_attribute("aria-checked") == "true", "before Python has served it"
    report = read()
    assert report["steps"] == ["reuse"] and report["error"] is None
    page.get_by_text("3 of 3 activations in place").wait_for(timeout=10_000)
    panel.get_by_role("button", name="Undo").click()
    assert read()["steps"] == []
    assert switch.get_attribute("aria-checked") == "false"


def test_a_row_of_the_limit_adds_its_step(opened: tuple[Any, Any, Read], processor: Processor):
    processor.needs_bf16_units()  # else bf16 is not proposed
    _, panel, read = opened
    page = open_segment(panel, "Memory")
    page.get_by_role("radio", name="One call").click()
    page.get_by_role("button", name="add the step for bf16").click()
    assert read()["steps"] == ["precision"]
    panel.get_by_role("button", name="Undo").click()
    assert read()["steps"] == []


@pytest.mark.parametrize("theme", audit.THEMES)
def test_nothing_of_it_is_cut_off_and_all_text_can_be_read(
    opened: tuple[Any, Any, Read], theme: str
):
    shown, panel, _ = opened
    page = open_segment(panel, "Memory")
    frame = panel.locator(".pf-workbench")
    audit.dress(shown.page, theme)
    found: dict[str, list[str]] = {}
    for width in (900, 1200):
        audit.resize(frame, width)
        for number, region in enumerate(page.get_by_role("region").all()):
            region.scroll_into_view_if_needed()
            keep(shown, f"memory-{width}-{theme[-5:].strip()}-{number}")
        if problems := audit.cut_text(frame) + audit.faint_text(frame):
            found[f"{width} px"] = problems
    assert found == {}


def test_a_snapshot_shows_call_sites_on_hover_and_by_keys(opened: tuple[Any, Any, Read]):
    shown, _, _ = opened
    panel = shown.page.locator(".pf-panel").nth(1)
    blocks = panel.get_by_role("listbox", name="blocks in segments at the peak")
    assert blocks.get_by_role("option").count() == 3
    blocks.get_by_role("option").first.hover()
    assert panel.locator(".pf-card:visible").inner_text().startswith(f"{HTML_NAME}.py:3 forward")
    moment = panel.get_by_role("slider", name="moment of the snapshot")
    moment.focus()
    assert moment.get_attribute("aria-valuetext").startswith("13.6 MB allocated at 1 ms")
    shown.page.keyboard.press("ArrowRight")
    assert "2.1 MB activations" in moment.get_attribute("aria-valuetext")
    assert panel.get_by_role("rowheader", name="net.py:9 main").count() == 1
    shown.page.keyboard.press("Escape")
    for theme in audit.THEMES:
        audit.dress(shown.page, theme)
        keep(shown, f"memory-snapshot-{theme[-5:].strip()}")
        assert audit.cut_text(panel) + audit.faint_text(panel) == []


def test_a_stream_shows_its_frame_its_workers_and_what_went_wrong(opened: tuple[Any, Any, Read]):
    shown, _, _ = opened
    panel = shown.page.locator(".pf-panel").nth(2)
    panel.scroll_into_view_if_needed()
    assert panel.get_by_role("status").inner_text().startswith("running: 1310 of 2400 frames")
    picture = panel.get_by_role("img", name="the current frame")
    assert picture.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 320
    workers = panel.get_by_role("table", name="workers").get_by_role("row").all()[1:]
    cells = [worker.get_by_role("cell").all_inner_texts() for worker in workers]
    names = panel.get_by_role("table", name="workers").get_by_role("rowheader").all_inner_texts()
    assert names == [f"{HTML_NAME}{index}" for index in range(4)]
    assert [row[3] for row in cells] == ["40%", "37%", "22%", "1.5%"]
    assert cells[3][1] == "lost" and cells[1][6] == "2"
    chart = panel.get_by_role("listbox", name="frames a second over time")
    assert chart.locator(".pf-tone-bad").count() == 5
    assert panel.locator(".pf-readout .pf-tone-bad").count() == 4, "each kind beside its count"
    chart.focus()
    shown.page.keyboard.press("ArrowRight")
    assert "hedged" in chart.locator(".pf-pic-pointed").get_attribute("aria-label")
    assert "<b>its packets are damaged</b>" in panel.inner_text()
    for theme in audit.THEMES:
        audit.dress(shown.page, theme)
        for width in (900, 480):
            audit.resize(panel, width)
            keep(shown, f"stream-{width}-{theme[-5:].strip()}")
            assert audit.cut_text(panel) + audit.faint_text(panel) == [], (theme, width)

"""The frame of the workbench at the widths and in the themes that people use: nothing is cut off,
everything can be read, and on a busy machine nothing is claimed.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import audit, jupyterlab
from tests.browser.living import Read, keep, living_panel

pytestmark = jupyterlab.marks()

OPEN = """
import time
from paifuser_lab.measure import MachineWatch
from paifuser_lab.planner import SearchResult
from paifuser_lab.records import Candidate
from paifuser_lab.records.quality import BusyProcess, Quality

def patch(**figures):
    MachineWatch.quality = lambda watch, **own: Quality(**figures)

patch(others_share=0.01, spread=0.02, rows_share=1.0)
class Slow(nn.ReLU):
    '''Waits, so that an engine, which does not, is faster on any machine.'''

    def forward(self, x):
        time.sleep(0.003)
        return super().forward(x)

def block(width):
    return nn.Sequential(nn.Conv2d(width, width, 3), nn.BatchNorm2d(width), Slow())
model = nn.Sequential(nn.Conv2d(3, 16, 3), block(16), nn.Sequential(block(16), nn.MaxPool2d(2)))
work = lab.Workload(model, torch.randn(1, 3, 32, 32), name="a_network_with_a_long_name")
bench = lab.Workbench(work, rounds=3, seconds=0.5)
bench.wait(120)
bench.recipe = lab.Recipe(["fold", {"backend": {"name": "onnxruntime"}}])
bench.wait(120)

def candidate(label, status, speedup, low, high, word, tone, **more):
    return Candidate(
        label=label, steps=({"backend": {"name": "onnxruntime"}},), why="joins layers into one",
        status=status, latency_ms=10 / speedup, before_ms=10.0, speedup=speedup,
        interval=(low, high), word=word, tone=tone, relative_error=0.0123, size_bytes=123456,
        **more,
    )

reason = "its output differs by 0.0123, more than the 0.01 that the search allows"
bench.candidates = SearchResult(
    workload="a_network_with_a_long_name", goal="latency", metric_drop=0.01, may_train=False,
    seconds=60, took_s=59, machine="this one", planned=5, is_done=True, rows=(
        candidate("ONNX Runtime", "measured", 4.9, 4.3, 5.4, "faster", "good", rank=1),
        candidate("Inductor", "measured", 13.4, 12.3, 14.5, "not told", "untold", rank=2),
        candidate("int8 in 14 layers", "outside the limits", 2.0, 1.9, 2.1, "faster", "good",
                  reason=reason, allow={"metric_drop": 0.013}),
        candidate("Half of the channels", "outside the limits", 1.0, 0.9, 1.1, "no difference",
                  "even", reason=reason),
        Candidate(label="OpenVINO", steps=({"backend": {"name": "openvino"}},), why="joins layers",
                  status="refused", reason="OpenVINO cannot convert a layer of this model, since "
                  "its operator has no counterpart there; take another engine for it."),
    ),
)
bench
""".strip()
BUSY = """
patch(others_share=0.7, spread=0.2, busiest=(BusyProcess(name="compiler", cores=0.9),))
bench.recipe = lab.Recipe(["fold"])  # a difference too small for a busy machine
""".strip()
READ = """
if (todo := Path("todo.py")).exists():
    exec(todo.read_text())
    todo.unlink()
bench.wait(120)
Path("state.json").write_text(json.dumps(bench.state["quality"]["state"]))
""".strip()
TABS = ("Layers", "Options", "Results", "Machine")


@pytest.fixture(scope="module")
def opened(served: tuple[Any, Any]) -> Any:
    """A workbench with a measured recipe, on a machine that says it is quiet."""
    with living_panel(served, "frame", [OPEN, READ]) as (shown, panel, read):
        shown.page.set_viewport_size({"width": 2300, "height": 1000})
        panel.locator(".pf-verdict.pf-good").wait_for(timeout=30_000)
        yield shown, panel, read


def each_view(page: Any, frame: Any) -> Any:
    """Each tab by its key, then the layer table with a chosen layer, and the sheet."""
    for key, tab in enumerate(TABS, 1):
        frame.focus()
        page.keyboard.press(str(key))
        page.wait_for_timeout(200)
        yield tab
    frame.focus()
    page.keyboard.press("1")
    frame.get_by_role("row").nth(3).click()
    page.wait_for_timeout(300)
    yield "a chosen layer"
    page.keyboard.press("Escape")
    frame.focus()
    page.keyboard.press("f")
    sheet = frame.get_by_role("dialog", name="Make it faster")
    sheet.get_by_text("5 of 5 candidates measured in 59 s").wait_for()
    yield "the sheet"
    page.keyboard.press("Escape")
    sheet.wait_for(state="hidden")


@pytest.mark.parametrize("theme", audit.THEMES)
def test_nothing_is_cut_off_and_all_text_can_be_read(opened: tuple[Any, Any, Read], theme: str):
    shown, panel, _ = opened
    frame = panel.locator(".pf-workbench")
    audit.dress(shown.page, theme)
    found: dict[str, list[str]] = {}
    for width in (900, 1200, 1920):
        audit.resize(frame, width)
        for view in each_view(shown.page, frame):
            keep(shown, f"frame-{width}-{theme[-5:].strip()}-{view}")
            assert frame.bounding_box()["height"] == 720
            problems = audit.cut_text(frame) + audit.faint_text(frame)
            if problems:
                found[f"{view}, {width} px"] = problems
    assert found == {}


def test_what_is_cut_off_or_faint_is_found(opened: tuple[Any, Any, Read]):
    shown, panel, _ = opened
    frame = panel.locator(".pf-workbench")
    audit.dress(shown.page, audit.THEMES[0])
    audit.resize(frame, 1200)
    name = frame.locator(".pf-model")
    for style, title, find in (
        ("width: 40px", None, audit.cut_text),
        ("position: relative; left: -60px", None, audit.cut_text),
        ("opacity: 0.5", "a title", audit.faint_text),
        ("color: #888", "a title", audit.faint_text),
    ):
        before = name.evaluate(
            """(element, [style, title]) => {
              const before = [element.style.cssText, element.title];
              element.style.cssText = style;
              element.title = title ?? "";
              return before;
            }""",
            [style, title],
        )
        assert any("pf-model: a_network" in text for text in find(frame)), style
        name.evaluate(
            "(element, [style, title]) => { Object.assign(element, { title, style }); }", before
        )
    assert audit.cut_text(frame) + audit.faint_text(frame) == []


def spoken(page: Any) -> list[tuple[str, str]]:
    """Role and name of what a screen reader is told, in the order of the page."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    known = {node["nodeId"]: node for node in nodes}
    ordered, ahead = [], [nodes[0]["nodeId"]]
    while ahead:
        node = known.get(ahead.pop(), {"childIds": [], "ignored": True})
        ahead += reversed(node.get("childIds", []))
        if not node["ignored"]:
            role, name = (node.get(key, {}).get("value", "") for key in ("role", "name"))
            ordered.append((role, name))
    return ordered


def test_a_screen_reader_reads_the_sentence_the_trust_and_the_table(
    opened: tuple[Any, Any, Read],
):
    shown, panel, _ = opened
    frame = panel.locator(".pf-workbench")
    audit.resize(frame, 1200)
    frame.focus()
    shown.page.keyboard.press("1")
    tree = spoken(shown.page)
    texts = [name for role, name in tree if role == "StaticText"]
    story = texts.index(frame.locator(".pf-times b").inner_text())
    assert "ms" in texts[story]
    assert "× faster" in texts[story + 1] and texts[story + 2].startswith("likely ")
    assert texts.index("Quiet: numbers hold") > story
    assert ("tab", "Layers") in tree and ("treegrid", "layers") in tree
    heads = [name for role, name in tree if role == "columnheader"]
    assert {"fold all Layer", "Runs as", "Before, ms", "Now, ms", "Faster", "Limited by"} <= set(
        heads
    )
    rows = [name for role, name in tree if role == "row"]
    limits = ("arithmetic", "memory", "call cost")  # by ceilings measured beside other tests
    assert any("Conv + " in name and any(limit in name for limit in limits) for name in rows)
    assert any("in 0" in name and "joined" in name for name in rows)
    chart = [name for role, name in tree if role in ("img", "image") and "where the time" in name]
    assert len(chart) == 1 and "the table below has every layer" in chart[0]


def test_on_a_busy_machine_nothing_small_is_claimed_and_waiting_is_the_first_button(
    served: tuple[Any, Any], opened: tuple[Any, Any, Read]
):
    shown, panel, read = opened
    frame = panel.locator(".pf-workbench")
    audit.resize(frame, 1200)
    (served[0].folder / "frame" / "todo.py").write_text(BUSY)
    assert read() == "busy"
    frame.locator(".pf-trust[data-trust=busy]").wait_for(timeout=30_000)
    story = frame.locator(".pf-story").inner_text()
    assert story.startswith("≈") and "cannot be told" in story
    assert "faster" not in story and "slower" not in story
    for theme in audit.THEMES:
        audit.dress(shown.page, theme)
        for view in each_view(shown.page, frame):
            keep(shown, f"frame-busy-{theme[-5:].strip()}-{view}")
            coloured = frame.locator(".pf-headline, .pf-pages").locator(
                ".pf-verdict.pf-good:visible, .pf-verdict.pf-bad:visible, "
                ".pf-here .pf-cell-bar-good:visible, .pf-here .pf-cell-bar-bad:visible"
            )
            assert coloured.count() == 0, view
            if view == "Results":
                assert frame.locator(".pf-result.pf-here.pf-untold:visible").count() == 1
            primary = frame.locator(".pf-primary:visible").all_inner_texts()
            expected = ["Wait for quiet", *(["Apply"] if view == "the sheet" else [])]
            assert primary == expected, view
            assert audit.cut_text(frame) + audit.faint_text(frame) == [], view
    times = frame.locator(".pf-rows .pf-is-now:visible").all_inner_texts()
    assert all(text in ("joined", "–", "0") or text.startswith("≈ ") for text in times)
    assert any(text.startswith("≈ ") for text in times)
    frame.focus()
    shown.page.keyboard.press("4")
    assert frame.get_by_text("0.9 cores").locator("visible=true").count() == 1
    shown.page.keyboard.press("5")
    assert frame.get_by_role("tab", name="Export").get_attribute("aria-selected") == "true"
    shown.page.keyboard.press("w")
    frame.get_by_text("Waiting for quiet …").wait_for(timeout=30_000)
    frame.get_by_role("button", name="Stop").click()
    frame.locator(".pf-trust[data-trust=busy]").get_by_text("Wait for quiet").wait_for()

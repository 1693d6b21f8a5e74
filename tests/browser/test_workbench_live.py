"""Panels in a living notebook: a page that is loaded again, two notebooks, a restarted Jupyter
kernel, panels that share, close and fail.
"""

from __future__ import annotations

import pytest

from tests.browser import jupyterlab
from tests.browser.living import OFFER_FOLD, keep, living, wait_for_report

pytestmark = jupyterlab.marks()

MODEL = """
def write_report(**report):
    Path("state.json").write_text(json.dumps(report))

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
work = lab.Workload(model, torch.randn(1, 3, 32, 32), name="net")
""".strip()
MODEL = OFFER_FOLD + MODEL
BENCH = "bench = lab.Workbench(work, rounds=1, seconds=0.1)\nbench.wait(60)\nbench"
BAR = """
import os
from paifuser_lab.progress import progress

os.environ["PAIFUSER_PROGRESS"] = "bar"
with progress("counting", 2) as counting:
    counting.advance()
""".strip()
READ_BENCH = (
    "bench.wait(60)\n"
    "write_report(selected=bench.selected, recipe=[step.label for step in bench.recipe])"
)
PROFILE = (
    "profile = lab.profile(work, runs=2, seconds=0.1, threads=1)\npanel = lab.show(profile)\ndots "
    "= lab.show(profile.roofline)"
)
READ_PANELS = "write_report(selected=panel.selected, dots=dots.selected)"
DO_AND_READ = """
if (todo := Path("todo.py")).exists():
    exec(todo.read_text())
    todo.unlink()
write_report(selected=panel.selected, dots=dots.selected)
""".strip()
MEMORY = "from paifuser_lab import profiler\ntimeline = lab.show(profiler.memory_timeline(work))"
FAIL = """
def fail(change):
    raise ValueError("of my own")

panel.observe(fail, "selected")
""".strip()


@pytest.fixture(scope="module")
def panels(served):
    """A page with a layer table, a roofline and a memory map; `do` runs code beside them and
    returns what is then selected.
    """
    cells = [MODEL, PROFILE, MEMORY, "display(panel, dots, timeline)", DO_AND_READ]
    with living(served, "panels", cells) as (shown, read):

        def do(code=""):
            (served[0].folder / "panels" / "todo.py").write_text(code)
            return read()

        yield shown, do


def row(shown, place, panel=0):
    return (
        shown.page.locator(".jp-OutputArea .pf-panel")
        .nth(panel)
        .locator(".pf-rows .pf-row")
        .nth(place)
    )


def fold(shown, read):
    """Take the offer of the whole model, which stands where no layer is selected, and wait until it
    is measured: rows that are drawn again under the mouse lose the click.
    """
    row(shown, 0).click()
    shown.page.get_by_label("what would help").get_by_role("button").filter(has_text="fold").click()
    shown.page.get_by_label("recipe, in the order in which it is applied").get_by_text(
        "fold batch-norm"
    ).wait_for()
    read()


def test_a_reloaded_page_shows_the_current_workbench_and_keeps_working(served):
    with living(served, "reload", [MODEL, BAR, BENCH, READ_BENCH]) as (shown, read):
        row(shown, 1).click()
        wait_for_report(read, {"selected": "0", "recipe": []})
        shown.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        saved = (served[0].folder / "reload" / "live.ipynb").read_text()
        assert saved.count("widget-view+json") == 1, "a bar that is over would be an error"
        shown.page.reload()
        shown.wait_until_ready()
        shown.page.locator(".jp-OutputArea .pf-rows .pf-chosen").wait_for(timeout=30_000)
        keep(shown, "live-reloaded")
        fold(shown, read)
        row(shown, 4).click()
        wait_for_report(read, {"selected": "3", "recipe": ["fold batch-norm"]})


def test_two_notebooks_at_once_do_not_disturb_each_other(served):
    cells = [MODEL, BENCH, READ_BENCH]
    with (
        living(served, "one", cells) as (one, read_one),
        living(served, "two", cells) as (two, read_two),
    ):
        row(two, 3).click()
        fold(one, read_one)
        row(one, 1).click()
        wait_for_report(read_one, {"selected": "0", "recipe": ["fold batch-norm"]})
        wait_for_report(read_two, {"selected": "2", "recipe": []})
        assert row(two, 3).get_attribute("aria-selected") == "true"


def test_a_panel_reports_a_restarted_jupyter_kernel_and_how_to_run_it_again(served):
    with living(served, "restart", [MODEL, f"{PROFILE}\npanel", READ_PANELS]) as (shown, read):
        shown.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.context.sessionContext.restartKernel()"
        )
        notice = shown.page.get_by_role("alert").filter(
            has_text="Jupyter kernel behind this panel is gone"
        )
        notice.wait_for(timeout=15_000)
        keep(shown, "live-restarted")
        shown.wait_until_ready()
        notice.get_by_role("button", name="Run the cells up to here again").click()
        notice.wait_for(state="detached", timeout=60_000)
        shown.wait_until_run(60)
        row(shown, 2).click()
        wait_for_report(read, {"selected": "1", "dots": "1"})
        # a page that does not let its application be called
        shown.page.evaluate(
            "() => { window.pfApp = window.jupyterapp; window.jupyterapp = undefined; }"
        )
        shown.page.evaluate(
            "() => window.pfApp.shell.currentWidget.context.sessionContext.restartKernel()"
        )
        shown.page.get_by_role("alert").filter(has_text="press Shift+Enter").wait_for(
            timeout=15_000
        )


def test_a_click_in_one_view_selects_in_another(panels):
    shown, do = panels
    row(shown, 4).click()
    dot = shown.page.locator('[aria-label="roofline"] [aria-selected=true]')
    dot.wait_for(state="attached", timeout=10_000)
    assert dot.get_attribute("aria-label").startswith("3")
    wait_for_report(do, {"selected": "3", "dots": "3"})


def test_a_click_in_the_memory_map_selects_in_the_table(panels):
    shown, do = panels
    row(shown, 1).click()
    boxes = shown.page.get_by_role("listbox", name="what is alive at the peak")
    boxes.locator('[aria-label^="3,"]').first.click()
    shown.page.locator(".pf-rows .pf-chosen").filter(has_text="3").wait_for(timeout=10_000)
    wait_for_report(do, {"selected": "3", "dots": "3"})
    moment = shown.page.get_by_role("slider", name="moment of the call")
    moment.focus()
    shown.page.keyboard.press("Home")
    assert "takes" in moment.get_attribute("aria-valuetext") and moment.get_attribute(
        "aria-valuenow"
    ) == moment.get_attribute("aria-valuemin")


def test_a_failing_user_callback_is_logged_and_the_panel_keeps_working(served):
    cells = [MODEL, f"{PROFILE}\n{FAIL}\ndisplay(panel, dots)", READ_PANELS]
    with living(served, "callback", cells) as (shown, read):
        logged = shown.page.evaluate_handle(
            "() => { const seen = []; const kernel = "
            "window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel;"
            " kernel.iopubMessage.connect((_, message) => {"
            " if (message.header.msg_type === 'error') seen.push(message.content.evalue); }); "
            "return seen; }"
        )
        row(shown, 4).click()
        wait_for_report(read, {"selected": "3", "dots": "3"})
        row(shown, 1).click()
        wait_for_report(read, {"selected": "0", "dots": "0"})
        assert "of my own" in logged.json_value()


def test_closing_a_panel_leaves_the_others_working(panels):
    shown, do = panels
    do("dots.close()")
    shown.page.locator('[aria-label="roofline"]').wait_for(state="detached", timeout=10_000)
    row(shown, 4).click()
    wait_for_report(lambda: do()["selected"], "3")
    row(shown, 1).click()
    wait_for_report(lambda: do()["selected"], "0")

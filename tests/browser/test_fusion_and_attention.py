"""The workbench's fusion and attention, as a person uses them; each time the Python side is read
back.
"""

from __future__ import annotations

import pytest

from tests.browser import jupyterlab
from tests.browser.living import HTML_NAME, keep, living_panel, open_segment

pytestmark = jupyterlab.marks()

OPEN = """
from dataclasses import replace
from paifuser_lab.jobs import queries
from torch.nn import functional as F

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, tokens):
        parts = (self.query, self.key, self.value)
        query, key, value = (part(tokens).unsqueeze(1) for part in parts)
        return F.scaled_dot_product_attention(query, key, value).squeeze(1)

class Tokens(nn.Module):
    def forward(self, image):
        return image.flatten(2).transpose(1, 2)

first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
body = nn.Sequential(first, nn.BatchNorm2d(16), nn.ReLU(), second, nn.ReLU())
model = nn.Sequential()
model.add_module(HTML_NAME, body)
model.add_module("tail", nn.Sequential(Tokens(), Attention(), nn.Linear(16, 4)))
work = lab.Workload(model.eval(), torch.randn(1, 3, 24, 24), name="net")
bench = lab.Workbench(work, rounds=2, seconds=0.2)
queries.QUERIES["attention"] = replace(queries.QUERIES["attention"], seconds=3.0)
bench
""".strip()
READ = """
state = bench.wait(120)
report = {"steps": [{step.kind: step.options} for step in bench.recipe]}
report |= {"error": state.error, "selected": bench.selected}
if state.fusions is not None:
    report["places"] = [site.place for site in state.fusions.fusions]
    report["switchable"] = [site.place for site in state.fusions.fusions if site.can_switch]
if state.variant is not None and state.variant.fusions is not None:
    report["standing"] = {site.place: site.standing for site in state.variant.fusions.fusions}
if state.attention_cost is not None:
    report["kind"], report["keeps"] = state.attention_cost.kind, state.attention_cost.keeps
    report["layers"] = [row.layer for row in state.attention_cost.sparse_layers]
Path("state.json").write_text(json.dumps(report))
""".strip()


@pytest.fixture(scope="module")
def opened(served):
    """One workbench for both tests; each leaves it with an empty recipe."""
    with living_panel(served, "fusion-and-attention", [OPEN, READ]) as shown_panel_read:
        yield shown_panel_read


def test_fusions_are_found_a_switch_fuses_a_site_and_undo_withdraws_it(opened):
    shown, panel, read = opened
    page = open_segment(panel, "Joined layers")
    page.get_by_role("button", name="Measure ·").click()
    report = read()
    assert report["error"] is None and f"{HTML_NAME}.0" in report["switchable"]
    switches = page.get_by_role("switch")
    assert switches.count() == len(report["places"])
    chips = panel.get_by_label("recipe, in the order in which it is applied")
    page.get_by_role("switch", name=f"fuse {HTML_NAME}.0").click()
    chips.get_by_text("fuse", exact=True).wait_for(timeout=20_000)
    report = read()
    assert (
        report["error"] is None
        and report["steps"][-1]["fuse"]["layers"] == [f"{HTML_NAME}.0"]
        and report["selected"] == f"{HTML_NAME}.0"
    )
    is_on = page.get_by_role("switch", name=f"fuse {HTML_NAME}.0").get_attribute("aria-checked")
    assert is_on == str(report["standing"][f"{HTML_NAME}.0"] == "fused").lower(), (
        "what was done is what is shown"
    )
    keep(shown, "fusion-switched")
    panel.get_by_role("button", name="Undo").click()
    chips.get_by_text("fuse", exact=True).wait_for(state="detached", timeout=20_000)
    assert read()["steps"] == []
    page.get_by_role("switch", checked=True).first.wait_for(state="detached", timeout=10_000)
    grid = page.get_by_role("grid")
    grid.focus()
    shown.page.keyboard.press("Home")
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("Enter")
    place = report["places"][1]
    fused = chips.get_by_text("fuse", exact=True)
    if place in report["switchable"]:
        fused.wait_for(timeout=20_000)
    report = read()
    assert report["selected"] == place and [step["fuse"]["layers"] for step in report["steps"]] in (
        [],
        [[place]],
    )
    page.get_by_label("filter layers").fill("conv")
    assert 0 < page.get_by_role("switch").count() <= len(report["places"])
    page.get_by_label("filter layers").fill("")
    everything = page.get_by_role("button", name="Join all that gain")
    if (
        everything.get_attribute("aria-disabled") == "false"
    ):  # else all that gain here are fused already
        everything.click()
        page.locator("button[aria-disabled=true]", has_text="Join all that gain").wait_for(
            timeout=20_000
        )
        report = read()
        assert report["steps"][-1]["fuse"] == {} and report["error"] is None
    if report["steps"]:
        page.get_by_role("button", name="Join none").click()
        fused.wait_for(state="detached", timeout=20_000)
    assert read()["steps"] == []


def test_the_attention_cost_is_measured_and_a_share_chosen_by_the_slider_is_a_step(opened):
    shown, panel, read = opened
    page = open_segment(panel, "Attention")
    page.get_by_label("kind of attention").select_option("block")
    page.get_by_role("button", name="Measure ·").click()
    report = read()
    assert report["error"] is None and report["kind"] == "block" and report["layers"] == ["tail.1"]
    slider = page.get_by_role("slider", name="share of the keys that is kept")
    assert slider.get_attribute("aria-valuetext").startswith("100 % of the keys kept")
    slider.focus()
    shown.page.keyboard.press("ArrowLeft")
    shown.page.keyboard.press("ArrowLeft")
    share = report["keeps"][2]
    assert slider.get_attribute("aria-valuetext").startswith(f"{100 * share:g} % of the keys kept")
    keep(shown, "attention-slid")
    page.get_by_role("checkbox", name="tail.1 takes part").uncheck()
    button = page.get_by_role("button", name="of the keys")
    assert button.get_attribute("aria-disabled") == "true", "no layer takes part"
    page.get_by_role("checkbox", name="tail.1 takes part").check()
    button.click()
    chip = (
        panel.get_by_label("recipe, in the order in which it is applied")
        .get_by_text("attention")
        .first
    )
    chip.wait_for(timeout=20_000)
    report = read()
    assert report["error"] is None and report["steps"] == [
        {"attention": {"kind": "block", "keep": share}}
    ]
    page.get_by_role("button", name=f"Keeps {100 * share:g} %").wait_for(timeout=10_000)
    keep(shown, "attention-kept")
    panel.get_by_role("button", name="Undo").click()
    chip.wait_for(state="detached", timeout=20_000)
    assert read()["steps"] == []

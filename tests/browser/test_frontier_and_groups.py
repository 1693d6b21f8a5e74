"""The workbench's frontier and its groups before the cut, as a person uses them; each time the
Python side is read back.
"""

from __future__ import annotations

import pytest

from tests.browser import jupyterlab
from tests.browser.living import HTML_NAME, keep, living_panel, open_segment

pytestmark = jupyterlab.marks()

OPEN = """
from dataclasses import replace
from paifuser_lab.jobs import queries

body = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU()
)
model = nn.Sequential()
model.add_module(HTML_NAME, body)
model.add_module("head", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)))
batches = [(torch.randn(8, 3, 16, 16), torch.randint(0, 4, (8,))) for _ in range(2)]
loss = nn.functional.cross_entropy
work = lab.Workload(
    model.eval(), torch.randn(4, 3, 16, 16), name="net", loss=loss, train=batches, test=batches
)
bench = lab.Workbench(work, rounds=2, seconds=0.2)
queries.QUERIES["allocation"] = replace(queries.QUERIES["allocation"], seconds=6.0)
bench
""".strip()
READ = """
state = bench.wait(120)
report = {"recipe": bench.recipe.to_text(), "steps": len(bench.recipe)}
report |= {"error": state.error, "selected": bench.selected}
if state.allocation is not None:
    report["points"] = [point.name for point in state.allocation.everything]
    report["proposed"] = state.allocation.points[state.allocation.chosen].name
    report["formats"] = [point.recipe_steps for point in state.allocation.everything]
    report["achieved"] = [point.achieved is not None for point in state.allocation.everything]
if state.variant is not None:
    report["parameters"] = sum(weight.numel() for weight in state.variant.module.parameters())
if state.cut_cost is not None:
    report["whole"] = state.cut_cost.predict(state.cut_cost.full).parameters
Path("state.json").write_text(json.dumps(report))
""".strip()


@pytest.fixture(scope="module")
def opened(served):
    """One workbench for both tests; each leaves it with an empty recipe."""
    with living_panel(served, "frontier-and-groups", [OPEN, READ]) as shown_panel_read:
        yield shown_panel_read


def test_a_frontier_is_computed_and_a_chosen_point_is_applied_and_measured(opened):
    shown, panel, read = opened
    page = open_segment(panel, "Best mixtures")
    panel.get_by_label("what is limited").select_option("size_bytes")
    panel.get_by_label("at most", exact=True).fill("40")
    page.get_by_role("button", name="Measure · 6 s").click()
    page.get_by_role("button", name="Stop").wait_for(timeout=20_000)
    report = read()
    assert report["error"] is None and len(report["points"]) > 3 and not any(report["achieved"])
    dots = panel.get_by_role("listbox", name="choices of formats")
    assert dots.get_by_role("option").count() == len(report["points"])
    proposed = page.get_by_role("heading", name=" best for what was asked")
    proposed.wait_for(timeout=10_000)
    assert proposed.inner_text().startswith(report["proposed"]) and report["steps"] == 0
    dots.focus()
    shown.page.keyboard.press("Home")
    shown.page.keyboard.press("Enter")
    panel.get_by_role("heading", name=f"{report['points'][0]} ").wait_for(timeout=10_000)
    report = read()
    assert report["error"] is None and report["achieved"][0] and sum(report["achieved"]) == 1
    table = panel.get_by_role("table", name="the chosen point, predicted and achieved")
    table.get_by_role("row", name="speed-up").get_by_role("cell").filter(has_text="%").wait_for(
        timeout=10_000
    )
    assert "…" not in table.inner_text()
    assert (
        report["steps"] == 1 and panel.locator(".pf-allocation [aria-selected=true]").count() == 1
    )
    keep(shown, "frontier-achieved")
    panel.get_by_role("button", name="Undo").click()
    assert read()["steps"] == 0


def test_groups_are_shown_before_the_cut_and_predictions_while_the_line_is_dragged(opened):
    shown, panel, read = opened
    page = open_segment(panel, "Channels")
    page.get_by_role("button", name="Measure ·").click()
    read()
    group = page.get_by_role("region", name="what goes together")
    group.get_by_text("Goes together: 16 channels").wait_for(timeout=20_000)
    members = group.get_by_role("button").all_inner_texts()
    assert any(text.startswith(f"{HTML_NAME}.1") for text in members) and any(
        text.startswith(f"{HTML_NAME}.3") for text in members
    )
    line = page.get_by_role("slider", name=f"threshold of {HTML_NAME}.0")
    table = page.get_by_role("table", name="what the cut gives")
    assert (
        table.get_by_role("row", name="parameters").get_by_role("cell").first.inner_text() == "0%"
    )
    box = line.bounding_box()
    mouse, (x, y) = shown.page.mouse, (box["x"] + 150, box["y"] + box["height"] - 24)
    mouse.move(x, y)
    mouse.down()
    predicted = []
    for step in range(60):
        mouse.move(x, y - 2 * step)
        predicted.append(
            table.get_by_role("row", name="parameters").get_by_role("cell").first.inner_text()
        )
    assert (
        len(set(predicted)) > 3 and "predicted" in page.locator(".pf-importance-one").inner_text()
    )
    keep(shown, "importance-dragging")
    mouse.up()
    panel.get_by_label("recipe, in the order in which it is applied").get_by_text("prune").wait_for(
        timeout=20_000
    )
    report = read()
    assert report["error"] is None and report["steps"] == 1
    wanted = f"−{100 * (1 - report['parameters'] / report['whole']):.1f}%"
    cells = table.get_by_role("row", name="parameters").get_by_role("cell")
    assert cells.all_inner_texts() == [wanted, wanted, "0%"], "what was predicted is what was cut"
    assert "ms" in table.get_by_role("row", name="latency").get_by_role("cell").nth(1).inner_text()
    keep(shown, "importance-achieved")
    kept = int(line.get_attribute("aria-valuetext").split()[0])
    line.press("ArrowUp")
    page.locator(f'[role=slider][aria-valuetext^="{kept - 1} "]').wait_for(timeout=10_000)
    group.get_by_role("button").filter(has_text=f"{HTML_NAME}.3").first.click()
    assert read()["selected"] == f"{HTML_NAME}.3"


def test_the_threshold_beside_a_layer_has_that_layer_s_stops_after_one_that_has_none(opened):
    shown, panel, _ = opened
    panel.get_by_role("tab", name="Layers").click()
    line = panel.locator(".pf-detail-channels").get_by_role("slider")

    def choose(layer):
        title = shown.page.get_by_title(layer, exact=True)
        panel.get_by_role("row").filter(has=title).first.click()

    choose(f"{HTML_NAME}.0")
    panel.locator('.pf-detail-channels [aria-valuemax="15"]').wait_for(timeout=10_000)
    choose(f"{HTML_NAME}.2")
    line.wait_for(state="hidden", timeout=10_000)
    shown.page.wait_for_timeout(200)  # the page has seen that it is hidden
    choose("head.2")
    line.wait_for(timeout=10_000)
    panel.locator('.pf-detail-channels [aria-valuemax="0"]').wait_for(timeout=10_000)

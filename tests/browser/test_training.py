"""The monitor of a training, and that of an accelerated loop, as a person sees them while they run:
a training that is stopped leaves its monitor as it was in the middle.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser import audit, jupyterlab
from tests.browser.living import keep, living

pytestmark = jupyterlab.marks()

OPEN = """
def work():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 8, 3), nn.ReLU()
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 4))
    model.add_module(HTML_NAME, nn.Linear(4, 4))
    labels = torch.arange(32) % 4
    images = torch.randn(32, 1, 48, 48) + labels.view(-1, 1, 1, 1)
    data = [(images, labels)] * 12
    return lab.Workload(model, images, name="<b>net", loss=nn.functional.cross_entropy, train=data)

stopped = lab.TrainingMonitor()
stopped
""".strip()
STOP = """
calls = iter(range(20))
try:
    lab.train(work(), epochs=2, learning_rate=0.01, monitor=stopped, monitor_every_s=0,
              should_stop=lambda: next(calls, None) is None)
except lab.PaifuserError:
    pass
whole = lab.TrainingMonitor()
whole
""".strip()
WHOLE = """
lab.train(work(), epochs=2, learning_rate=0.01, precision="bf16", fp32_until=0.3, monitor=whole,
          monitor_every_s=0)
panel = lab.show(lab.enable(precision=None, threads=False))
panel
""".strip()
ACCELERATED = """
torch.manual_seed(0)
subject = work()
model, criterion = subject.model.train(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())
for step in range(40):
    images, labels = subject.train[0]
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
""".strip()
END = """
from paifuser_lab.records import AccelerationStatus, SwitchStatus

lab.disable()
Path("state.json").write_text("{}")
figures = {"without_steps_per_s": 41.6, "with_steps_per_s": 61.2, "without_bytes": 575_000_000,
           "with_bytes": 561_000_000}
lab.show(AccelerationStatus(
    is_enabled=True, model="<b>Net", optimizer="AdamW", steps=140, judged_steps=90,
    judging_share=0.021, clock="cpu", notes=("the loss is nan; it began in head",),
    rows=(
        SwitchStatus(name="bf16", state="on", ratio=2.1, interval=(1.9, 2.2), **figures,
                     why="faster by more than its interval beside channels_last"),
        SwitchStatus(name="model_quantization", state="taken back", ratio=0.8,
                     interval=(0.7, 1.02), **figures,
                     why="the loss left the band of the reference (2.31 against 1.94)"),
        SwitchStatus(name="fused_optimizer", state="judging"),
        SwitchStatus(name="compile", state="waiting"),
        SwitchStatus(name="threads=2", state="not offered",
                     why="OMP_NUM_THREADS sets the number of threads"),
    ),
))
""".strip()


@pytest.fixture(scope="module")
def opened(served: tuple[Any, Any]) -> Any:
    with living(served, "training", [OPEN, STOP, WHOLE, ACCELERATED, END]) as (shown, _):
        shown.page.set_viewport_size({"width": 1500, "height": 1200})
        yield shown
        assert shown.page.locator("img[src=x]").count() == 0


def panel_of(shown: Any, place: int) -> Any:
    panel = shown.page.locator(".pf-panel").nth(place)
    panel.scroll_into_view_if_needed()
    return panel


def test_a_training_that_was_stopped_says_so_with_its_loss_throughput_and_memory(opened: Any):
    panel = panel_of(opened, 0)
    spoken = panel.get_by_role("status")
    assert re.match(r"Stopped: step \d+ of 24, loss \d", spoken.inner_text())
    shown = panel.locator(".pf-line").inner_text()
    assert re.match(r"Stopped: step 20 of 24, loss \d", shown), "what is seen is never behind"
    facts = panel.locator(".pf-readout").first.inner_text()
    assert re.search(r"\d \w*\s*examples a second", facts), facts
    assert re.search(r"[\d.]+ [MG]B peak memory", facts), facts
    slider = panel.get_by_role("slider", name="step of the training")
    slider.focus()
    opened.page.keyboard.press("End")
    assert "loss" in slider.get_attribute("aria-valuetext")
    assert "<b>net" in panel.get_by_role("heading").first.inner_text()


def test_a_training_that_has_ended_says_so_and_what_was_switched(opened: Any):
    panel = panel_of(opened, 1)
    assert panel.get_by_role("status").inner_text().startswith("Done: step 24 of 24, loss")
    switched = panel.get_by_role("list", name="what was switched")
    assert "bf16" in switched.inner_text()
    epochs = panel.get_by_role("table", name="epochs")
    assert epochs.get_by_role("row").count() == 3, "a row for each epoch"
    field = panel.get_by_role("combobox", name="layer of the gradient sizes")
    field.select_option(label="0")
    sizes = panel.get_by_role("img", name=re.compile("^gradient sizes of 0 over the steps"))
    assert sizes.locator(".pf-pic-heat").count() > 0


def test_an_accelerated_loop_shows_every_switch_with_its_state_and_its_end(opened: Any):
    panel = panel_of(opened, 2)
    assert (
        panel.get_by_role("status").inner_text().startswith("Acceleration ended after step 39 with")
    )
    table = panel.get_by_role("table", name="switches")
    names = [head.inner_text() for head in table.get_by_role("rowheader").all()]
    assert names == ["compile", "channels_last", "fused_optimizer", "memory_pool"]
    first = table.get_by_role("row", name=re.compile("channels_last"))
    assert re.search("judging|on|taken back", first.inner_text())
    drawn = panel.get_by_label("how many times faster a step is with each switch")
    assert drawn.count() == 1, "a mark of each state, and a bar of those that were judged"


@pytest.mark.parametrize("theme", audit.THEMES)
def test_nothing_of_the_monitors_is_cut_off_and_all_text_can_be_read(opened: Any, theme: str):
    audit.dress(opened.page, theme)
    for place, name in enumerate(("stopped", "done", "accelerated", "switches")):
        panel = panel_of(opened, place)
        for width in (1000, 640):
            audit.resize(panel, width)
            keep(opened, f"training-{name}-{width}-{theme[-5:].strip()}")
            assert audit.cut_text(panel) + audit.faint_text(panel) == [], (name, width)

"""The monitor of an accelerated loop is sent what the page draws, follows it, has a static twin."""

from __future__ import annotations

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.accelerate import acceleration
from paifuser_lab.records import AccelerationStatus, SwitchStatus
from paifuser_lab.widgets.tabs.acceleration import AccelerationMonitor
from tests.support.training_loops import Digits, metered, trained

TWO_SWITCHES = {"precision": None, "memory_pool": False, "threads": False, "compile": False}
STATUS = AccelerationStatus(
    is_enabled=True,
    model="<b>Net",
    optimizer="SGD",
    steps=40,
    rows=(
        SwitchStatus(name="bf16", state="on", ratio=1.5, interval=(1.4, 1.6), why="faster"),
        SwitchStatus(name="compile", state="waiting"),
    ),
)


def test_a_status_is_shown_with_its_rows_and_what_is_said_of_them():
    panel = lab.show(STATUS)
    assert isinstance(panel, AccelerationMonitor)
    (table,) = panel.data["tables"]
    assert [row["×"] for row in table["rows"]] == ["1.50 (1.40–1.60)", "–"]
    assert panel.data["title"] == STATUS.title
    assert panel.data["spoken"]["line"] == "Step 40: on bf16"
    panel.close()


@pytest.mark.parametrize("is_static", [False, True])
def test_the_panel_of_enable_follows_the_loop_to_its_end(monkeypatch, is_static):
    if is_static:
        monkeypatch.setenv("PAIFUSER_STATIC", "1")
    monkeypatch.setattr(acceleration, "FOLLOWED_EVERY_S", 0.0)
    torch.manual_seed(0)
    model = Digits()
    optimizer = torch.optim.Adam(model.parameters())
    with metered(monkeypatch, lambda way: 0.5 ** len(way)) as meter:
        monitor = lab.show(lab.enable(**TWO_SWITCHES))
        assert monitor.record.steps == 0 and monitor.record.is_enabled
        trained(model, optimizer, 60, work=meter.work)
        assert monitor.record.on == ("channels_last", "fused_optimizer")
        step = 0 if is_static else 59
        assert monitor.data["spoken"]["line"].startswith(f"Step {step}: on")
        lab.disable()
    assert not monitor.record.is_enabled and monitor.record.rows
    assert monitor.data["spoken"]["line"].startswith("Acceleration ended") != is_static


def test_what_showing_takes_is_not_the_steps_time_and_comes_seldom(monkeypatch):
    torch.manual_seed(0)
    model, shown = Digits(), []
    optimizer = torch.optim.Adam(model.parameters())

    def show(status):
        shown.append(status)
        meter.seconds += 1000

    with metered(monkeypatch, lambda way: 0.5 ** len(way)) as meter:
        lab.enable(**TWO_SWITCHES).follow(show)
        monkeypatch.setattr(acceleration, "FOLLOWED_EVERY_S", 0.0)
        trained(model, optimizer, 30, work=meter.work)
        assert len(shown) == 29
        monkeypatch.setattr(acceleration, "FOLLOWED_EVERY_S", 1e6)
        trained(model, optimizer, 30, first=30, work=meter.work)
        assert len(shown) == 29
        row = lab.status()["channels_last"]
    assert (row.without_steps_per_s, row.with_steps_per_s, row.ratio) == (1.0, 2.0, 2.0)

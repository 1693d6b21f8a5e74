"""The monitor of a training is sent what the page draws, and has a static twin."""

from __future__ import annotations

import math

import numpy
import pytest

import paifuser_lab as lab
from paifuser_lab.records import GradientRange, TrainingEvent, TrainingRun
from paifuser_lab.widgets.tabs.training import MOST_POINTS, pack


def run(steps: int = 6, **more) -> TrainingRun:
    columns = ("losses", "rates", "scales", "gradient_norms", "step_ms", "wait_ms")
    columns += ("underflow_shares", "overflow_shares")
    known = {name: tuple(float(step + 1) for step in range(steps)) for name in columns}
    flags = tuple(step >= steps // 2 for step in range(steps))
    return TrainingRun(
        workload="net",
        machine="a machine",
        steps=2 * steps,
        **known
        | {
            "is_lower": flags,
            "is_skipped": tuple(step == 1 for step in range(steps)),
            "layers": ("<b>conv</b>", "head"),
            "ranges": (GradientRange(step=0, counts=((1,) * 25, (2,) + (0,) * 24)),),
            "events": (TrainingEvent(step=3, what="bf16 from here"),),
        }
        | more,
    )


def test_the_page_is_sent_every_curve_switch_and_range():
    data = pack(run())
    losses = numpy.frombuffer(data["columns"]["loss"], "<f4")
    assert losses.tolist() == [1, 2, 3, 4, 5, 6] and data["every"] == 1
    assert data["lower"] == [[3, 6]] and data["skipped"] == [1]
    assert data["events"] == [{"step": 3, "what": "bf16 from here"}]
    assert numpy.frombuffer(data["ranges"], "<i4").tolist() == [1] * 25 + [2] + [0] * 24
    assert data["dead"] == ["head"] and (data["done"], data["steps"]) == (6, 12)


@pytest.mark.parametrize("steps", [MOST_POINTS, MOST_POINTS + 1, 25_000])
def test_long_curves_are_thinned_to_means_and_keep_their_length_in_steps(steps):
    data = pack(run(steps, losses=(math.nan,) + (2.0,) * (steps - 1)))
    losses = numpy.frombuffer(data["columns"]["loss"], "<f4")
    assert len(losses) <= MOST_POINTS and len(losses) * data["every"] >= steps
    assert set(losses[1:].tolist()) == {2.0}


def test_the_monitor_follows_the_records_it_is_called_with(monkeypatch):
    monitor = lab.TrainingMonitor()
    assert "No step has been done yet." in monitor._repr_mimebundle_()[0]["text/html"]
    monitor(run())
    assert monitor.data["done"] == 6
    monitor(run(7))
    assert monitor.data["done"] == 7 and monitor.record.steps == 14
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    shown = monitor._repr_mimebundle_()
    assert "image/png" in shown and "bf16 from here" in shown["text/html"]
    assert "<b>conv" not in shown["text/html"]


def test_a_training_is_shown_by_its_record():
    assert isinstance(lab.show(run()), lab.TrainingMonitor)

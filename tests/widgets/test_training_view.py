"""The monitor of a training is sent what the page draws, and has a static twin."""

from __future__ import annotations

import math

import numpy
import pytest

import paifuser_lab as lab
from paifuser_lab.records import GradientRange, ParallelReport, TrainingEvent, TrainingRun
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


def ranks(count: int) -> tuple[ParallelReport, ...]:
    return tuple(
        ParallelReport(
            strategy="<i>averaged</i>",
            rank=rank,
            world=count,
            sent_bytes=(1000, 3000),
            computed_ms=(3.0, 3.0),
            waited_ms=(1.0, 1.0),
        )
        for rank in range(count)
    )


def test_every_rank_has_a_row_live_and_static(monkeypatch):
    assert pack(run())["ranks"] == []
    known = run(ranks=ranks(2))
    data = pack(known)
    assert data["ranks_title"] == "2 ranks · <i>averaged</i>"
    assert [row["cells"]["rank"] for row in data["ranks"]] == ["0", "1"]
    cells = data["ranks"][1]["cells"]
    assert (cells["steps"], cells["sent"], cells["sent a step"]) == ("2", "4 kB", "2 kB")
    assert (cells["waits, ms a step"], cells["waited"]) == ("1", "25%")
    assert (data["ranks"][1]["computed"], data["ranks"][1]["waited"]) == (3.0, 1.0)
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    monitor = lab.TrainingMonitor(known)
    twin = monitor.twin()
    assert "2 ranks · &lt;i&gt;averaged" in twin and twin.count("4 kB") == 2
    assert "2 ranks" in str(known)
    labels = [text.get_text() for axes in lab.figure(known).axes for text in axes.texts]
    assert labels.count("4 kB sent, waited 25%") == 2
    many = lab.figure(run(ranks=ranks(20))).axes[-1]
    assert len(many.get_yticks()) == 16 and "4 more ranks" in many.get_xlabel()


def test_a_training_is_shown_by_its_record():
    assert isinstance(lab.show(run()), lab.TrainingMonitor)

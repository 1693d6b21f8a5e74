"""The monitor of a training is sent what the page draws, and has a static twin."""

from __future__ import annotations

import math

import numpy
import pytest

import paifuser_lab as lab
from paifuser_lab.records import GradientRange, ParallelReport, TrainingEvent, TrainingRun
from paifuser_lab.views.training_run import (
    MOST_POINTS,
    picture,
    range_of,
    range_words,
    shades,
    spans,
)
from paifuser_lab.widgets.wire import pictured


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


def test_a_picture_has_every_curve_switch_and_range():
    shown = picture(run())
    assert [row[0].y.label for row in shown.rows] == [
        "loss", "learning rate", "gradient norm", "loss scale", "ms a step",
    ]  # fmt: skip
    tint, precision, skipped, loss, switches = shown.rows[0][0].marks
    assert (list(tint.x), list(tint.x2), precision.texts) == ([3], [5], ["fp32"])
    assert list(skipped.x) == [1] and list(loss.y) == [1, 2, 3, 4, 5, 6]
    assert (switches.at, switches.names) == ([3], ["1"])
    assert shown.items == (("1  step 3", "bf16 from here"),)
    assert [one.title for _, one in shown.by_layer] == [
        "all layers", "<b>conv</b>", "head · no gradient",
    ]  # fmt: skip
    assert "its gradient is zero" in shown.by_layer[2][1].sentence
    assert shown.cursor.tips.text(5).startswith("step 6\n6 loss")
    assert shown.spoken.line == "Stopped: step 6 of 12, loss 6; last switch: bf16 from here"
    assert "loss scale" not in [row[0].y.label for row in picture(run(scales=(1.0,) * 6)).rows]


@pytest.mark.parametrize("steps", [MOST_POINTS, MOST_POINTS + 1, 25_000])
def test_long_curves_are_thinned_to_means_and_keep_their_length_in_steps(steps):
    shown = picture(run(steps, losses=(math.nan,) + (2.0,) * (steps - 1)))
    at, losses = shown.cursor.at, shown.cursor.tips.figures[0].values
    assert len(losses) <= MOST_POINTS and at[-1] >= steps - 2 * (at[1] - at[0])
    assert set(losses[1:]) == {2.0}
    sent = pictured(shown)["columns"]
    assert sum(map(len, sent)) < 8 * 4 * MOST_POINTS, "curves and steps are sent once"


def test_a_few_steps_far_above_the_others_do_not_flatten_a_curve():
    values = [1.0] * 999 + [1e9]
    assert range_of(values, is_log=False)[1] < 2 and range_of(values, is_log=True)[1] < 2
    assert range_of([math.nan], is_log=True) == (1, 10)
    low, high = range_of([-125.0, -120.0], is_log=False)
    assert low == -125 and high > -120


def test_shades_are_thirds_of_each_other_and_nothing_has_none():
    counts = numpy.array([[5.0, 90, 9, 0], [1, 0, 0, 0]])
    assert list(shades(counts)) == [9, 7, 0, 0, 0, 0]
    assert range_words(counts[0]) == "sizes from 2^-40 to 2^-36, 5% zero"


def test_stretches_have_their_first_and_last_step():
    assert spans((True, False, True, True)) == ([0, 2], [0, 3])
    assert spans((False,)) == ([], [])


def test_the_monitor_follows_the_records_it_is_called_with(monkeypatch):
    monitor = lab.TrainingMonitor()
    assert "No step has been done yet." in monitor._repr_mimebundle_()[0]["text/html"]
    monitor(run())
    assert "step 6 of 12" in monitor.data["spoken"]["line"]
    monitor(run(7))
    assert "step 7 of 14" in monitor.data["spoken"]["line"] and monitor.record.steps == 14
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    shown = monitor._repr_mimebundle_()
    assert 'src="data:image/png' in shown["text/html"] and "bf16 from here" in shown["text/html"]


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
    assert not picture(run()).below and len(picture(run()).tables) == 1
    known = run(ranks=ranks(2))
    table, computes = picture(known).tables[0], picture(known).below[0].panels[0].marks[0]
    assert table.captions == ("2 ranks · <i>averaged</i>",) and list(computes.x2) == [3.0, 3.0]
    assert [row["rank"] for row in table.rows] == ["0", "1"]
    cells = table.rows[1]
    assert (cells["steps"], cells["sent"], cells["sent a step"]) == ("2", "4 kB", "2 kB")
    assert (cells["waits, ms a step"], cells["waited"]) == ("1", "25%")
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    monitor = lab.TrainingMonitor(known)
    twin = monitor.twin()
    assert "2 ranks · &lt;i&gt;averaged" in twin and twin.count("4 kB") == 2
    assert "2 ranks" in str(known)
    labels = [text.get_text() for axes in lab.figure(known).axes for text in axes.texts]
    assert labels.count("4 kB sent, waited 25%") == 2
    many = next(
        axes for axes in lab.figure(run(ranks=ranks(20))).axes if "computed" in axes.get_xlabel()
    )
    assert len(many.get_yticks()) == 16 and "4 more ranks" in many.get_xlabel()


def test_a_training_is_shown_by_its_record():
    assert isinstance(lab.show(run()), lab.TrainingMonitor)

"""The picture of a search: who is unbeaten, when the best was found, which choices mattered."""

import pytest

from paifuser_lab.views.picture import Boxes, Dots, Line, Rules
from paifuser_lab.views.search import picture
from tests.support.drawn import RECORDS

SEARCH = RECORDS["SearchResult"]


def marks(panel, kind):
    return [mark for mark in panel.marks if isinstance(mark, kind)]


def test_points_are_unbeaten_beaten_or_past_a_limit_by_shape_and_colour():
    first = picture(SEARCH).panels[0]
    dots = {dot.shape: (dot.tone, list(dot.key)) for dot in marks(first, Dots)}
    assert dots == {
        "disc": ("good", ["$x_{$ fast", "exact"]),
        "ring": ("faint", ["beaten"]),
        "cross": ("bad", ["past"]),
    }
    rules = {rule.axis: rule.at for rule in marks(first, Rules)}
    assert rules == {"y": [0.01], "x": [10.0]}
    (line,) = marks(first, Line)
    assert list(zip(line.x, line.y, strict=True)) == [(2.5, 0.008), (5.0, 0.0)]
    assert "too much is lost" in marks(first, Dots)[2].tips.text(0)


def test_what_lost_within_the_limits_is_beaten_and_no_breach():
    slower = SEARCH.rows[0].model_copy(
        update={"label": "slower", "status": "lost", "rank": None, "latency_ms": 20.0}
    )
    drawn = picture(SEARCH.model_copy(update={"rows": (*SEARCH.rows, slower)}))
    (ring,) = [dot for dot in marks(drawn.panels[0], Dots) if dot.shape == "ring"]
    assert "slower" in list(ring.key)


def test_the_best_so_far_rises_at_the_seconds_when_it_was_measured_and_never_falls():
    (line,) = marks(picture(SEARCH).panels[1], Line)
    assert list(line.x) == [0.0, 10.0, 20.0, 30.0, 41.0]
    assert list(line.y) == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_choices_that_explain_nothing_are_left_out_of_the_importance():
    panel = picture(SEARCH).panels[2]
    assert list(panel.y.names) == ["engine", "channels"]
    assert list(marks(panel, Boxes)[0].x2) == [0.7, 0.3]


def test_a_search_for_throughput_says_of_which_batches_the_latency_is():
    drawn = picture(SEARCH.model_copy(update={"goal": "throughput", "batch": 8}))
    assert drawn.panels[0].x.label == "latency, ms, batches of 8"


@pytest.mark.parametrize("goal", ["size", "memory"])
def test_a_search_for_less_shows_bytes_against_those_it_came_with(goal):
    field = {"size": "size_bytes", "memory": "peak_bytes"}[goal]
    rows = [row.model_copy(update={field: 1000 * (i + 1)}) for i, row in enumerate(SEARCH.rows[:3])]
    update = {"goal": goal, f"baseline_{field}": 8000, "rows": tuple(rows)}
    drawn = picture(SEARCH.model_copy(update=update))
    assert "memory" in drawn.panels[0].x.label or "size" in drawn.panels[0].x.label
    assert marks(drawn.panels[0], Rules)[1].at == [8000]
    assert max(marks(drawn.panels[1], Line)[0].y) == 8.0


def test_what_was_refused_is_listed_with_its_reason_and_nothing_found_is_said():
    assert picture(SEARCH).items == (("no", "fails"),)
    empty = SEARCH.model_copy(update={"rows": (), "importance": {}, "reason": "Nothing is faster."})
    assert picture(empty).panels == () and picture(empty).sentence == "Nothing is faster."

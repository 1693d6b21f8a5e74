"""`benchmarks search`: which points each way measures, and what is said of what they return."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import search
from benchmarks.measured import Records
from benchmarks.pages import block
from benchmarks.search import COMBINED, GRID, OURS, WAYS, SearchBench, SearchedRow
from paifuser_lab.planner.space import Point, Space
from paifuser_lab.records import Candidate, Measurement, Record
from tests.planner.conftest import row
from tests.support.drawn import comparison_of, search_result

MODEL = "resnet18-digits-tiny"
FOLDING = "they follow convolutions"
STEP: Any = ({"precision": {"default": "bf16"}}, "half the bytes")
SPACE = Space(
    {
        "engine": ("as it is", "channels last", "replayed", "openvino"),
        "format": ("fp32", "bf16", "int8"),
        "keep": (1.0, 0.5),
        "is_trained": (False,),
        "memory": ("as it is", "reuse"),
        "threads": (0, 1),
    },
    FOLDING,
    {"bf16": STEP, "int8": STEP},
)
ALONE = [Point(), *(Point(format=name) for name in ("bf16", "int8"))]


def points(way: str, space: Space = SPACE, seed: int = 0, **rows: Candidate) -> list[Point]:
    """What a way measures where each format alone has the row of its name."""
    order = WAYS[way](seed, 0.01)
    assert order is not None
    return list(order(space, {Point(format=name): row for name, row in rows.items()}))


def test_single_steps_change_one_axis_and_those_without_folding_leave_out_the_model_as_it_is():
    singles = points("best single step")
    assert singles[0] == Point() and len(singles) == len({*singles}) == 1 + 3 + 2 + 1 + 1 + 1
    assert Point(engine="openvino") in singles
    assert Point(engine="openvino", format="int8") not in singles
    assert Point() not in points("best single step", replace(SPACE, folding=""))


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ({"bf16": row(speedup=1.5), "int8": row(speedup=2.5)}, "int8"),
        ({"bf16": row(speedup=1.5), "int8": row(speedup=2.5, metric_lost=0.02)}, "bf16"),
        ({"bf16": row(speedup=1.5, word="even"), "int8": row(status="refused")}, "fp32"),
    ],
)
def test_an_engine_is_chosen_with_the_fastest_format_within_the_limit(rows, chosen):
    measured = points("format then engine", **rows)
    assert measured[:3] == ALONE
    engines = [Point(engine=name, format=chosen) for name in SPACE.axes["engine"]]
    assert measured[3:] == [point for point in engines if SPACE.is_possible(point)]
    assert Point() not in points("format then engine", replace(SPACE, folding=""), **rows)


def test_the_grid_has_each_possible_pair_of_format_and_engine_once():
    grid = points(GRID)
    pairs = {(point.engine, point.format) for point in grid}
    assert (
        len(grid) == len(pairs) and ("openvino", "int8") in pairs and ("as it is", "fp32") in pairs
    )
    assert all(SPACE.is_possible(point) for point in grid)


def test_combinations_are_of_parts_that_could_be_measured():
    rows: dict[Point, Candidate] = {}
    for point in WAYS[COMBINED](0, 0.01)(SPACE, rows):
        is_refused = point.memory == "reuse" or point == Point(engine="openvino", format="int8")
        rows[point] = row(status="refused") if is_refused else row(speedup=2.0)
    singles = [change.point for change in SPACE.singles()]
    assert [*rows][: len(singles)] == singles
    combined = [*rows][len(singles) :]
    assert Point(engine="channels last", format="int8", keep=0.5) in combined
    assert Point(engine="openvino", format="bf16", threads=1) in combined
    for point in combined:
        assert point.memory == "as it is" and (point.engine, point.format) != ("openvino", "int8")


def test_random_points_are_all_of_the_space_in_an_order_of_their_seed():
    drawn = [points("random search", seed=seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all({*each} == {*SPACE.points()} and len({*each}) == len(each) for each in drawn)


def test_tpe_goes_on_from_what_it_measured_and_suggests_nothing_twice():
    def drawn(format: str) -> list[Point]:
        rows: dict[Point, Candidate] = {}
        for point in WAYS["TPE"](0, 0.01)(SPACE, rows):
            rows[point] = row(speedup=4.0 if point.format == format else 1.1)
            if len(rows) == 30:
                break
        return list(rows)

    first, other = drawn("int8"), drawn("bf16")
    assert first[:5] == other[:5] != first and len({*first}) == len(first)
    assert all(SPACE.is_possible(point) for point in first)
    late = [point.format for point in first[10:]]
    assert late.count("int8") > late.count("bf16")


def test_the_volume_is_what_candidates_within_the_limit_dominate():
    net = searched(OURS, 4.0).model_copy(
        update={
            "seconds": 60.0,
            "measured": ((10, 2.0, 0.0), (25, 4.0, 0.005), (50, 5.0, 0.02), (55, 1.0, 0.0)),
        }
    )
    assert net.volume(1 / 3) == pytest.approx(0.5)  # half of the time at no loss
    assert net.volume(1.0) == pytest.approx(0.5 * 0.75 + 0.5 * 0.5)
    assert searched(OURS, 4.0).volume(1.0) == 0


def test_the_rank_correlation_is_that_of_predicted_and_measured_combinations():
    pairs = (*((float(at), 10.0 - at) for at in (0, 2, 3, 4, 5)), (1 + 1e-12, 0.0))
    net = searched(OURS, 4.0).model_copy(update={"predicted": pairs})
    (*_, sentence) = SearchBench(seconds=1, seeds=1, rows=(net,)).sentences
    assert sentence.endswith("of 5 combinations, predicted and measured: rank correlation -1.00.")
    few = net.model_copy(update={"predicted": pairs[:4]})
    assert not any(
        "rank" in line for line in SearchBench(seconds=1, seeds=1, rows=(few,)).sentences
    )


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Searches run here, among the folded model alone; returns what each was started with."""
    begun: list[dict[str, Any]] = []

    def printed(what: str, words: list[str], **options: Any) -> list[str]:
        begun.append(
            options | {"what": what, "files": [*Path(options["PAIFUSER_CACHE"]).iterdir()]}
        )
        exec(words[1], {})
        return []

    few = Space({axis: values[:1] for axis, values in SPACE.axes.items()}, FOLDING, {})
    monkeypatch.setattr(Space, "of", lambda *given, **named: few)
    monkeypatch.setattr(Space, "singles", lambda self: [self.change(Point())])
    monkeypatch.setattr(search, "SUGGESTIONS", 5)  # all of them the one point
    monkeypatch.setattr(search, "printed", printed)
    return begun


def test_what_each_way_returns_is_timed_again_with_the_others(in_this_process, tmp_path):
    measured = search.bench((MODEL,), seconds=0.2, seeds=1)
    assert not measured.failures and [each.way for each in measured.rows] != list(WAYS)
    assert {each.way for each in measured.rows} == {*WAYS} and len(measured.rows) == len(WAYS)
    assert len({each.metric_drop for each in measured.rows}) == 1
    for each in measured.rows:
        assert each.speedup > 0 and each.seconds > 0 and each.loss == 0
        assert each.trials == (each.way != "random search")  # it draws no model as it is
    assert Record.load(measured.save(tmp_path / "search.json")) == measured
    assert [row["way"] for row in measured.table()] == list(WAYS)
    page = block("search", Records(tmp_path))
    assert all(f"| {MODEL} | {way} |" in page for way in WAYS) and "certainly faster in" in page
    folders = {each["PAIFUSER_CACHE"] for each in in_this_process}
    assert len(folders) == len(WAYS) and not any(Path(folder).exists() for folder in folders)
    assert all(each["TORCHINDUCTOR_CACHE_DIR"] in folders for each in in_this_process)
    assert all(
        file.name.startswith("hardware-") for each in in_this_process for file in each["files"]
    )


def searched(way: str, speedup: float, *, seed: int = 0, loss: float = 0.0) -> SearchedRow:
    return SearchedRow(
        model="net",
        seed=seed,
        way=way,
        metric_drop=0.01,
        steps=("fold",),
        speedup=speedup,
        interval=(speedup - 0.1, speedup + 0.1),
        loss=loss,
        trials=7,
        seconds=60,
    )


def test_the_search_is_put_beside_each_other_way_and_what_is_past_a_limit_is_counted():
    others = [way for way in WAYS if way != OURS]
    rows = [searched(OURS, 4.0), searched(OURS, 2.1, seed=1, loss=0.01)]
    rows += [searched(way, 2.0, seed=seed, loss=0.02) for way in others for seed in (0, 1)]
    known = SearchBench(machine="m", seconds=60, seeds=2, rows=tuple(rows), failures={"x": "why"})
    beside, past, failed = known.summary.splitlines()
    assert all(
        f"1.45 × (1.05–2.00) as fast as that of {way}, certainly faster in 1 and slower in 0 of 2"
        in beside
        for way in others
    )
    assert f": {OURS} 0 of 2, best single step 2 of 2, format then engine 2 of 2, random" in past
    assert "Past their limits of 1.0 % to 1.0 %" in past and failed == "x: why"
    slower = SearchBench(machine="m", seconds=60, seeds=2, rows=tuple(rows[::-1]))
    assert slower.table() == known.table()
    worse = [searched(OURS, 1.0), *(searched(way, 2.0) for way in others)]
    assert "0 and slower in 1 of 1" in SearchBench(seconds=1, seeds=1, rows=tuple(worse)).summary
    (ours, *_) = known.table()
    assert ours == {
        "model": "net",
        "way": OURS,
        "× over eager": "3.05 (2.1–4)",
        "points lost": "0.5 (0–1)",
        "past its limit": "0 of 2",
        "trials": "7",
        "seconds": "60",
    }
    assert SearchBench(seconds=1, seeds=1).summary == ""


def test_a_recipe_that_cannot_be_timed_again_is_a_failure(monkeypatch):
    found = search_result(workload=MODEL)
    rows = [
        Measurement(name="baseline", threads=1, speedup=1.0, metric=0.9),
        *(Measurement(name=way, threads=1, failure="no compiler") for way in WAYS),
    ]
    compared = comparison_of(*rows)
    monkeypatch.setattr(search, "found_in_child", lambda *given: found)
    monkeypatch.setattr(search, "compare", lambda *given, **named: compared)
    measured = search.bench((MODEL,), seeds=2)
    assert not measured.rows and [*measured.failures] == [
        f"{MODEL}, seed {seed}" for seed in (0, 1)
    ]
    assert "cannot be timed again: no compiler" in measured.summary

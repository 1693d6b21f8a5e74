"""Records are saved, loaded and shown, and refuse other files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from paifuser_lab import Recipe, _files
from paifuser_lab.errors import FileError
from paifuser_lab.records import (  # fmt: skip
    Ceiling,
    Comparison,
    Hardware,
    Measurement,
    Reason,
    Record,
    SiteMemory,
    SweepRun,
    readable_bytes,
    readable_count,
    readable_share,
)
from paifuser_lab.records.table import Table
from paifuser_lab.records.text import or_dash, readable_ms, terminal_width, text_table
from tests.support.advised import profile
from tests.support.drawn import changed
from tests.support.processes import python

ROW = Measurement(
    name="folded",
    steps=("fold batch-norm",),
    threads=2,
    latency_ms=1.5,
    spread_ms=(1.25, 1.75),
    speedup=2.0,
    speedup_interval=(1.9, 2.1),
    peak_bytes=1536,
    size_bytes=10_000,
    parameters=11_689_512,
    relative_error=1e-6,
    max_error=math.inf,
    notes=("a note",),
)
COMPARISON = Comparison(
    workload="small", machine="here", baseline="as it is", metric_name="accuracy", rounds=3,
    rows=(Measurement(name="as it is", threads=1, latency_ms=3.0, speedup=1.0, metric=0.975), ROW,
          Measurement(name="broken", threads=1, failure="no such engine")),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    number=st.none() | st.floats(), text=st.text(), notes=st.lists(st.text(max_size=5), max_size=3)
)
def test_every_number_and_every_text_survives(
    number: float | None, text: str, notes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    row = Measurement(
        name=text,
        threads=1,
        latency_ms=number,
        spread_ms=None if number is None else (number, 0.0),
        notes=tuple(notes),
    )
    again = Record.load(row.save(tmp_path_factory.mktemp("r") / "r.json"))
    assert repr(again) == repr(row), "by their texts, since NaN differs from itself"


def test_a_record_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        ROW.name = "other"  # type: ignore[misc]


def test_a_record_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds a Measurement, not a Comparison"):
        Comparison.load(ROW.save(tmp_path / "r.json"))


VALID = {
    "record": "StepReport",
    "format": 1,
    "data": {"step": "fold", "seconds": 1.0, "relative_error": 0.0},
}
BAD = {
    "cut short": ('{"record": "Meas', "is not JSON .*was it cut short"),
    "foreign": ('{"version": 3}', "is not a record"),
    "of an unknown kind": ('{"record": "Novel", "format": 1, "data": {}}', "is not a record"),
    "of the future": (
        json.dumps(VALID | {"format": 2}),
        "has format 2; this version reads format 1",
    ),
    "with a field missing": (
        json.dumps(VALID | {"data": {"step": "fold"}}),
        "not a valid StepReport: seconds: Field required",
    ),
    "with a field too many": (
        json.dumps(VALID | {"data": VALID["data"] | {"x": 1}}),
        "not a valid StepReport: x: ",
    ),  # type: ignore[operator]
    "with a wrong type": (
        json.dumps(VALID | {"data": VALID["data"] | {"seconds": "long"}}),
        "seconds: Input should be",
    ),  # type: ignore[operator]
    "nested without end": ("[" * 100_000, "is not JSON"),
    "a comparison of nothing": (
        json.dumps(
            {"record": "Comparison", "format": 1, "data": COMPARISON.model_dump() | {"rows": []}}
        ),
        "not a valid Comparison: rows",
    ),
}


def test_the_result_of_a_search_is_known_to_a_fresh_process(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    path.write_text('{"record": "SearchResult", "format": 1, "data": {}}')
    code = f"import paifuser_lab as lab; lab.Record.load({str(path)!r})"
    done = python("-c", code, check=False)
    assert "search.json is not a valid SearchResult" in done.stderr


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_a_file_that_is_no_record_is_refused_in_one_sentence(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(FileError, match=message) as caught:
        Record.load(tmp_path / "r.json")
    assert "r.json" in str(caught.value) and "\n" not in str(caught.value)


def test_a_comparison_reads_as_a_table_without_empty_columns() -> None:
    table = COMPARISON.table()
    assert "cpu ms" not in table[0] and table[0]["accuracy"] == "0.9750"
    assert [row["speed-up"] for row in table] == ["1", "2.00 × (1.90–2.10)", "–"]
    assert table[2]["note"] == "no such engine" and table[1]["recipe"] == "fold batch-norm"
    assert str(COMPARISON).splitlines()[0] == COMPARISON.title == "small on here · 3 rounds in turn"
    assert "stopped early" in COMPARISON.model_copy(update={"is_interrupted": True}).title


def test_rows_are_found_by_name_and_the_best_is_the_fastest() -> None:
    assert COMPARISON["folded"] is COMPARISON.best is COMPARISON.rows[1]
    assert COMPARISON.frame.loc["folded", "latency_ms"] == 1.5
    assert "output_error" in COMPARISON.frame and "relative_error" not in COMPARISON.frame
    with pytest.raises(KeyError, match="no row 'x'; there are as it is, folded, broken"):
        COMPARISON["x"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1536, "1.54 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (2_000_000, "2 MB"),
        (3.5e12, "3.5 TB"),
        (1.234e15, "1230 TB"),
    ],
)
def test_bytes_read_well(count: int | None, text: str) -> None:
    assert readable_bytes(count) == text
    assert readable_count(11_689_512) == "11.7 M"


def test_a_second_reads_as_milliseconds_without_an_exponent() -> None:
    texts = [readable_ms(ms) for ms in (4.5, 999.4, 999.6, 1234.4)]
    assert texts == ["4.50", "999", "1000", "1234"]
    assert or_dash(1234.4) == "1230"
    slow = COMPARISON.rows[0].model_copy(update={"latency_ms": 1234.4, "spread_ms": (999.6, 1300)})
    (row,) = COMPARISON.model_copy(update={"rows": (slow,)}).table()
    assert (row["latency ms"], row["middle half"]) == ("1234", "1000–1300")
    assert profile(latency_ms=1234.4).title.startswith("model · 1234 ms on ")


def test_times_of_many_seconds_have_no_exponent() -> None:
    reason = Reason(topic="layout", sentence="", saves_ms=1234.5, error_ms=240, basis="estimated")
    assert reason.advised("layout") == "layout saves about 1230 ± 240 ms (estimated)"
    timeline = changed("CallTimeline", duration_ms=5e4, latency_ms=2e4)
    trace = changed("TraceSummary", span_ms=123_456, data_loading_ms=5e4)
    site = SiteMemory(site="net.py:3 forward", category="weights", blocks=1, held_bytes=12)
    snapshot = changed("MemorySnapshot", events=20_000, peak_ms=12_345, at_peak=(site,))
    run = SweepRun(name="a", parameters={}, figures={"examples": 50_000, "accuracy": 0.98769})
    texts = [timeline.title, *timeline.remarks, trace.title, trace.facts["data loading"]]
    texts += [snapshot.sentence, run.sentence]
    assert not [text for text in texts if "e+" in text]
    assert run.sentence == "a · examples 50000 · accuracy 0.9877"


def test_a_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = _files.write_text(tmp_path / "a.txt", "old")

    class WriteError(Exception):
        pass

    with pytest.raises(WriteError), _files.replacing(path) as temporary:  # noqa: PT012
        temporary.write_text("half of the n")
        raise WriteError
    with pytest.raises(KeyboardInterrupt), _files.replacing(path):
        raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("path", ["file/inside/r.json", "folder"])
def test_a_path_that_cannot_be_written_is_reported_in_one_sentence(
    path: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        FileError, match=r"Cannot write .* into .*; choose a folder you can write to"
    ):
        ROW.save(tmp_path / path)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.5, "50%"),
        (1 / 3, "33%"),
        (0.05, "5%"),
        (0.001, "0.1%"),
        (0.0004, "0.04%"),
        (0.006, "0.6%"),
        (0.999, "99.9%"),
        (1.0, "100%"),
    ],
)
def test_a_share_has_as_many_decimals_as_it_needs(share, text):
    assert readable_share(share) == text
    assert Recipe([{"prune": {"ratio": share}}]).label == f"prune {text}" if share < 1 else True
    assert Recipe([{"shorten": {"ratio": share}}]).label == f"shorten {text}" if share < 1 else True


@given(st.floats(1e-4, 1 - 1e-4))
def test_a_share_and_its_complement_are_within_a_tenth(share):
    shown = float(readable_share(share).removesuffix("%")) / 100
    assert abs(shown - share) <= 0.1 * min(share, 1 - share) + 1e-12


ROWS = [
    {"name": "fold batch-norm → channels last → onnxruntime", "ms": "0.296", "note": ""},
    {"name": "  deep", "ms": "12.5", "note": "refused: the metric falls by more than 0.01 there"},
]


def test_a_table_that_fits_has_a_line_a_row() -> None:
    lines = text_table(ROWS, ("name", "note"), 120)
    assert len(lines) == 3 and lines[2].startswith("  deep ") and lines[1].endswith(" 0.296")


@pytest.mark.parametrize("width", [50, 80])
def test_a_table_that_is_too_wide_wraps_its_text_and_loses_none(width: int) -> None:
    lines = text_table(ROWS, ("name", "note"), width)
    assert max(map(len, lines)) <= width and not any(line == "" for line in lines)
    columns = (
        [line[: lines[0].index("note")] for line in lines],
        [line[lines[0].index("note") :] for line in lines],
    )
    words = " ".join(" ".join(column) for column in columns).split()
    assert sorted(words) == sorted(
        " ".join([*ROWS[0], *ROWS[0].values(), *ROWS[1].values()]).split()
    )
    assert any(line.startswith("  deep") for line in lines)


def test_columns_of_numbers_that_do_not_fit_follow_with_the_names_repeated() -> None:
    rows = [
        {"name": f"layer{index}"} | {f"figure {key}": "123456" for key in range(9)}
        for index in (1, 2)
    ]
    lines = text_table(rows, ("name",), 40)
    assert max(map(len, lines)) <= 40 and lines.count("") == 2
    assert sum(line.startswith("layer2") for line in lines) == 3
    assert sum(line.count("123456") for line in lines) == 18
    assert len(text_table(rows, ("name",), 200)) == 3


def test_the_width_is_the_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert terminal_width() == columns
        assert columns - 20 < max(map(len, text_table(ROWS, ("name", "note")))) <= columns


@pytest.mark.parametrize(
    ("norms", "text"),
    [((1.0, math.inf, 4.0), "2.5"), ((math.nan, 1.0, math.inf), "1"), ((math.nan,) * 3, "–")],
)
def test_the_gradient_of_an_epoch_is_the_median_of_its_finite_norms(norms, text):
    (row,) = changed("TrainingRun", gradient_norms=norms).table()
    assert row["gradient"] == text


def test_hardware_reads_as_a_table_of_its_ceilings() -> None:
    machine = Hardware(
        name="a <b>CPU",
        source="measured",
        isa=("avx2", "fma"),
        physical_cores=1,
        logical_cores=2,
        memory_bytes=8_000_000_000,
        ceilings=(Ceiling(threads=1, fp32_gflops=1234.5, bandwidth_gbs=26, warnings=("busy",)),),
    )
    title, header, row, warning = str(machine).splitlines()
    assert title == "a <b>CPU · 1 core · 8 GB · avx2 fma" and warning == "busy"
    assert header.startswith("ceilings, measured") and header.endswith("GB/s")
    assert row.split() == ["1", "thread", "1,234", "–", "–", "–", "26"]
    assert "a &lt;b&gt;CPU" in machine._repr_html_() and "GFLOP" in machine._repr_html_()
    assert repr(machine) == "Hardware(a <b>CPU · AVX2 · 1 core)"


@pytest.mark.parametrize(
    ("isa", "units"),
    [
        (("avx2", "fma"), "AVX2"),
        (("avx512f", "avx512_vnni", "amx_tile", "amx_bf16"), "AVX-512 AMX VNNI bf16"),
        (("neon", "fp16", "dotprod", "bf16", "i8mm"), "NEON i8mm bf16"),
        ((), ""),
    ],
)
def test_a_machine_s_short_name_has_the_units_that_make_it_fast(isa, units) -> None:
    machine = changed("Hardware", name="CPU", isa=isa)
    assert machine.label == " · ".join(filter(None, ["CPU", units, "2 cores"]))
    assert machine.model_copy(update={"source": "published"}).label == "CPU · 2 cores"


def test_a_table_is_one_thing_in_a_terminal_a_notebook_and_the_page():
    rows = [{"layer": "<b>a</b>", "ms": "1.5"}, {"layer": "b", "ms": "2.5"}]
    table = Table(("what", "on what"), rows, ("layer", "kind"), lambda row: row["layer"] == "b")
    assert str(table).splitlines()[:2] == ["what", "on what"] and "<b>a</b>" in str(table)
    shown = table._repr_html_()
    assert shown.count("font-weight:bold") == 2, "both cells of one row"
    assert "&lt;b&gt;a&lt;/b&gt;" in shown and "what<br>on what" in shown and "<b>a" not in shown
    assert table.packed() == {"caption": "what · on what", "rows": rows, "words": ["layer"]}
    assert table.without("layer", "nothing").rows == [{"ms": "1.5"}, {"ms": "2.5"}]
    assert str(Table((), [])) == "" and Table((), []).packed()["words"] == []

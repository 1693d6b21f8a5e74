"""Each record is saved, read back, printed, and shown in a notebook without markup of its own."""

from __future__ import annotations

import json

import pytest

from paifuser_lab.records import (
    Check,
    Checklist,
    Explanation,
    Reason,
    Record,
    ResultRow,
    Results,
)
from tests.support.drawn import NAMES, RECORDS, renamed

MARKUP = "<script>"
# without keys of the project's own, and of recipes
NAMED = {*NAMES, "figure", "remedy", "sentence", "failure", "label"} - {"categories", "steps"}
OTHERS = {
    "Checklist": Checklist(
        subject="loop",
        lines=(
            Check(name="threads", outcome="passed", figure="2 threads"),
            Check(name="layout", outcome="failed", figure="slow", remedy="channels last",
                  step={"layout": {}}),
        ),
    ),
    "Explanation": Explanation(
        workload="net", layer="conv", kind="Conv2d", ms=1.0, share=0.5,
        reasons=(Reason(topic="layout", sentence="It is slow.", step={"layout": {}},
                        saves_ms=0.5, basis="measured"),),
    ),
    "PredictedPeak": RECORDS["Fit"].predicted,
    "Failed": Results(
        workload="net", machine="m", rows=(ResultRow(number=0, label="a", failure="it broke"),)
    ),
}  # fmt: skip
EVERY = RECORDS | OTHERS


@pytest.mark.parametrize("record", EVERY.values(), ids=EVERY)
def test_a_record_survives_a_file(record, tmp_path):
    path = record.save(tmp_path / "record.json")
    for again in (Record.load(path), type(record).load(path)):
        assert again.model_dump_json() == record.model_dump_json(), (
            "by text: NaN differs from itself"
        )
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize("record", EVERY.values(), ids=EVERY)
def test_text_from_a_model_is_never_markup(record):
    named = renamed(record, MARKUP, NAMED)
    assert MARKUP in repr(named.model_dump())
    shown = named._repr_html_() if hasattr(named, "_repr_html_") else ""
    assert MARKUP not in shown
    assert str(named) and len(repr(named)) < 10_000


def test_names_reach_the_notebook_escaped():
    shown = {
        name: renamed(record, MARKUP, NAMED)._repr_html_()
        for name, record in EVERY.items()
        if hasattr(record, "_repr_html_")
    }
    assert sum("&lt;script&gt;" in html for html in shown.values()) > len(shown) * 0.8

"""The page and Python agree in both directions: on requests and their handlers, and on the state
that is sent and read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab._files import asset
from paifuser_lab.jobs.queries import QUERIES
from paifuser_lab.records.quality import Quality
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.widgets import tabs
from paifuser_lab.widgets.section import sections
from tests.support.bench import TIMEOUT_S, emptied, opened
from tests.support.node import printed_by_node

PAGE_FIELDS = {"asked", "askedPrecisions"}  # that the page itself adds to the state
PANEL_REQUESTS = {"keep"}  # that only the importance panel handles
SESSION_STATUSES = {"idle", "applying", "measuring", "profiling"}
HARNESS = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const [module, cases] = process.argv.slice(2);
const { expected } = await import(pathToFileURL(module));
const shown = JSON.parse(readFileSync(cases)).map(({ before, requests }) => {
  const state = expected(before, requests);
  const asked = Object.entries({ ...state.precisions, ...state.askedPrecisions });
  return {
    recipe: state.recipe.filter((chip) => !chip.isLeaving).map((chip) => chip.label),
    precisions: Object.fromEntries(asked.filter(([, name]) => name)),
    error: state.error,
  };
});
console.log(JSON.stringify(shown));
"""


def modules():
    """The text of all modules of the page, without tests."""
    files = sorted(asset("widgets").rglob("*.js"))
    return "\n".join(path.read_text() for path in files if not path.name.endswith(".test.js"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3))
    work = lab.Workload(model.eval(), torch.randn(1, 3, 8, 8), name="small")
    with opened(work, tmp_path_factory.mktemp("contract")) as bench:
        yield bench


@pytest.fixture
def bench(shared):
    return emptied(shared)


def python_of_tabs():
    return "".join(path.read_text() for path in Path(tabs.__file__).parent.glob("*.py"))


def page_requests():
    """The page's requests: those written as `do:`, the actions of the footer, and the questions,
    some of which come from their sections; and those of buttons that Python describes.
    """
    text = modules()
    written = re.findall(r'\bdo: (?:[\w.]+ \? )?"(\w+)"(?: : "(\w+)")?', text)
    asked = {
        section.chart.question.request
        for section in sections()
        if section.chart and section.chart.question
    }
    described = re.findall(r'ask ?= ?{"do": "(\w+)"', python_of_tabs())
    return (
        {name for names in written for name in names if name}
        | set(described)
        | asked
        | set(re.findall(r'^\s*(?:ask|request): "(\w+)"', text, re.M))
    )


def test_python_handles_exactly_the_requests_of_the_page(bench):
    assert page_requests() - PANEL_REQUESTS == set(bench._handlers())
    assert page_requests() >= PANEL_REQUESTS


def test_python_sends_every_field_of_the_state_that_the_page_reads(bench):
    text = modules()
    read = set(re.findall(r'(?:\bstate|get\("state"\))\??\.(\w+)', text)) - PAGE_FIELDS
    declared = re.search(r"BenchState\b.*?\*/", text, re.S)[0]
    sent = set(bench.state) | {"code", "saved"}
    assert read and read <= sent, f"read and never sent: {sorted(read - sent)}"
    fields = re.findall(r"\b(\w+)\??: ", declared.split("@typedef")[0])
    assert set(fields) - sent - {"id", "do"} == set()


def test_the_page_reads_every_field_of_the_state_that_python_sends(bench):
    text = modules()
    unread = {name for name in bench.state if not re.search(rf"\.{name}\b|\b{name} ?[,}}]", text)}
    assert unread == set()


def test_every_status_in_the_page_belongs_to_the_session_or_a_query():
    compared = set(re.findall(r'status (?:===|!==|\?\?) "(\w+)"', modules()))
    assert compared and compared <= SESSION_STATUSES | {query.status for query in QUERIES.values()}


def test_every_section_that_waits_for_its_query_has_a_question_that_can_be_asked_again():
    known = [section for section in sections() if section.is_always_shown]
    asked = {one.name for one in known if one.name in QUERIES and one.place != "sheet"}
    charts = [section.chart.question for section in known if section.chart]
    shown = {question.query for question in charts if question}
    shown |= set(re.findall(r'^\s*query: "(\w+)"', modules(), re.M))
    assert "graph" in asked and asked <= shown


def test_every_reason_for_trust_has_its_exact_meaning_as_a_tooltip():
    figures = ("others_share", "waited_share", "spread", "rows_share", "clock_share", "sleeps")
    reasons = Quality(**dict.fromkeys(figures, 9.0)).reasons
    page = asset("widgets/workbench/trust_strip.js").read_text()
    explained = set(re.findall(r'^  "([\w ]+)": "', page, re.M))
    assert len(reasons) == len(figures)
    of_the_session = {"while layers were timed", "as it came it drifted"}
    assert {name for name, _ in reasons} | of_the_session == explained


def test_every_view_that_the_page_reads_is_a_section():
    views = set(re.findall(r'get\("views"\)\??\.(\w+)|\bviews\?\.(\w+)', modules()))
    names = {name for pair in views for name in pair if name}
    assert names and names <= {section.name for section in sections()}


def test_the_state_that_the_page_expects_of_a_request_is_python_s_result(bench, tmp_path):
    fold = {"fold": {}}
    offer = {"label": Recipe([fold])[0].label, "step": fold, "is_taken": False}
    steps = [
        {"do": "choose", "step": fold},
        {"do": "undo"},
        {"do": "redo"},
        {"do": "precision", "layer": "3", "name": "bf16"},
        {"do": "precision", "layer": "0", "name": "bf16"},
        {"do": "precision", "layer": "3", "name": ""},
        {"do": "drop", "index": 0, "label": offer["label"]},
        {"do": "nonsense"},
        {"do": "dismiss"},
    ]
    expected_fields = {
        "choose": ("recipe",),
        "undo": ("recipe",),
        "drop": ("recipe",),
        "precision": ("precisions",),
        "dismiss": ("error",),
    }
    cases, afters = [], []
    for number, step in enumerate(steps):
        request = {**step, "id": bench.served + 1}
        before = json.loads(json.dumps(bench.state)) | {"offers": [offer]}
        cases.append({"before": before, "requests": [request]})
        bench.requests = [request]
        bench.wait(TIMEOUT_S)
        afters.append(json.loads(json.dumps(bench.state)))
        assert bench.served == request["id"], number
    shown = _expected(cases, tmp_path)
    for step, page, after in zip(steps, shown, afters, strict=True):
        assert bool(after["error"]) == (step["do"] == "nonsense")
        actual = after | {"recipe": [chip["label"] for chip in after["recipe"]]}
        for field in expected_fields.get(step["do"], ()):
            assert page[field] == actual[field], (step, field)


def _expected(cases, folder):
    """The states that `expected.js` computes from states and requests."""
    (folder / "cases.json").write_text(json.dumps(cases))
    module = asset("widgets/workbench/expected.js")
    return printed_by_node(HARNESS, folder, module, folder / "cases.json")

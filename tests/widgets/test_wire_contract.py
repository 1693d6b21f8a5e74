"""What the page asks for and reads, and what Python answers and sends, are the same: in both
directions.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import playwright
import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab._files import asset
from paifuser_lab.recipe import Recipe
from paifuser_lab.session.queries import QUERIES
from paifuser_lab.widgets.section import sections

PATIENCE = 60
OF_THE_PAGE = {"asked", "askedPrecisions"}  # which the page itself adds to the state
OF_A_PANEL = {"keep"}  # which an importance alone answers
OF_THE_SESSION = {"idle", "applying", "measuring", "profiling"}
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
    """The text of all modules of the page."""
    files = sorted(asset("widgets").rglob("*.js"))
    return "\n".join(path.read_text() for path in files if not path.name.endswith(".test.js"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("contract"))
        patch.setattr("paifuser_lab.session.session.PROFILE_S", 0.05)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3))
        work = lab.Workload(model.eval(), torch.randn(1, 3, 8, 8), name="small")
        made = lab.Workbench(work, rounds=1, seconds=0.1)
        made.wait(PATIENCE)
        yield made
        made.close()


@pytest.fixture
def bench(shared):
    shared.recipe = Recipe([], workload="small")
    shared.session.set_error(None)
    shared.wait(PATIENCE)
    return shared


def asked_for():
    """What the page can ask for: requests as they are written, and the actions of the footer."""
    text = modules()
    written = re.findall(r'\bdo: (?:[\w.]+ \? )?"(\w+)"(?: : "(\w+)")?', text)
    return {name for names in written for name in names if name} | set(
        re.findall(r'^\s*ask: "(\w+)"', text, re.M)
    )


def test_python_answers_whatever_the_page_can_ask_for_and_nothing_else(bench):
    assert asked_for() - OF_A_PANEL == set(bench._answers())
    assert asked_for() >= OF_A_PANEL


def test_python_sends_every_field_of_the_state_that_the_page_reads(bench):
    text = modules()
    read = set(re.findall(r'(?:\bstate|get\("state"\))\??\.(\w+)', text)) - OF_THE_PAGE
    declared = re.search(r"BenchState\b.*?\*/", text, re.S)[0]
    sent = set(bench.state) | {"code", "saved"}
    assert read and read <= sent, f"read and never sent: {sorted(read - sent)}"
    fields = re.findall(r"\b(\w+)\??: ", declared.split("@typedef")[0])
    assert set(fields) - sent - {"id", "do"} == set()


def test_the_page_reads_every_field_of_the_state_that_python_sends(bench):
    text = modules()
    unread = {name for name in bench.state if not re.search(rf"\.{name}\b|\b{name} [,}}]", text)}
    assert unread == set()


def test_the_page_knows_no_status_that_no_query_has():
    compared = set(re.findall(r'status (?:===|!==|\?\?) "(\w+)"', modules()))
    assert compared and compared <= OF_THE_SESSION | {one.status for one in QUERIES.values()}


def test_what_the_page_reads_of_a_view_is_packed_under_the_name_of_its_section():
    views = set(re.findall(r'get\("views"\)\??\.(\w+)|\bviews\?\.(\w+)', modules()))
    names = {name for pair in views for name in pair if name}
    assert names and names <= {section.name for section in sections()}


def test_what_the_page_foresees_of_a_request_is_what_python_makes_of_it(bench, tmp_path):
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
    foreseen = {
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
        bench.wait(PATIENCE)
        afters.append(json.loads(json.dumps(bench.state)))
        assert bench.served == request["id"], number
    shown = _expected(cases, tmp_path)
    for step, page, after in zip(steps, shown, afters, strict=True):
        assert bool(after["error"]) == (step["do"] == "nonsense")
        true = after | {"recipe": [chip["label"] for chip in after["recipe"]]}
        for field in foreseen.get(step["do"], ()):
            assert page[field] == true[field], (step, field)


def _expected(cases, folder):
    """What `expected.js` makes of states and requests."""
    driver = Path(playwright.__file__).parent / "driver" / "node"
    (folder / "harness.mjs").write_text(HARNESS)
    (folder / "cases.json").write_text(json.dumps(cases))
    module = asset("widgets/workbench/expected.js")
    done = subprocess.run(
        [driver, folder / "harness.mjs", module, folder / "cases.json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)

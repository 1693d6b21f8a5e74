"""A section is one declaration: the workbench, `lab.show`, the session and the linker go by it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.records import Record
from paifuser_lab.session.queries import Query
from paifuser_lab.widgets import linker
from paifuser_lab.widgets.section import Section, register, sections, unregister

PATIENCE = 60
MODULE = """
import { fresh } from "../shared/dom.js";
const name = "private here as in other modules";
export function weightCount(root, host) {
  root.addEventListener("click", () => host.ask({ do: "fold_weights" }));
  return { show(data) { fresh(root, `${data.count}: ${name}`); } };
}
"""


class WeightCount(Record):
    """How many weights a model has."""

    workload: str
    layer: str
    count: int


def find(context):
    count = sum(weight.numel() for weight in context.work.model.parameters())
    yield {"weight_count": WeightCount(workload=context.work.name, layer="0", count=count)}


def fold(bench, request):
    bench.recipe = bench.recipe.with_step({"fold": {}})


@pytest.fixture
def section(tmp_path):
    folder = tmp_path / "weight_count"
    folder.mkdir()
    (folder / "index.js").write_text(MODULE)
    (folder / "weight_count.css").write_text(".pf-panel .pf-weight-count { color: red; }\n")
    made = Section(
        "weight_count",
        record=WeightCount,
        pack=lambda record: {"count": record.count},
        title="Weights",
        tab="roofline",
        state=lambda state, context: {"weights_known": state.record("weight_count") is not None},
        requests={
            "weight_count": lambda bench, request: bench.session.query("weight_count"),
            "fold_weights": fold,
        },
        queries=(Query("weight_count", "counting", "how many weights there are", 1.0, find),),
        layers=lambda record: [record.layer],
        folder=folder,
    )
    register(made)
    yield made
    unregister("weight_count")


@pytest.fixture
def bench(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("paifuser_lab.session.session.PROFILE_S", 0.05)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    made = lab.Workbench(lab.Workload(model, torch.randn(1, 3, 8, 8)), rounds=1, seconds=0.1)
    made.wait(PATIENCE)
    yield made
    made.close()


def ask(bench, **request):
    last = max([bench.served, *(one["id"] for one in bench.requests)])
    bench.requests = [*bench.requests, {**request, "id": last + 1}]
    return bench.wait(PATIENCE)


def test_a_section_that_is_declared_once_is_found_packed_and_shown_in_the_workbench(bench):
    assert bench.state["weights_known"] is False and "weight_count" not in bench.views
    statuses = []
    bench.session.observe(lambda state: statuses.append(state.status))
    state = ask(bench, do="weight_count")
    assert state.error is None and "counting" in statuses
    assert state.record("weight_count").count == bench.views["weight_count"]["count"] == 120
    assert bench.state["weights_known"] is True


def test_its_request_edits_the_recipe_and_its_record_outlives_that(bench):
    ask(bench, do="weight_count")
    state = ask(bench, do="fold_weights")
    assert state.error is None and [step.kind for step in bench.recipe] == ["fold"]
    assert bench.views["weight_count"]["count"] == 120


def test_its_record_has_a_widget_of_its_own_and_its_modules_are_linked(section):
    panel = lab.show(WeightCount(workload="net", layer="0", count=3))
    assert panel.view == "weight_count" and panel.data == {"count": 3}
    assert "function weightCount" in panel._esm and "pf-weight-count" in panel._css
    module, _ = linker.front_end("workbench")
    assert '"name": "weight_count", "title": "Weights", "tab": "roofline"' in module
    assert "make: weightCount" in module and "function weightCount" in module
    panel.close()


def test_without_the_registration_nothing_of_it_is_left():
    assert "weight_count" not in [section.name for section in sections()]
    module, style = linker.front_end("workbench")
    assert "weightCount" not in module and "pf-weight-count" not in style


def test_a_name_a_record_or_a_request_that_is_taken_is_refused(section):
    with pytest.raises(lab.PaifuserError, match="section 'weight_count' already"):
        register(Section("weight_count"))
    with pytest.raises(lab.PaifuserError, match="both answer 'prune'"):
        register(Section("another", requests={"prune": fold}))
    query = Query("sensitivity", "sensing", "something else", 1.0, find)
    with pytest.raises(lab.PaifuserError, match="query 'sensitivity' already"):
        register(Section("another", queries=(query,)))
    assert "another" not in [one.name for one in sections()]


def test_the_tabs_stand_in_the_order_of_the_registry():
    assert [one.name for one in sections() if one.title] == [
        "sensitivity",
        "allocation",
        "importance",
        "fusion",
        "attention",
        "roofline",
        "comparison",
        "hardware",
    ]
    assert {one.name for one in sections() if one.title and one.is_always_shown} == {
        "sensitivity",
        "allocation",
        "importance",
        "fusion",
        "attention",
    }

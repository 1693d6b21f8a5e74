"""One declaration of a section is used by the workbench, `lab.show`, the session and the linker."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.jobs.queries import Query
from paifuser_lab.records import Record
from paifuser_lab.views.picture import Axis, Boxes, Panel, Picture, Tips
from paifuser_lab.widgets import linker
from paifuser_lab.widgets.section import Section, chart_section, register, sections, unregister
from tests.support.bench import opened, send

MODULE = """
import { fresh } from "../shared/dom.js";
const name = "private here as in other modules";
export function weightCount(root, host) {
  root.addEventListener("click", () => host.ask({ do: "fold_weights" }));
  return { show(data) { fresh(root, `${data.count}: ${name}`); } };
}
"""


class WeightCount(Record):
    """The number of weights of a model."""

    workload: str
    layer: str
    count: int


def count_weights(context):
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
    section = Section(
        "weight_count",
        record=WeightCount,
        pack=lambda record: {"count": record.count},
        title="Weights",
        tab="machine",
        state=lambda state, context: {"weights_known": state.record("weight_count") is not None},
        requests={
            "weight_count": lambda bench, request: bench.session.query("weight_count"),
            "fold_weights": fold,
        },
        queries=(
            Query("weight_count", "counting", "how many weights there are", 1.0, count_weights),
        ),
        layers=lambda record: [record.layer],
        folder=folder,
    )
    register(section)
    yield section
    unregister("weight_count")


@pytest.fixture
def bench(section, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    with opened(lab.Workload(model, torch.randn(1, 3, 8, 8)), tmp_path) as bench:
        yield bench


def test_a_registered_section_runs_its_query_and_is_shown_in_the_workbench(bench):
    assert bench.state["weights_known"] is False and "weight_count" not in bench.views
    statuses = []
    bench.session.observe(lambda state: statuses.append(state.status))
    state = send(bench, do="weight_count")
    assert state.error is None and "counting" in statuses
    assert state.record("weight_count").count == bench.views["weight_count"]["count"] == 120
    assert bench.state["weights_known"] is True


def test_its_request_edits_the_recipe_and_keeps_its_record(bench):
    send(bench, do="weight_count")
    state = send(bench, do="fold_weights")
    assert state.error is None and [step.kind for step in bench.recipe] == ["fold"]
    assert bench.views["weight_count"]["count"] == 120


def test_its_record_has_its_own_widget_and_its_modules_are_linked(section):
    panel = lab.show(WeightCount(workload="net", layer="0", count=3))
    assert panel.view == "weight_count" and panel.data == {"count": 3}
    assert "function weightCount" in panel._esm and "pf-weight-count" in panel._css
    module, _ = linker.front_end("workbench")
    assert '"name": "weight_count", "title": "Weights", "tab": "machine", "place": ""' in module
    assert "make: weightCount" in module and "function weightCount" in module
    panel.close()


def test_unregistering_a_section_removes_all_of_it():
    assert "weight_count" not in [section.name for section in sections()]
    module, style = linker.front_end("workbench")
    assert "weightCount" not in module and "pf-weight-count" not in style


def test_registering_a_duplicate_name_request_or_query_raises(section):
    with pytest.raises(lab.PaifuserError, match="section 'weight_count' already"):
        register(Section("weight_count"))
    with pytest.raises(lab.PaifuserError, match="both answer 'prune'"):
        register(Section("another", requests={"prune": fold}))
    query = Query("sensitivity", "sensing", "something else", 1.0, count_weights)
    with pytest.raises(lab.PaifuserError, match="query 'sensitivity' already"):
        register(Section("another", queries=(query,)))
    assert "another" not in [section.name for section in sections()]


def test_the_tabs_are_in_the_order_of_registration():
    assert [section.name for section in sections() if section.title] == [
        "sensitivity",
        "allocation",
        "importance",
        "fusion",
        "attention",
        "memory",
        "memory_fit",
        "memory_pool",
        "memory_plan",
        "roofline",
        "call_timeline",
        "results",
        "side_by_side",
        "hardware",
        "faster",
        "exports",
        "engine_settings",
        "graph",
        "generation",
    ]
    assert {
        section.name for section in sections() if section.title and section.is_always_shown
    } == {
        "sensitivity",
        "allocation",
        "importance",
        "fusion",
        "attention",
        "memory",
        "memory_fit",
        "memory_pool",
        "memory_plan",
        "results",
        "generation",
        "faster",
        "exports",
        "engine_settings",
        "graph",
    }


def test_every_section_of_the_workbench_names_one_of_its_tabs():
    tabs = {section.tab for section in sections() if section.title and section.place != "sheet"}
    assert tabs == {"options", "results", "machine", "exports", "graph", "generation"}
    segments = {section.name for section in sections() if section.place == "segment"}
    places = {section.place for section in sections()}
    assert places <= {"", "segment", "beside", "sheet"} | segments


def test_every_option_has_its_exact_term_as_a_tooltip():
    module, _ = linker.front_end("workbench")
    segments = [section for section in sections() if section.place == "segment"]
    assert segments
    for section in segments:
        assert section.hint and f'"hint": "{section.hint}"' in module, section.name


def test_a_model_without_attention_is_not_offered_it(bench):
    assert bench.state["absent"]["attention"] == "none in this model"


def test_a_model_with_attention_is_offered_it(tmp_path):
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    with opened(lab.Workload(layer, torch.randn(1, 4, 8)), tmp_path) as bench:
        assert "attention" not in bench.state["absent"]


def weights_picture(record):
    bar = Boxes([0], [record.count], [-0.4], [0.4], key=[record.layer], tips=Tips(["weights"]))
    panel = Panel(Axis.linear(0, record.count), Axis.band([record.layer]), (bar,))
    return Picture(title="weights", label="weights by layer", rows=((panel,),))


def test_a_chart_is_a_function_and_a_line_without_javascript():
    register(chart_section("weight_chart", WeightCount, weights_picture, "weights"))
    try:
        panel = lab.show(WeightCount(workload="net", layer="0", count=8))
        assert panel.view == "weight_chart" and panel.data["title"] == "weights"
        assert panel.data["rows"][0][0]["marks"][0]["key"] == ["0"]
        assert "pictureView(" in panel._esm and "weightChart" not in panel._esm
    finally:
        unregister("weight_chart")

"""One declaration of a section is used by the workbench, `lab.show`, the session and the linker."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab._files import asset
from paifuser_lab.errors import WorkloadError
from paifuser_lab.jobs.queries import QUERIES, Query
from paifuser_lab.records import Record
from paifuser_lab.views.picture import Axis, Boxes, Panel, Picture, Tips
from paifuser_lab.widgets import linker
from paifuser_lab.widgets.section import _SECTIONS, chart_section, sections
from paifuser_lab.widgets.tabs import BUILT_IN
from tests.support.bench import opened, send
from tests.support.drawn import RECORDS


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


def weights_picture(record):
    bar = Boxes([0], [record.count], [-0.4], [0.4], key=[record.layer], tips=Tips(["weights"]))
    panel = Panel(Axis.linear(0, record.count), Axis.band([record.layer]), (bar,))
    return Picture(f"{record.count} weights", "weights by layer", ((panel,),))


@pytest.fixture
def section(monkeypatch):
    query = Query("weight_count", "counting", "how many weights there are", 1.0, count_weights)
    section = chart_section(
        "weight_count",
        WeightCount,
        "weights",
        picture=weights_picture,
        title="Weights",
        tab="machine",
        state=lambda state, context: {"weights_known": state.record("weight_count") is not None},
        requests={
            "weight_count": lambda bench, request: bench.session.query("weight_count"),
            "fold_weights": fold,
        },
        queries=(query,),
        layers=lambda record: [record.layer],
    )
    monkeypatch.setitem(_SECTIONS, section.name, section)
    monkeypatch.setitem(QUERIES, query.name, query)
    return section


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
    assert state.record("weight_count").count == 120
    assert bench.views["weight_count"]["title"] == "120 weights"
    assert bench.state["weights_known"] is True


def test_its_request_edits_the_recipe_and_keeps_its_record(bench):
    send(bench, do="weight_count")
    state = send(bench, do="fold_weights")
    assert state.error is None and [step.kind for step in bench.recipe] == ["fold"]
    assert bench.views["weight_count"]["title"] == "120 weights"


def test_its_record_has_its_own_widget_without_javascript_of_its_own(section):
    panel = lab.show(WeightCount(workload="net", layer="0", count=3))
    assert panel.view == "weight_count" and panel.data["title"] == "3 weights"
    assert panel.data["rows"][0][0]["marks"][0]["key"] == ["0"]
    assert "pictureView(" in panel._esm and "weightCount" not in panel._esm
    module, _ = linker.front_end("workbench")
    assert '"name": "weight_count", "title": "Weights", "tab": "machine", "place": ""' in module
    panel.close()


def test_each_name_record_request_and_query_belongs_to_one_section():
    known = sections()
    records = [section.record for section in known if section.record]
    requests = [name for section in known for name in section.requests]
    assert [section.name for section in known] == list(BUILT_IN)
    assert len(set(records)) == len(records) and len(set(requests)) == len(requests)
    assert all(QUERIES[query.name] is query for section in known for query in section.queries)


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
    shown_once_known = {
        section.name for section in sections() if section.title and not section.is_always_shown
    }
    assert shown_once_known == {"roofline", "call_timeline", "side_by_side", "hardware"}


def test_every_section_of_the_workbench_names_one_of_its_tabs():
    tabs = {section.tab for section in sections() if section.title and section.place != "sheet"}
    assert tabs == {"options", "results", "machine", "exports", "graph", "generation"}
    segments = {section.name for section in sections() if section.place == "segment"}
    places = {section.place for section in sections()}
    assert places <= {"", "segment", "beside", "sheet"} | segments


def test_the_list_of_keys_and_the_page_have_a_number_for_each_tab():
    shown = {section.tab for section in sections() if section.title and section.place != "sheet"}
    last = len((shown | {"layers"}) - {"generation"})  # which is of language models alone
    assert f'"1–{last}", "the tabs"' in asset("widgets/workbench/key_help.js").read_text()
    page = Path(__file__).parents[2] / "docs" / "workbench.md"
    assert f"`1`–`{last}` tabs" in page.read_text(encoding="utf-8")


def test_every_option_has_its_exact_term_as_a_tooltip():
    module, _ = linker.front_end("workbench")
    segments = [section for section in sections() if section.place == "segment"]
    assert segments
    for section in segments:
        assert section.hint and f'"hint": "{section.hint}"' in module, section.name


def test_a_record_of_another_model_is_refused_and_none_is_shown(bench):
    for attribute, kind in (
        ("sensitivity", "Sensitivity"),
        ("importance", "Importance"),
        ("allocation", "Allocation"),
        ("fusions", "FusionMap"),
        ("attention_cost", "AttentionCost"),
    ):
        with pytest.raises(
            WorkloadError, match=r"of net has a layer '\w+' that Sequential does not"
        ):
            setattr(bench, attribute, RECORDS[kind])
        assert getattr(bench, attribute) is None

"""What the tab Options asks: the seconds of a question, its turn, and what does not apply."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.jobs import queries
from paifuser_lab.session.state import State
from paifuser_lab.widgets.presenter import Presenter
from paifuser_lab.widgets.section import sections
from tests.support.bench import TIMEOUT_S, opened, send
from tests.support.models import Small, images


def absent_in(model, *inputs):
    """The options that are absent before the model was run; none of these models writes text."""
    presenter = Presenter(lab.Workload(model.eval(), *inputs))
    absent = presenter.absent(State(lab.Recipe([])))
    assert absent.pop("generation")
    return absent


@pytest.fixture
def bench(tmp_path):
    with opened(lab.Workload(Small(), images(), name="small"), tmp_path) as bench:
        yield bench


# The question.


def test_every_segment_of_options_has_a_query_whose_seconds_the_page_is_sent(bench, monkeypatch):
    segments = [section for section in sections() if section.place == "segment"]
    assert [section.title for section in segments] == [
        "Formats",
        "Best mixtures",
        "Channels",
        "Joined layers",
        "Attention",
        "Memory",
    ]
    sent = bench.state["queries"]
    names = ("sensitivity", "allocation", "importance", "fusion", "attention", "memory")
    for section, query in zip(segments, names, strict=True):
        assert section.is_always_shown and query in sent, section.name
    assert {name: query["seconds"] for name, query in sent.items()} == {
        name: query.seconds for name, query in queries.QUERIES.items()
    }
    longer = replace(queries.QUERIES["sensitivity"], seconds=77.0)
    monkeypatch.setitem(queries.QUERIES, "sensitivity", longer)
    bench.session.set_error(None)
    assert bench.state["queries"]["sensitivity"]["seconds"] == 77.0


def test_a_query_that_is_asked_for_waits_for_its_turn_then_runs_then_is_done(bench, monkeypatch):
    def find(context):
        yield {}

    monkeypatch.setitem(queries.QUERIES, "memory", replace(queries.QUERIES["memory"], find=find))
    seen = []
    bench.session.observe(
        lambda state: seen.append((state.status == "recalling", "memory" in state.queued))
    )
    send(bench, do="memory")
    assert list(dict.fromkeys(seen)) == [(False, True), (True, False), (False, False)]
    assert bench.state["queries"]["memory"] == {
        "seconds": 2.0,
        "is_running": False,
        "is_waiting": False,
    }


def test_stop_takes_back_a_query_that_waits(bench, monkeypatch):
    monkeypatch.setattr(bench.session, "_start", lambda: None)  # the worker is busy elsewhere
    send(bench, do="memory")
    assert bench.state["queries"]["memory"]["is_waiting"]
    send(bench, do="stop")
    assert not bench.state["queries"]["memory"]["is_waiting"]


# Memory.


def test_the_memory_shown_is_that_of_the_current_recipe(bench):
    assert "memory" not in bench.views
    assert send(bench, do="memory").error is None
    original = bench.views["memory"]
    assert original["layer"]["sentence"] and "conv" in str(original["layer"]["below"])
    bench.recipe = lab.Recipe([{"precision": {"default": "bf16"}}])
    bench.wait(TIMEOUT_S)
    assert "memory" not in bench.views, "it is not known of this recipe"
    assert send(bench, do="memory").error is None
    halved = bench.views["memory"]
    assert halved["weights_bytes"] < 0.6 * original["weights_bytes"]
    send(bench, do="undo")
    again = bench.views["memory"]["layer"]["sentence"]
    assert again == original["layer"]["sentence"], "it is not measured again"


def test_a_moment_that_is_pinned_has_its_map_until_another_call_is_measured(bench):
    send(bench, do="memory")
    send(bench, do="memory_moment", row=0)
    assert bench.views["memory"]["layer"]["below"][0]["title"].startswith("alive after")
    send(bench, do="memory")
    assert bench.views["memory"]["layer"]["below"][0]["title"] == "alive at the peak"


def test_a_moment_of_one_recipe_is_none_of_another(bench):
    send(bench, do="memory")
    send(bench, do="memory_moment", row=0)
    bench.recipe = lab.Recipe([{"precision": {"default": "bf16"}}])
    bench.wait(TIMEOUT_S)
    send(bench, do="memory")
    send(bench, do="memory_moment", row=1)
    send(bench, do="undo")
    assert bench.views["memory"]["row"] is None
    assert bench.views["memory"]["layer"]["below"][0]["title"] == "alive at the peak"


# What does not apply.


class Attending(nn.Module):
    """Attention by a function alone: no module is called so."""

    def forward(self, tokens):
        return F.scaled_dot_product_attention(tokens, tokens, tokens)


def test_a_convolutional_net_has_no_attention_which_is_known_before_it_ran():
    assert absent_in(Small(), images()) == {"attention": "none in this model"}


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), (1, 4, 8)),
        (nn.Sequential(nn.Linear(8, 8), Attending()), (1, 1, 4, 8)),
    ],
    ids=["a module", "a function"],
)
def test_a_transformer_has_attention(model, shape):
    assert absent_in(model, torch.randn(*shape)) == {}


def test_a_model_without_weights_has_neither_formats_nor_channels():
    absent = absent_in(nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)), torch.randn(1, 3, 8, 8))
    assert sorted(absent) == ["allocation", "attention", "importance", "sensitivity"]
    assert set(absent.values()) == {"none in this model"}

"""The step `attention` and lab.attention_cost: layers that gain are changed, slower ones are noted,
and undo is exact.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.attention import Sparsity, discover, evaluate, find_attention
from paifuser_lab.attention import cost as costing
from paifuser_lab.errors import FileError, MeasureError, RecipeError, StepError, StoppedError
from paifuser_lab.measure import Samples
from paifuser_lab.model.weights import weights_hash
from tests.support.attention_models import KINDS, Attended, encoder, vision_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """The share of attention in a model's time is not judged here."""
    monkeypatch.setattr(costing, "SHARE_S", 0.01)


@pytest.fixture
def work():
    model, args, _ = vision_model()
    return lab.Workload(model, args[0], name="vision_model")


def with_attention(work, **options):
    return lab.apply(work, lab.Recipe([{"attention": options}]))


def test_the_step_changes_every_layer_that_gains_and_reports_by_how_much(work, times):
    variant = with_attention(work, keep=0.4)
    assert list(variant.remembered[0]["sparse"]) == ["blocks.0.attention", "blocks.1.attention"]
    assert variant.notes[0].startswith("'blocks.0.attention' attends to 40% of the keys, 0.")
    assert variant.notes[0].endswith("away; 2 ms become 1 ms in its attention")
    assert (
        variant.reports[0].relative_error > 1e-4
        and variant.recipe.label == "attention to 40% of the keys (topk)"
    )
    assert weights_hash(variant.module) == weights_hash(work.model)


def test_a_layer_that_would_be_slower_stays_and_is_reported(work, times):
    times["after"] = 1.96
    variant = with_attention(work, keep=0.4)
    assert variant.reports[0].relative_error == 0 and not variant.remembered[0]["sparse"]
    assert variant.notes[0] == (
        "'blocks.0.attention' attends to all keys: 40% of the keys are not clearly faster; 2 ms "
        "become 1.96 ms in its attention"
    )
    assert with_attention(work, keep=0.4, even_if_slower=True).reports[0].relative_error > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_variant_has_the_same_output(work, times, kind, tmp_path):
    variant = with_attention(work, kind=kind, keep=2)
    variant.save(tmp_path / "made")
    times["after"] = 99.0  # nothing is timed again
    loaded = lab.Variant.load(tmp_path / "made", work)
    with torch.no_grad():
        torch.testing.assert_close(
            loaded.model(*work.inputs.args), variant.model(*work.inputs.args), rtol=0, atol=0
        )


def test_loading_with_another_model_names_the_missing_layer(work, times, tmp_path):
    with_attention(work, keep=0.4).save(tmp_path / "made")
    other = lab.Workload(
        nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 5)), work.inputs.args[0]
    )
    with pytest.raises(
        FileError, match=r"there is no layer 'blocks\.0\.attention', whose attention was changed"
    ):
        lab.Variant.load(tmp_path / "made", other)


def test_layers_are_picked_and_protected(work, times):
    assert list(with_attention(work, keep=0.4, layers=["blocks.1*"]).remembered[0]["sparse"]) == [
        "blocks.1.attention"
    ]
    assert list(with_attention(work, keep=0.4, protect=["blocks.0"]).remembered[0]["sparse"]) == [
        "blocks.1.attention"
    ]


def test_a_newer_step_replaces_one_of_the_same_kind_or_layers():
    recipe = lab.Recipe([{"attention": {"keep": 0.5}}])
    assert (
        recipe.with_step({"attention": {"keep": 0.25, "layers": ["a"]}}).label
        == "attention to 25% of the keys (topk)"
    )
    assert (
        recipe.with_step({"attention": {"kind": "block", "keep": 0.25}}).label
        == "attention to 25% of the keys (block)"
    )
    assert (
        len(recipe.with_step({"attention": {"kind": "window", "layers": ["b"], "keep": 0.25}})) == 2
    )
    text = recipe.with_step({"attention": {"kind": "window", "layers": ["b"], "keep": 4}}).to_text()
    assert "kind: window" in text and lab.Recipe.from_text(text).to_text() == text


def test_a_later_step_overrides_the_sparsity_of_a_layer(work, times):
    once = with_attention(work, kind="window", keep=2)
    steps = [
        {"attention": {"kind": "topk", "keep": 0.4}},
        {"attention": {"kind": "window", "keep": 2, "layers": ["blocks.*"]}},
    ]
    twice = lab.apply(work, lab.Recipe(steps))
    with torch.no_grad():
        torch.testing.assert_close(
            twice.model(*work.inputs.args), once.model(*work.inputs.args), rtol=0, atol=0
        )


class Shared(nn.Module):
    """Two heads of queries, one of keys, which torch repeats by itself."""

    def forward(self, x):
        query = x.unflatten(2, (2, 16)).transpose(1, 2)
        key = x[:, None, :, :16]
        return F.scaled_dot_product_attention(query, key, key).transpose(1, 2).flatten(2)


class Twice(nn.Module):
    """Attends to every second token, and to all."""

    def forward(self, x):
        query = x.unflatten(2, (2, 16)).transpose(1, 2)
        outputs = [
            F.scaled_dot_product_attention(query, keys, keys) for keys in (query[:, :, ::2], query)
        ]
        return sum(outputs).transpose(1, 2).flatten(2)


def of(*layers):
    return lab.Workload(
        nn.Sequential(nn.LayerNorm(32), *layers).eval(), torch.randn(2, 200, 32), name="small"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_whose_heads_share_keys_is_changed(kind, times):
    work = of(Shared())
    variant = with_attention(work, kind=kind, keep=2)
    assert (
        list(variant.remembered[0]["sparse"]) == ["1"]
        and 1e-4 < variant.reports[0].relative_error < 1
    )
    assert lab.attention_cost(work, kind=kind, keeps=(0.5,), seconds=0.1).errors[0] > 1e-4


def test_a_layer_that_attends_to_several_lengths_keeps_no_list_and_the_others_do(times):
    variant = with_attention(of(Twice(), Shared()), kind="block", keep=2)
    assert list(variant.remembered[0]["sparse"]) == ["2"]
    assert (
        "'1' stays: it attends to keys of several lengths, which kind block has one list for; take "
        "kind topk or window" in (variant.notes)
    )


def test_a_layer_is_evaluated_over_all_of_its_calls(times):
    work = of(Twice())
    calls = find_attention(work.model, work.inputs).able["1"]
    result = evaluate.evaluate_sparse({"1": calls}, Sparsity("topk", 2), {"1": None})["1"]
    errors = [evaluate.error_of(call, Sparsity("topk", 2), None) for call in calls]
    assert errors[0] == 0 < errors[1] == result.error  # two blocks are all of the first call
    assert (result.before_ms, result.after_ms) == (4.0, 2.0)


@pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors"
)  # torch's own encoder, as it was
def test_a_note_reports_that_padding_is_no_longer_zero(times):
    model, args, kwargs = encoder()
    padded, whole = (
        lab.Workload(model, {"src": args[0], **options}, name="encoder") for options in (kwargs, {})
    )
    variant = with_attention(padded, keep=2)
    assert variant.notes[-1].startswith(
        "torch's encoder answered 0 at the padding, and outputs something else there now"
    )
    assert not any("padding" in note for note in with_attention(whole, keep=2).notes)


MISTAKES = {
    "keep is no number": (
        {"keep": True},
        RecipeError,
        "keep = True: it should be a number, such as 0.25 for a quarter",
    ),
    "all is protected": (
        {"keep": 0.5, "protect": ["*"]},
        StepError,
        "every layer whose attention could be changed is protected; protect fewer, or leave the "
        "step out",
    ),
    "keep is between": (
        {"keep": 1.5},
        RecipeError,
        "a share up to 1, or an integer of blocks of 64 keys from 2 on",
    ),
    "block without keep": (
        {"kind": "block"},
        RecipeError,
        "kind block needs a keep, such as keep: 0.25 for a quarter of the keys",
    ),
    "window without keep": (
        {"kind": "window"},
        StepError,
        "since there is no Swin in it; say how many with keep",
    ),
    "no such kind": (
        {"kind": "near", "keep": 1},
        RecipeError,
        "it should be 'window', 'topk' or 'block'",
    ),
    "does not attend": (
        {"keep": 0.5, "layers": ["head"]},
        StepError,
        "'head' does not attend; the layers that can are blocks.0.att",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_sentence(name, work):
    options, kind, sentence = MISTAKES[name]
    with pytest.raises(kind, match=sentence):
        with_attention(work, **options)


def test_a_model_without_attention_or_with_too_few_keys_is_refused():
    line = lab.Workload(nn.Linear(4, 4), torch.randn(2, 4), name="line")
    with pytest.raises(
        StepError, match="no layer of it calls torch's scaled_dot_product_attention"
    ):
        with_attention(line, keep=0.5)
    with pytest.raises(StepError, match=r"'blocks\.0\.attention': 17 keys are one block of 64"):
        with_attention(lab.load("vit-s-tiny"), keep=0.5)
    with_weights = lab.Workload(
        Attended(batch_first=True), {"x": torch.randn(2, 200, 32), "need_weights": True}
    )
    with pytest.raises(
        StepError, match="asked for the weights of its attention; call it with need_weights=False"
    ):
        with_attention(with_weights, keep=0.5)


def test_a_stopped_step_changes_nothing(work, times):
    recipe = lab.Recipe([{"attention": {"keep": 0.4}}])
    with pytest.raises(StoppedError, match="while layers were timed; nothing was changed"):
        lab.apply(work, recipe, should_stop=lambda: True)


def test_the_cost_is_measured_for_each_share(work):
    cost = lab.attention_cost(work, keeps=(0.25, 1, 0.5), seconds=0.1)
    assert cost.keeps == (1.0, 0.5, 0.25) and cost.kind == "topk"
    assert cost.errors[0] == 0 < cost.errors[1] < cost.errors[2]
    assert [layer.layer for layer in cost.sparse_layers] == [
        "blocks.0.attention",
        "blocks.1.attention",
    ]
    first = cost.layers[0]
    assert (first.heads, first.queries, first.keys, first.is_causal) == (2, 257, 257, False)
    assert first.errors[0] == 0 < first.errors[1] < first.errors[2]
    assert len(cost.latency_ms) == 3 and cost.dense_ms > 0 and 0 < first.share < 1
    variant = with_attention(work, keep=0.25, even_if_slower=True)
    assert variant.reports[0].relative_error == pytest.approx(cost.errors[2], rel=1e-3)


def test_the_cost_of_a_sparse_variant_is_measured_against_dense_attention(work):
    variant = with_attention(work, keep=0.25, even_if_slower=True)
    cost = lab.attention_cost(variant, keeps=(1.0, 0.25), seconds=0.1)
    assert cost.errors == lab.attention_cost(work, keeps=(1.0, 0.25), seconds=0.1).errors
    assert cost.errors[0] == 0 < cost.errors[1]
    assert (
        variant.module.get_submodule("blocks.0.attention").sparsity.keep == 0.25
    )  # and stays as it is


def test_the_metric_is_taken_where_there_is_one(work):
    def largest(predict, data):
        return sum(float(predict(batch).max()) for batch, _ in data)

    measured = lab.Workload(
        work.model,
        work.inputs,
        name="vision_model",
        test=[(work.inputs.args[0], None)],
        metric=largest,
    )
    cost = lab.attention_cost(measured, keeps=(1.0, 0.25), seconds=0.1)
    assert cost.metric == "largest" and cost.values[0] == pytest.approx(
        cost.dense_value
    ) != pytest.approx(cost.values[1])


def test_shares_that_were_evaluated_before_a_stop_are_kept(work):
    stops = iter([False, False, True, True])
    cost = lab.attention_cost(work, keeps=(1.0, 0.5, 0.25), should_stop=lambda: next(stops, True))
    assert cost.keeps == (1.0, 0.5) and not cost.latency_ms and "it was stopped" in cost.note
    with pytest.raises(StoppedError):
        lab.attention_cost(work, should_stop=lambda: True)


def test_a_metric_that_was_not_finished_is_left_out_and_a_note_reports_it(work):
    counted = []

    def largest(model):
        counted.append(1)
        return float(len(counted))

    measured = lab.Workload(work.model, work.inputs, test=[(work.inputs.args[0], None)],
                            metric=lambda output, target: largest(output))  # fmt: skip
    cost = lab.attention_cost(
        measured, keeps=(1.0, 0.5, 0.25), seconds=0.1, should_stop=lambda: len(counted) > 1
    )
    assert not cost.values and "the metric was not finished and is left out" in cost.note


def test_lists_are_made_of_few_examples_of_a_large_batch(work, monkeypatch):
    seen = []
    monkeypatch.setattr(discover, "calls_of", lambda model, inputs: seen.append(inputs) or {})
    tokens = work.inputs.args[0]
    large = tokens[:1].expand(40, *tokens.shape[1:])
    few = lab.Workload(work.model, work.inputs, train=[(large, torch.zeros(40))])
    with pytest.raises(KeyError):  # of a layer without calls
        discover.lists_from_data(work.model, few, ["x"], Sparsity("block", 0.5))
    assert [len(inputs.tensors[0]) for inputs in seen][1] == discover.MOST_EXAMPLES


def test_a_model_without_such_layers_has_no_cost():
    with pytest.raises(
        MeasureError,
        match=r"has no layer that can attend to a part of its keys: 'blocks\.0\.attention': 17",
    ):
        lab.attention_cost(lab.load("vit-s-tiny"))
    with pytest.raises(MeasureError, match="Shares of the keys lie above 0 and up to 1"):
        lab.attention_cost(lab.load("vit-s-tiny"), keeps=(2.0,))


def test_the_cost_of_an_unknown_kind_is_refused_and_the_kinds_are_named(work):
    with pytest.raises(
        MeasureError, match="'moon' is no kind of attention; there are window, topk, block"
    ):
        lab.attention_cost(work, kind="moon")


def test_each_share_is_reported_with_its_fastest_number_of_threads(work, monkeypatch):
    taken = {
        " · 1": 4.0,
        " · 2": 3.0,
        "1.0 · 1": 5.0,
        "1.0 · 2": 6.0,
        "0.1 · 1": 2.0,
        "0.1 · 2": 9.0,
    }
    timed = []

    def rounds_in_turn(candidates, **options):
        timed.extend((candidate.name, candidate.threads) for candidate in candidates)
        yield {name: Samples(rounds_ms=[ms]) for name, ms in taken.items()}

    monkeypatch.setattr(costing, "thread_choices", lambda: (1, 2))
    monkeypatch.setattr(costing, "rounds_in_turn", rounds_in_turn)
    cost = lab.attention_cost(work, keeps=[1.0, 0.1], seconds=0.1)
    assert timed == [(name, int(name[-1])) for name in taken]
    assert (cost.dense_ms, cost.latency_ms) == (3.0, (5.0, 2.0))

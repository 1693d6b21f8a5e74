"""Tensor and pipeline parallelism on two processes, each against one process."""

from __future__ import annotations

import pytest

from tests.support.forked import forked

EQUAL = 2e-5  # the largest difference of a weight after some steps with momentum


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    checks = {2: "tests.support.parallel_checks:everything"}
    return forked(checks, tmp_path_factory.mktemp("ranks"))[2]


def test_column_and_row_layers_give_the_outputs_gradients_and_weights_of_the_whole(ranks):
    for rank in ranks:
        assert max(rank["layers"]["pair"]) < 1e-5
        assert rank["layers"]["parts"] == 0
        assert rank["layers"]["own_of_parts"] < 1e-6


@pytest.mark.parametrize("name", ["cnn", "vit", "gpt-like"])
def test_a_divided_model_trains_to_the_weights_of_one_process(ranks, name):
    for rank in ranks:
        result = rank["divided"][name]
        assert result["difference"] < EQUAL
        assert result["loss"] < EQUAL


@pytest.mark.parametrize("name", ["cnn", "vit", "gpt-like"])
def test_the_gradient_of_a_divided_model_is_clipped_as_in_one_process(ranks, name):
    for rank in ranks:
        result = rank["divided"][name]
        assert result["norms"] == pytest.approx(result["norms alone"], rel=1e-3)
        assert result["norms"][0] > 0.11 > result["norms"][1]


def test_processes_that_make_other_weights_and_draw_other_numbers_become_equal_to_the_first(ranks):
    first, second = (rank["unseeded"] for rank in ranks)
    assert first["losses"] == second["losses"]
    assert first["weights"] == second["weights"]
    assert first["cut"] == second["cut"] == 0


def test_each_process_has_what_the_plan_says(ranks):
    for rank in ranks:
        for name, blocks in (("cnn", 1), ("vit", 4), ("gpt-like", 4)):
            result = rank["divided"][name]
            plan = result["plan"]
            assert len(plan.divided) == len(plan.blocks) == result["still_divided"] == blocks
            row_biases = result["own"] - plan.own_parameters
            assert 0 <= row_biases <= blocks * 64 < plan.parameters - plan.own_parameters


@pytest.mark.parametrize(
    "case",
    [
        ("cnn", "gpipe"),
        ("vit", "1f1b"),
        ("gpt-like", "1f1b"),
        ("gpt-like", "gpipe"),
        ("gpt-like", "two batches a step"),
    ],
)
def test_a_pipeline_trains_to_the_weights_of_one_process(ranks, case):
    for rank in ranks:
        result = rank["piped"][case]
        assert result["difference"] < EQUAL
        assert result["loss"] < EQUAL
        assert result["untouched"] == 0


def test_a_tied_weight_of_two_stages_is_in_both_and_its_gradients_are_added(ranks):
    first, second = (rank["piped"]["gpt-like", "1f1b"] for rank in ranks)
    assert first["shared"] == second["shared"] == 1
    words = 128 * 32
    assert first["own"] + second["own"] >= first["all"] + words
    assert ranks[0]["piped"]["vit", "1f1b"]["shared"] == 0


def test_a_pipeline_s_record_has_every_pass_of_every_stage_once(ranks):
    assert ranks[0]["piped"]["vit", "1f1b"]["record"] == ranks[1]["piped"]["vit", "1f1b"]["record"]
    record = ranks[0]["piped"]["vit", "1f1b"]["record"]
    for slots in (record.predicted, record.measured):
        passes = [(slot.stage, slot.microbatch, slot.is_backward) for slot in slots]
        assert sorted(passes) == [
            (s, m, b) for s in (0, 1) for m in range(4) for b in (False, True)
        ]
    assert 0 < record.predicted_bubble < 1
    assert 0 < record.measured_bubble < 1
    first, last = record.stages
    assert first.kept_microbatches == 2
    assert last.kept_microbatches == 1
    assert first.input_bytes == 0 < last.input_bytes == 4 * 4 * 17 * 32
    assert record.split == "measured times"
    assert ranks[0]["piped"]["gpt-like", "gpipe"]["record"].split == "equal numbers of layers"


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ("odd", "7 outputs cannot be divided among 2 processes"),
        ("odd row", "7 inputs cannot be divided among 2 processes"),
        ("microbatches", "a batch of 16 cannot be cut into 5 equal microbatches"),
        ("begins", "begins='half' is unknown"),
        ("whole", "no block that can be divided among 2 processes"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(ranks, case, part):
    for rank in ranks:
        assert part in rank["refusals"][case]


def test_exchanges_take_the_time_of_the_simulated_link(ranks):
    for rank in ranks:
        exchanges = rank["exchanges"]
        assert exchanges["link_s"] == pytest.approx(exchanges["expected_s"])
        assert exchanges["seconds"] >= exchanges["link_s"]
        assert exchanges["sum"] == 4

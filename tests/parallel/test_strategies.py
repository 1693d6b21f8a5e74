"""Every strategy against one process, in two and in four processes that are started once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paifuser_lab as lab
from benchmarks.parallel_kills import kill_ranks
from paifuser_lab import parallel
from paifuser_lab.errors import FileError, ParallelError
from paifuser_lab.parallel import DataParallel
from paifuser_lab.parallel.exchange import Traffic, mean_bytes, mean_gradients
from tests.support.forked import forked
from tests.support.parallel_checkpoints import SAVED
from tests.support.parallel_loops import (
    EVERY_STEP,
    STEPS,
    STRATEGIES,
    adam,
    descent,
    model,
    reference,
    step_on,
    tokens,
)

# the largest difference of a weight after the steps; compressed, Adam's steps of 0.01 differ
TOLERANCE = {"ddp": 1e-5, "zero": 1e-5, "full": 1e-5, "local": 1e-5, "int8": 2e-3, "bf16": 2e-2}
WEIGHTS = sum(weight.nbytes for weight in model().parameters())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def groups(folder):
    """The results of two ranks and of four."""
    module = "tests.support.parallel_loops"
    return forked({2: f"{module}:everything", 4: f"{module}:on_four"}, folder)


@pytest.fixture(scope="module")
def ranks(groups):
    return groups[2]


def test_models_of_every_kind_end_with_the_weights_of_one_process_on_two_and_four(groups):
    rows = [*groups[2][0]["equal"], *groups[4][0]]
    assert len(rows) == 10
    assert [row for row in rows if not row.is_equal] == []
    assert {row.spread for row in rows} == {0.0}


def test_ranks_that_take_more_steps_than_others_are_told(ranks):
    for rank in ranks:
        assert (
            "steps when weights were to be averaged, and the ranks 5 to 6" in rank["uneven steps"]
        )
        assert "prepare(model, optimizer, loader)" in rank["uneven steps"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_ranks_end_with_equal_weights_and_ties_as_they_were(ranks, name):
    first, second = (rank["trained"][name]["weights"] for rank in ranks)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert torch.equal(first["head.weight"], first["embedding.weight"])
    assert ranks[0]["trained"][name]["class"] == "Tied"


@pytest.mark.parametrize("name", TOLERANCE)
def test_a_strategy_equals_the_training_in_one_process(ranks, name):
    every = STRATEGIES[name].get("sync_frequency", 1)
    expected = reference(2, every)
    actual = ranks[0]["trained"][name]["weights"]
    largest = max((actual[key] - expected[key]).abs().max().item() for key in expected)
    assert largest <= TOLERANCE[name]
    assert max((actual[key] - model().state_dict()[key]).abs().max() for key in actual) > 0.02


@pytest.mark.parametrize("name", EVERY_STEP)
def test_a_gradient_is_the_mean_over_the_ranks_and_not_their_sum(ranks, name):
    """Adam would not tell: its steps are as long whatever the gradient's length."""
    module = model()
    step_on(module, descent(module), torch.cat([tokens(0, rank) for rank in range(2)]))
    actual = ranks[0]["one step"][name]
    for key, expected in module.state_dict().items():
        tolerance = 1e-2 if name == "bf16" else 1e-5
        torch.testing.assert_close(actual[key], expected, atol=tolerance, rtol=0)
    start = model().state_dict()
    assert max((actual[key] - start[key]).abs().max() for key in actual) > 0.05


def test_what_int8_loses_is_added_to_the_next_mean(ranks):
    assert all(rank["lost in int8"] < 2 for rank in ranks)


def test_bytes_are_counted_and_fall(ranks):
    reports = {name: ranks[1]["trained"][name]["report"] for name in STRATEGIES}
    sent = {name: report.sent_bytes for name, report in reports.items()}
    assert all(len(steps) == STEPS for steps in sent.values())
    assert set(sent["ddp"]) == {WEIGHTS}  # a mean of two ranks sends each weight once
    assert set(sent["bf16"]) == {WEIGHTS // 2}
    flag = 24  # of the check whether all is finite and all have taken as many steps
    assert sent["local"] == tuple(
        WEIGHTS + flag if step in (1, 2, 4) else 0 for step in range(1, 7)
    )
    assert 0.24 * WEIGHTS < sent["int8"][0] < 0.4 * WEIGHTS
    assert reports["int8"].exchanges == 4
    assert sum(reports["zero"].sent_bytes) < sum(reports["full"].sent_bytes)


def test_optimizer_state_falls_by_the_number_of_ranks(ranks):
    whole = ranks[0]["trained"]["ddp"]["report"].optimizer_bytes
    for name in ("zero", "full"):
        reports = [rank["trained"][name]["report"] for rank in ranks]
        assert all(abs(report.optimizer_bytes / whole - 0.5) < 0.02 for report in reports)
        assert "optimizer state divided" in reports[0].title
    assert "exchanged in every step" in str(ranks[0]["trained"]["zero"]["report"])


@pytest.mark.parametrize("name", ["ddp", "bf16", "int8", "zero", "full"])
def test_a_value_that_is_not_finite_names_rank_and_layer_and_changes_no_weight(ranks, name):
    for rank in ranks:
        message = rank["bad"][name]["message"]
        assert "not finite on rank 1 in" in message
        assert "rank 0" not in message
        assert rank["bad"][name]["is_finite"] or name == "int8"  # its own weights were bad before
    where = {"zero": "the model"}.get(name, "blocks.1" if name == "full" else ".")
    assert where in ranks[0]["bad"][name]["message"]
    assert ranks[0]["bad"]["int8"]["is_finite"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("model", r"the weight 'weight': rank 0 has torch.float32 (2, 2), and rank 1 has"),
        ("data", "the number of examples: rank 0 has 10, and rank 1 has 11"),
        ("shared data", "the number of examples: rank 0 has 10, and rank 1 has 11"),
        ("batch", "the batch size: rank 0 has 2, and rank 1 has 3"),
        ("strategy", "the strategy: rank 0 has weights averaged every 2 steps"),
    ],
)
def test_ranks_that_are_not_alike_are_told_before_the_first_step(ranks, what, words):
    assert {rank["disagreeing"][what] for rank in ranks} == {ranks[0]["disagreeing"][what]}
    assert words in ranks[0]["disagreeing"][what]


def test_an_optimizer_of_the_weights_before_they_were_divided_is_refused(ranks):
    assert "make it after prepare(), or give it to prepare(model, optimizer)" in ranks[0]["before"]


@pytest.mark.parametrize("name", ["ddp", "int8", "full"])
def test_statistics_of_batch_norm_begin_as_those_of_rank_0_and_end_as_their_mean(ranks, name):
    for rank in ranks:
        start, final, mean = rank["batch norm"][name]
        assert start.tolist() == [0.0] * 4
        torch.testing.assert_close(final, mean)


def test_examples_in_shared_memory_are_seen_once_and_their_copies_counted(ranks):
    for order in ("in order", "shuffled"):
        both = [rank["shared"][order] for rank in ranks]
        for epoch in range(2):
            seen = sorted(value for seen, *_ in both for batch in seen[epoch] for value in batch)
            assert seen == list(range(11))
    mapped, copied = ranks[0]["shared"]["in order"][1:]
    assert mapped > 0
    assert copied == 0
    mapped, copied = ranks[0]["shared"]["shuffled"][1:]
    assert copied > 0.5 * mapped
    assert "example 1 is torch.float32 (3,)" in ranks[1]["shared"]["uneven"]


@pytest.mark.parametrize("name", SAVED)
def test_going_on_from_a_checkpoint_ends_with_the_same_weights_to_the_bit(ranks, name):
    for rank in ranks:
        found = rank["checkpoints"][name]
        assert found["loaded"] == (3, {"seen": 2})
        assert found["is_equal"]
        assert found["kept"] == ["step-0000000002", "step-0000000003"]


def test_int8_goes_on_from_a_checkpoint_that_was_saved_without_it(ranks):
    first, second = (rank["checkpoints"]["into int8"] for rank in ranks)
    assert first["loaded"] == second["loaded"] == (1, {})
    for name, weight in first["weights"].items():
        assert torch.equal(second["weights"][name], weight) and bool(weight.isfinite().all())


@pytest.mark.parametrize("name", SAVED)
def test_another_number_of_ranks_goes_on_from_a_checkpoint(ranks, folder, name):
    strategy = DataParallel(**STRATEGIES[name])
    module = model()
    module, optimizer = strategy.prepare(module, adam(module))
    loaded = parallel.Checkpoints(folder / name, strategy).load()
    assert loaded == (3, {"seen": 2})
    for step in range(3, STEPS):
        step_on(module, optimizer, torch.cat([tokens(step, rank) for rank in range(2)]))
    expected = ranks[0]["checkpoints"][name]["weights"]
    actual = module.state_dict()
    largest = max((actual[key] - expected[key]).abs().max().item() for key in expected)
    assert largest < 2e-2
    assert optimizer.state[module.blocks[0][1].weight]["step"] == STEPS


def test_an_altered_part_is_refused_on_every_rank(ranks, folder):
    for rank in ranks:
        message = rank["checkpoints"]["altered"]
        assert "was altered" in message
        assert "nothing of it was read" in message


@pytest.mark.parametrize("index", [0, 1])
def test_a_plain_loop_in_several_processes_ends_equal_in_all(ranks, index):
    first, second = (rank["plain loop"][index] for rank in ranks)
    assert all(
        torch.equal(first["weights"][key], second["weights"][key]) for key in model().state_dict()
    )
    assert "rank 0 of 2 has sent" in first["status"]


def test_a_killed_rank_goes_on_from_the_last_checkpoint_and_ends_as_if_nothing_had_happened(
    ranks, folder
):
    result = kill_ranks(1, alone=folder / "alone")
    assert len(result.kills) == 1
    assert result.is_equal
    assert result.different_steps == 0
    kill = result.kills[0]
    assert kill.resumed_at <= kill.step + 1
    assert (kill.resumed_at - 1) % 5 == 0  # what was stored last
    assert result.title.startswith("1 kill in") and result.title in result.summary
    assert result.table()[0]["went on from"] == str(kill.resumed_at)


def test_in_one_process_everything_stays_as_it_is():
    strategy = DataParallel()
    own, optimizer = model(), None
    loader = DataLoader(TensorDataset(torch.zeros(4)), batch_size=2)
    optimizer = adam(own)
    assert strategy.prepare(own, optimizer, loader) == (own, optimizer, loader)
    step_on(own, optimizer, tokens(0, 0))
    assert strategy.finish() is own
    report = strategy.report()
    assert report.sent_bytes == (0,)
    assert "there is one process" in str(report)


def test_torch_s_own_data_parallel_trains_as_before_and_is_said_to_do_nothing():
    modules = [model(), model()]
    wrapped, optimizers = nn.DataParallel(modules[0]), [adam(module) for module in modules]
    lab.enable_data_parallelism()
    try:
        for step in range(3):
            step_on(wrapped, optimizers[0], tokens(step, 0))
        status = str(lab.status())
    finally:
        lab.disable()
    for step in range(3):
        step_on(modules[1], optimizers[1], tokens(step, 0))
    for name, weight in modules[1].state_dict().items():
        assert torch.equal(modules[0].state_dict()[name], weight)
    assert "torch.nn.DataParallel does nothing here" in " ".join(status.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sync_frequency": 0}, "sync_frequency=0"),
        ({"sync_frequency": True}, "sync_frequency=True"),
        ({"shard": "half"}, "shard='half' is unknown"),
        ({"gradient_compression": "bf16"}, "every few steps it is 'int8', True or False"),
        (
            {"sync_frequency": 1, "gradient_compression": "int8"},
            "in each step it is 'bf16' or 'powersgd', True or False",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    with pytest.raises(ParallelError, match=words):
        DataParallel(**options)


def test_a_model_that_cannot_be_prepared_is_refused():
    with pytest.raises(ParallelError, match="no weight that is trained"):
        DataParallel().prepare(nn.ReLU())
    with pytest.raises(ParallelError, match="takes a model, not a str"):
        DataParallel().prepare("model")
    with pytest.raises(ParallelError, match=r"call prepare\(model\) first"):
        DataParallel().report()
    strategy = DataParallel()
    strategy.prepare(nn.Linear(1, 1))
    with pytest.raises(ParallelError, match="prepare\\(\\) was called before"):
        strategy.prepare(nn.Linear(1, 1))
    strategy.finish()


def test_time_waited_is_taken_from_the_time_of_a_step():
    now = [0.0]
    traffic = Traffic(lambda: now[0])
    traffic.note(5)
    traffic.begin()
    now[0] = 2.0
    with traffic.waiting(mean_bytes(8, 4)):
        now[0] = 3.0
    now[0] = 5.0
    traffic.end_step()
    assert traffic.rows == [(12, 1.0, 4.0)]
    assert (traffic.start_bytes, traffic.sent_bytes) == (5, 17)


def test_a_gradient_that_no_process_has_stays_missing():
    exchange = SimpleNamespace(mean=lambda values: values, traffic=Traffic())
    used, unused = (torch.ones(3, requires_grad=True) for _ in range(2))
    used.grad = torch.full((3,), 2.0)
    mean_gradients(exchange, [used, unused], [])
    assert used.grad.tolist() == [2, 2, 2] and unused.grad is None
    assert exchange.traffic.exchanges == 1


def test_a_gradient_that_another_process_has_counts_as_zero_here():
    exchange = SimpleNamespace(mean=lambda values: values + 0.5, traffic=Traffic())
    weight = torch.ones(3, requires_grad=True)
    mean_gradients(exchange, [weight], [])
    assert weight.grad.tolist() == [0.5, 0.5, 0.5]


def test_a_checkpoint_that_does_not_fit_is_refused(ranks, folder):
    strategy = DataParallel(sync_frequency=1)
    small = nn.Linear(2, 2)
    strategy.prepare(small, adam(small))
    with pytest.raises(FileError, match="'weight' has shape \\(2, 2\\) here and none there"):
        parallel.Checkpoints(folder / "bf16", strategy).load()
    with pytest.raises(FileError, match="was saved where optimizer state is divided"):
        parallel.Checkpoints(folder / "full", strategy).load()
    strategy.finish()

"""Which rank sees which example: each once, in as many steps on each rank."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from paifuser_lab.errors import ParallelError
from paifuser_lab.parallel import Group
from paifuser_lab.parallel.exchange import BLOCK, from_int8, to_int8
from paifuser_lab.parallel.group import disagreement
from paifuser_lab.parallel.loaders import EachOnce, divided_loader


@given(
    world=st.integers(1, 9),
    extra=st.integers(0, 80),
    size=st.integers(1, 7),
    seed=st.integers(0, 99),
    shuffle=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_each_example_is_seen_once_and_no_rank_waits_for_a_step(world, extra, size, seed, shuffle):
    examples = world + extra
    samplers = [
        EachOnce(examples, size, Group(rank, world), seed=seed, shuffle=shuffle)
        for rank in range(world)
    ]
    for _ in range(2):
        seen = [list(sampler) for sampler in samplers]
        assert sorted(item for batches in seen for batch in batches for item in batch) == list(
            range(examples)
        )
        assert {len(batches) for batches in seen} == {len(samplers[0])}
        sizes = {len(batch) for batches in seen for batch in batches}
        assert 0 not in sizes
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= max(size, 2)


def test_an_epoch_has_its_own_order_which_can_be_set():
    sampler, again = (EachOnce(20, 4, Group(0, 2)) for _ in range(2))
    first, second = list(sampler), list(sampler)
    assert first != second
    again.set_epoch(1)
    assert list(again) == second


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ParallelError, match="2 examples are too few for 3 ranks"):
        EachOnce(2, 1, Group(0, 3))
    with pytest.raises(ParallelError, match="too few for 2 ranks with drop_last"):
        EachOnce(7, 4, Group(0, 2), drop_last=True)

    class Endless(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(ParallelError, match="cannot be picked by number"):
        divided_loader(DataLoader(Endless()), Group(0, 2))


@pytest.mark.parametrize(
    "sampler",
    [SubsetRandomSampler([1, 2]), RandomSampler(range(4), num_samples=2), [3, 2, 1, 0]],
)
def test_a_sampler_that_chooses_examples_is_refused(sampler):
    with pytest.raises(ParallelError, match="give the data set that is meant"):
        divided_loader(DataLoader(range(4), sampler=sampler), Group(0, 2))


def test_a_divided_loader_keeps_its_options():
    loader = DataLoader(
        TensorDataset(torch.arange(8)), batch_size=2, shuffle=True, collate_fn=len, timeout=0
    )
    divided = divided_loader(loader, Group(1, 2))
    assert divided.collate_fn is len
    assert list(divided) == [2, 2]
    assert list(divided_loader(DataLoader(range(4)), Group(1, 2))) == [
        torch.tensor([1]), torch.tensor([3]),
    ]  # fmt: skip


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=BLOCK, max_size=BLOCK))
@settings(max_examples=40, deadline=None)
def test_int8_errs_by_half_a_step_at_most(values):
    tensor = torch.tensor(values)
    error = (from_int8(*to_int8(tensor)) - tensor).abs().max()
    assert error <= tensor.abs().max() / 127 * 0.5001


def test_the_first_difference_between_ranks_is_named():
    same = {"a": "1", "b": "2"}
    assert disagreement([same, dict(same), same]) == ""
    assert "on b: rank 0 has 2, and rank 2 has 3" in disagreement(
        [same, same, {"a": "1", "b": "3"}]
    )
    assert "on b: rank 0 has 2, and rank 1 has nothing" in disagreement([same, {"a": "1"}])
    assert "on c: rank 0 has nothing" in disagreement([same, same | {"c": "1"}])

"""Splits of a chain into stages, against every split; schedules of pipelines, simulated."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paifuser_lab.errors import StepError
from paifuser_lab.parallel.schedules import SCHEDULES, equal_split, partition, simulate, tasks_of
from paifuser_lab.records.parallel import bubble, span_ms

COSTS = st.lists(st.integers(0, 20), min_size=1, max_size=8)


def largest(values, begins):
    ends = [*begins[1:], len(values)]
    return max(sum(values[a:b]) for a, b in zip(begins, ends, strict=True))


@given(COSTS, st.integers(1, 8), st.data())
def test_no_split_within_the_limit_has_a_quicker_slowest_stage(costs, stages, data):
    stages = min(stages, len(costs))
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=len(costs), max_size=len(costs)))
    limit = data.draw(st.integers(0, 40))
    splits = [(0, *rest) for rest in combinations(range(1, len(costs)), stages - 1)]
    allowed = [split for split in splits if largest(sizes, split) <= limit]
    if not allowed:
        with pytest.raises(StepError, match="keeps each within"):
            partition(costs, stages, sizes=sizes, limit=limit)
        return
    begins = partition(costs, stages, sizes=sizes, limit=limit)
    assert begins in allowed
    assert largest(costs, begins) == min(largest(costs, split) for split in allowed)


@given(st.integers(1, 30), st.data())
def test_an_equal_split_differs_by_one_layer_at_most(count, data):
    stages = data.draw(st.integers(1, count))
    begins = equal_split(count, stages)
    sizes = [b - a for a, b in zip(begins, [*begins[1:], count], strict=True)]
    assert begins[0] == 0
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "split", [partition, lambda costs, stages: equal_split(len(costs), stages)]
)
def test_more_stages_than_layers_are_refused(split):
    with pytest.raises(StepError, match="give 1 to 2"):
        split([1, 1], 3)


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(1, 9),
)
def test_equal_stages_have_the_bubble_of_the_textbook(schedule, stages, microbatches, f, b):
    slots = simulate(schedule, [f] * stages, [b] * stages, microbatches)
    assert span_ms(slots) == pytest.approx((microbatches + stages - 1) * (f + b))
    expected = (stages - 1) / (microbatches + stages - 1)
    assert bubble(slots, stages) == pytest.approx(expected)


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(0, 5),
)
def test_no_pass_begins_before_its_input_is_there(schedule, times, microbatches, transfer):
    forward, backward = zip(*times, strict=True)
    slots = simulate(schedule, forward, backward, microbatches, transfer)
    assert len(slots) == 2 * microbatches * len(times)
    by_key = {(slot.stage, slot.microbatch, slot.is_backward): slot for slot in slots}
    for (stage, index, is_backward), slot in by_key.items():
        source = by_key.get((stage + (1 if is_backward else -1), index, is_backward))
        if source is not None:
            assert slot.begin_ms >= source.end_ms + transfer
        if is_backward:
            assert slot.begin_ms >= by_key[stage, index, False].end_ms
    for stage in range(len(times)):
        own = sorted((s.begin_ms, s.end_ms) for s in slots if s.stage == stage)
        assert all(a[1] <= b[0] for a, b in pairwise(own))


def test_one_forward_one_backward_keeps_as_many_microbatches_as_stages_follow():
    kept = []
    for tasks in tasks_of("1f1b", 3, 6):
        now = most = 0
        for task in tasks:
            now += -1 if task.is_backward else 1
            most = max(most, now)
        kept.append(most)
    assert kept == [3, 2, 1]


@pytest.mark.parametrize(("schedule", "microbatches"), [("zigzag", 2), ("gpipe", 0)])
def test_unknown_schedules_and_no_microbatches_are_refused(schedule, microbatches):
    with pytest.raises(StepError, match=r"there are gpipe, 1f1b|microbatches=0"):
        tasks_of(schedule, 2, microbatches)

"""Packing: no two live buffers overlap, and nothing beats the lower bound or the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.memory import planning
from paifuser_lab.memory.planning import Span, lower_bound, pack, smallest_arena


def spans(longest: int, size: int = 50) -> st.SearchStrategy[list[Span]]:
    one = st.builds(
        lambda size, begin, length: Span(size, begin, begin + length),
        st.integers(1, size),
        st.integers(0, 10),
        st.integers(0, 5),
    )
    return st.lists(one, max_size=longest)


def height_of(buffers: Sequence[Span], offsets: Sequence[int]) -> int:
    return max((at + one.size for one, at in zip(buffers, offsets, strict=True)), default=0)


def check_apart(buffers: Sequence[Span], offsets: Sequence[int]) -> None:
    assert len(offsets) == len(buffers) and all(at >= 0 for at in offsets)
    for (one, at), (other, beside) in combinations(zip(buffers, offsets, strict=True), 2):
        if set(range(one.begin, one.end + 1)) & set(range(other.begin, other.end + 1)):
            assert at + one.size <= beside or beside + other.size <= at


def alive(buffers: Sequence[Span], step: int) -> int:
    return sum(one.size for one in buffers if one.begin <= step <= one.end)


@settings(max_examples=150, deadline=None)
@given(spans(40))
def test_best_fit_keeps_live_buffers_apart_and_never_beats_the_lower_bound(buffers):
    bound = lower_bound(buffers)
    assert bound == max((alive(buffers, step) for step in range(20)), default=0)
    packed = pack(buffers, seconds=0.2)
    check_apart(buffers, packed.offsets)
    assert packed.height == height_of(buffers, packed.offsets) >= bound
    assert packed.best_fit >= packed.height
    assert packed.is_optimal or packed.height > bound


def exhaustive(buffers: Sequence[Span]) -> int:
    """The smallest arena: some order of placing each on those below it gives it."""
    smallest = sum(one.size for one in buffers)
    for order in permutations(range(len(buffers))):
        offsets: dict[int, int] = {}
        for index in order:
            offsets[index] = max(
                (at + buffers[other].size for other, at in offsets.items()
                 if buffers[other].meets(buffers[index])),
                default=0,
            )  # fmt: skip
        smallest = min(smallest, height_of(buffers, [offsets[i] for i in range(len(buffers))]))
    return smallest


@settings(max_examples=40, deadline=None)
@given(spans(5, size=9).filter(bool))
def test_the_integer_program_finds_the_smallest_arena(buffers):
    total = sum(one.size for one in buffers)
    found = smallest_arena(buffers, at_least=lower_bound(buffers), at_most=total, seconds=20)
    assert found is not None
    offsets, is_proven = found
    assert is_proven
    check_apart(buffers, offsets)
    assert height_of(buffers, offsets) == exhaustive(buffers)


# best fit by size and by lifetime both leave a gap here
HARD = [Span(3, 2, 4), Span(3, 2, 2), Span(1, 3, 4), Span(3, 0, 2), Span(5, 3, 4)]


def test_a_smaller_arena_of_the_integer_program_is_taken():
    packed = pack(HARD)
    assert packed.method == "integer program" and packed.is_optimal
    assert (packed.height, packed.best_fit) == (9, 11)
    check_apart(HARD, packed.offsets)


def test_only_few_buffers_are_packed_by_the_integer_program(monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("too many for it")

    many = [*HARD, *(Span(1, 30 + index, 30 + index) for index in range(61 - len(HARD)))]
    monkeypatch.setattr(planning, "smallest_arena", refuse)
    assert pack(many).method != "integer program" and not pack(many).is_optimal
    with pytest.raises(AssertionError, match="too many"):
        pack(many[:-1])


def test_without_time_the_best_fit_is_kept_and_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr(planning, "smallest_arena", lambda *args, **kwargs: None)
    packed = pack(HARD)
    assert packed.height == packed.best_fit and not packed.is_optimal

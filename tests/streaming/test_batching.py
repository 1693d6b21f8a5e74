"""Dynamic batching: by count and delay, over a clock that is passed in, and on a thread."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.errors import StreamError
from paifuser_lab.streaming import Batcher, BatchRule, Items


@given(st.lists(st.integers(), max_size=40), st.integers(1, 6))
@settings(deadline=None)
def test_every_item_is_in_one_group_in_order_and_all_but_the_last_are_full(items, count):
    groups = list(Items(items, group=count).groups())
    assert [item for group in groups for item in group.payload] == items
    assert all(group.count == count for group in groups[:-1])


def test_a_batch_that_is_full_is_called_at_once():
    calls = []
    batcher = Batcher(lambda items: calls.append(items) or items, BatchRule(3, None))
    answers = [batcher.submit(index) for index in range(6)]
    assert [answer.result(10) for answer in answers] == list(range(6))
    batcher.close()
    assert calls == [[0, 1, 2], [3, 4, 5]] and batcher.sizes == {3: 2}


def test_a_batch_that_waits_is_called_after_the_delay_and_at_the_close():
    batcher = Batcher(lambda items: [-item for item in items], BatchRule(100, 1.0))
    assert batcher.submit(4).result(10) == -4
    batcher.close()
    late = Batcher(lambda items: items, BatchRule(100, None))
    answer = late.submit(5)
    late.close()
    assert answer.result(10) == 5
    with pytest.raises(StreamError, match="is closed"):
        late.submit(6)


def test_more_items_than_may_wait_are_refused_and_cancelled_ones_are_left_out():
    entered, release, calls = threading.Event(), threading.Event(), []

    def call(items):
        calls.append(items)
        entered.set()
        release.wait(20)
        return items

    batcher = Batcher(call, BatchRule(1, 0.0), capacity=2)
    first = batcher.submit("a")
    entered.wait(20)
    cancelled, last = batcher.submit("b"), batcher.submit("c")
    with pytest.raises(StreamError, match="2 items wait already"):
        batcher.submit("d")
    assert cancelled.cancel() and batcher.waiting == 1
    in_its_place = batcher.submit("d")
    with pytest.raises(StreamError, match="2 items wait already"):
        batcher.submit("e")
    assert in_its_place.cancel()
    release.set()
    assert (first.result(20), last.result(20)) == ("a", "c")
    batcher.close()
    assert calls == [["a"], ["c"]] and batcher.sizes == {1: 2}


def test_an_error_reaches_all_items_of_its_batch_and_no_others():
    def call(items):
        if "bad" in items:
            raise ValueError("no")
        return items if "short" not in items else []

    batcher = Batcher(call, BatchRule(1, 0.0))
    bad, good, short = (batcher.submit(item) for item in ("bad", "good", "short"))
    assert good.result(10) == "good"
    with pytest.raises(ValueError, match="no"):
        bad.result(10)
    with pytest.raises(StreamError, match="returned 0 answers for 1 items"):
        short.result(10)
    batcher.close()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ((0, 1.0), "count=0"),
        ((True, 1.0), "True"),
        ((1, -1.0), r"-1\.0 ms"),
        ((1, float("inf")), "inf"),
    ],
)
def test_impossible_rules_are_refused(rule, words):
    with pytest.raises(StreamError, match=words):
        BatchRule(*rule)


def test_items_are_grouped_from_any_group_on():
    items = Items(range(10), group=4)
    assert [group.payload for group in items.groups(1)] == [[4, 5, 6, 7], [8, 9]]
    assert [(group.sequence, group.first) for group in items.groups(1)] == [(1, 4), (2, 8)]
    assert items.frames == 10 and items.can_reopen
    assert not Items(iter([])).can_reopen


@pytest.mark.parametrize("frames", ["clip.mp4", Path("clip.mp4"), b"clip.mp4"])
def test_a_path_is_no_list_of_letters(frames):
    with pytest.raises(StreamError, match=r"is a path; open it as a source, VideoFile"):
        Items(frames)
    with pytest.raises(StreamError, match="A int is no source of frames"):
        Items(3)

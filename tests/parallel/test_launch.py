"""`parallel.run`: results and logs, failures that name the rank, and nothing left running."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from paifuser_lab import parallel
from paifuser_lab.errors import (
    DataError,
    ParallelError,
    StepError,
    StoppedError,
    terminated_like_ctrl_c,
)
from paifuser_lab.parallel import launch, worker
from paifuser_lab.training.run import named_failure
from paifuser_lab.workload.data.source import naming_batch


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert not {child.pid for child in psutil.Process().children(recursive=True)} - before


def asleep() -> None:
    time.sleep(600)


def once_to_rank_1(number: int) -> Callable[[], bool]:
    """Sends a signal to rank 1 as soon as it is there."""
    before, sent = set(psutil.Process().children()), []

    def send() -> bool:
        started = set(psutil.Process().children()) - before
        if not sent:
            (second,) = (child for child in started if child.environ()["RANK"] == "1")
            sent.append(second.send_signal(number))
        return False

    return send


def test_what_each_rank_returns_prints_and_tells_comes_with_its_rank():
    lines, told = [], []
    factor = 2

    def local(more: int) -> int:  # as a notebook's function, sent by value
        rank = parallel.join().rank
        sys.stdout.write(f"has {factor * rank}\n")
        parallel.tell({"rank": rank})
        return rank + more

    results = parallel.run(
        local,
        5,
        on_log=lambda rank, line: lines.append((rank, line)),
        on_told=lambda rank, value: told.append((rank, value)),
    )
    assert results == [5, 6]
    assert {(0, "has 0"), (1, "has 2")} <= set(lines)
    assert sorted(told, key=str) == [(0, {"rank": 0}), (1, {"rank": 1})]


def test_a_killed_rank_ends_all_and_is_named(monkeypatch):
    monkeypatch.setattr(launch, "GRACE_S", 0.0)
    with pytest.raises(ParallelError, match=r"rank 1 of 2 was killed by SIGKILL; all 2 were ended"):
        parallel.run(asleep, should_stop=once_to_rank_1(signal.SIGKILL))


def seen(rank: int, failure: dict[str, Any] | None = None, **other: Any) -> Any:
    """A rank that has failed, has ended, or is still at work."""
    known = {"result": []} | other
    is_over = failure is not None or bool(known["result"])
    return SimpleNamespace(rank=rank, failure=failure, is_over=is_over, **known)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (seen(1), r"rank 0 of 2 failed: late; it waited up to 3 s for rank 1, still at work"),
        (seen(1, result=[7]), "rank 0 of 2 failed: late; rank 1 had ended already: do all take as"),
        (seen(1, {"message": "broken.", "traceback": "", "is_by_another": False}), "rank 1 .*: br"),
    ],
)
def test_the_failure_that_began_it_is_named_before_the_one_that_follows(second, words):
    """Rank 0 has waited for rank 1 in vain."""
    first = seen(0, {"message": "late.", "traceback": "at line 1", "is_by_another": True})
    error = launch.failure_of([first, second], 3)
    assert re.match(words, str(error))
    assert str(error).endswith("all 2 were ended.")


@pytest.mark.parametrize(("error", "is_by_another"), [(RuntimeError, True), (ValueError, False)])
def test_waiting_in_vain_inside_a_step_of_training_follows_from_another_rank(error, is_by_another):
    with pytest.raises(StepError) as caught, named_failure("epoch 1, step 1 of 5"):
        raise error("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 120000ms")
    assert worker._failure(caught.value)["is_by_another"] is is_by_another


def test_a_loader_that_waits_in_vain_follows_from_no_other_rank():
    with pytest.raises(DataError) as caught, naming_batch("train data", 3):
        raise RuntimeError("DataLoader timed out after 30 seconds")
    assert worker._failure(caught.value)["is_by_another"] is False


def test_an_interrupt_and_a_stop_leave_no_process():
    asked = []

    def interrupt() -> bool:
        asked.append(psutil.Process().children(recursive=True))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel.run(asleep, should_stop=interrupt)
    assert len(asked[0]) == 2
    with pytest.raises(StoppedError):
        parallel.run(asleep, should_stop=lambda: True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_processes_start_or_end_comes_after_all_have_ended(monkeypatch, number):
    """Two in a row too, as an impatient user gives them; SIGTERM as the command line handles it."""
    started = []

    class Interrupted(launch.Rank):
        def __init__(self, *options: Any) -> None:
            super().__init__(*options)
            started.append(self.process)
            signal.raise_signal(number)  # it is not in the list of ranks yet

        def end(self) -> None:
            signal.raise_signal(number)
            super().end()

    monkeypatch.setattr(launch, "Rank", Interrupted)
    with terminated_like_ctrl_c(), pytest.raises(KeyboardInterrupt):
        parallel.run(asleep)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_a_rank_whose_end_fails_does_not_keep_the_others(monkeypatch):
    def broken(rank: int, line: str) -> None:
        raise BrokenPipeError("nobody reads")

    class Chatty(launch.Rank):
        def end(self) -> None:
            super().end()
            self.on_log(self.rank, "ended")

    monkeypatch.setattr(launch, "Rank", Chatty)
    with pytest.raises(BrokenPipeError):
        parallel.run(asleep, on_log=broken, should_stop=lambda: True)


def test_what_cannot_run_is_refused_in_a_sentence(monkeypatch):
    with pytest.raises(ParallelError, match="processes=0"):
        parallel.run(asleep, processes=0)
    with pytest.raises(ParallelError, match="timeout_s=-1 is no time to wait"):
        parallel.run(asleep, timeout_s=-1)
    with pytest.raises(ParallelError, match="cannot be sent to another process"):
        parallel.run(asleep, threading.Lock())
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ParallelError, match="RANK=2 is none of WORLD_SIZE=2"):
        parallel.join()

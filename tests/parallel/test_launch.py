"""`parallel.run`: failures that name the rank, and nothing left running; results and logs are
checked with the strategies.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from paifuser_lab import parallel
from paifuser_lab.errors import ParallelError, StoppedError
from paifuser_lab.parallel import launch


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


def test_a_killed_rank_ends_all_and_is_named(monkeypatch):
    monkeypatch.setattr(launch, "GRACE_S", 0.0)
    with pytest.raises(ParallelError, match=r"rank 1 of 2 was killed by SIGKILL; all 2 were ended"):
        parallel.run(asleep, should_stop=once_to_rank_1(signal.SIGKILL))


def test_a_rank_that_stands_still_is_an_error_within_the_timeout(monkeypatch):
    monkeypatch.setattr(launch, "GRACE_S", 0.0)
    with pytest.raises(ParallelError, match="rank 1 of 2 stands still, as a signal has stopped it"):
        parallel.run(asleep, timeout_s=0.5, should_stop=once_to_rank_1(signal.SIGSTOP))


def seen(rank: int, failure: dict[str, Any] | None = None, is_stopped: bool = False) -> Any:
    """A rank that has failed or is still at work."""
    return SimpleNamespace(
        rank=rank, failure=failure, is_stopped=is_stopped, is_over=failure is not None
    )


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (seen(1), r"rank 0 of 2 failed: late; it waited up to 3 s for rank 1, still at work"),
        (seen(1, is_stopped=True), "rank 1 of 2 stands still, as a signal has stopped it; all"),
        (seen(1, {"message": "broken.", "traceback": "", "is_by_another": False}), "rank 1 .*: br"),
    ],
)
def test_the_failure_that_began_it_is_named_before_the_one_that_follows(second, words):
    """Rank 0 has waited for rank 1 in vain."""
    first = seen(0, {"message": "late.", "traceback": "at line 1", "is_by_another": True})
    error = launch.Launch([first, second], 3, lambda: False)._error()
    assert re.match(words, str(error))
    assert str(error).endswith("all 2 were ended.")


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


def test_what_cannot_run_is_refused_in_a_sentence(monkeypatch):
    with pytest.raises(ParallelError, match="processes=0 is no number of processes"):
        parallel.run(asleep, processes=0)
    with pytest.raises(ParallelError, match="timeout_s=-1 is no time to wait"):
        parallel.run(asleep, timeout_s=-1)
    with pytest.raises(ParallelError, match="cannot be sent to another process"):
        parallel.run(asleep, threading.Lock())
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ParallelError, match="RANK=2 is none of WORLD_SIZE=2"):
        parallel.join()

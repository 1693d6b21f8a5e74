"""A thread that runs jobs while there are any, the load of others on the machine meanwhile, and
waiting until there is none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import message_of
from ..machine.host import CoreUse, core_use, others_share
from ..machine.openmp import release_pool
from ..records.quality import MAX_OTHERS

SAMPLE_S = 1.0
HISTORY = 60  # samples that are kept
QUIET_SAMPLES = 5  # in a row, and the machine is quiet
PATIENCE = 120  # samples to wait for them

Job = Callable[[], None]
Shares = tuple[float, ...]


class Worker:
    """A thread that lives while there are jobs: an idle one has ended, and refers to nothing.

    What runs a model leaves OpenMP threads behind, which slow down every other thread's: they are
    released before the worker starts, after each of its jobs, and by who waits for it.
    """

    def __init__(self, name: str, lock: threading.RLock) -> None:
        self.name = name
        self.thread: threading.Thread | None = None
        self.load = LoadHistory()
        self._ended = threading.Condition(lock)

    def start(
        self,
        next_job: Callable[[], Job | None],
        on_load: Callable[[Shares], object],
        on_error: Callable[[BaseException], object],
    ) -> None:
        """Start the thread unless it runs; it runs jobs until there is none, or one raises."""
        release_pool()
        if self.thread is not None:
            return

        def run() -> None:
            try:
                with self.load.sampling(on_load):
                    while job := next_job():
                        try:
                            job()
                        finally:
                            release_pool()
            except BaseException as error:
                on_error(error)

        self.thread = threading.Thread(target=run, name=self.name, daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Wake up who waits; called under the lock, by the thread that is about to end."""
        self.thread = None
        self._ended.notify_all()

    def wait(self, timeout: float | None) -> None:
        """Wait until there is no thread; called under the lock, which is released meanwhile."""
        release_pool()
        self._ended.wait_for(lambda: self.thread is None, timeout)


class LoadHistory:
    """The share of the cores that others took in each of the last seconds."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=HISTORY)
        self._thread = threading.get_ident()
        self._before: CoreUse = core_use()

    @property
    def shares(self) -> Shares:
        return tuple(self._shares)

    def sample(self) -> float:
        """Add the share since the last sample."""
        now = core_use(self._thread)
        share = min(1.0, others_share(self._before, now))
        self._before = now
        self._shares.append(round(share, 3))
        return share

    @contextmanager
    def sampling(self, on_sample: Callable[[Shares], object]) -> Iterator[None]:
        """Sample each second until the block is left; the calling thread's own work is no load."""
        self._thread = threading.get_ident()
        self._before = core_use()

        def sample(seconds: int) -> None:
            self.sample()
            on_sample(self.shares)

        with each_second(sample):
            yield


@contextmanager
def each_second(call: Callable[[int], object]) -> Iterator[None]:
    """Run `call(1)` after one second, `call(2)` after two, in a thread, until the block is left."""
    is_over = threading.Event()

    def count() -> None:
        seconds = 0
        while not is_over.wait(SAMPLE_S):
            seconds += 1
            call(seconds)

    thread = threading.Thread(target=count, name="seconds", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def wait_until_quiet(
    should_stop: Callable[[], bool], on_sample: Callable[[int], object]
) -> float | None:
    """Wait for five quiet seconds in a row, at most two minutes.

    None if they came or `should_stop` said so, else the largest share that others took in the last
    seconds; `on_sample` gets the number of quiet seconds so far.
    """
    load, quiet = LoadHistory(), 0
    is_over = threading.Event()
    for _ in range(PATIENCE):
        if should_stop():
            return None
        is_over.wait(SAMPLE_S)
        quiet = quiet + 1 if load.sample() <= MAX_OTHERS else 0
        on_sample(quiet)
        if quiet >= QUIET_SAMPLES:
            return None
    return max(load.shares[-QUIET_SAMPLES:])


def error_message(error: BaseException) -> str:
    """One sentence for an error or an interrupt."""
    if not isinstance(error, Exception):
        return (
            f"The model was interrupted while it ran ({type(error).__name__}); nothing was "
            "changed; try again."
        )
    return message_of(error)

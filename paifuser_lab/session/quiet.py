"""The load of others on the machine, each second, and waiting until there is none."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..machine.host import CoreUse, core_use, others_share
from ..records.quality import MAX_OTHERS

SAMPLE_S = 1.0
HISTORY = 60  # samples that are kept
QUIET_SAMPLES = 5  # in a row, and the machine is quiet
PATIENCE = 120  # samples to wait for them


class LoadHistory:
    """The share of the cores that others took in each of the last seconds."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=HISTORY)
        self._thread = threading.get_ident()
        self._before: CoreUse = core_use()

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(self._shares)

    def sample(self) -> float:
        """Add the share since the last sample."""
        now = core_use(self._thread)
        share = min(1.0, others_share(self._before, now))
        self._before = now
        self._shares.append(round(share, 3))
        return share

    @contextmanager
    def sampling(self, on_sample: Callable[[tuple[float, ...]], object]) -> Iterator[None]:
        """Sample each second in a thread of its own, until the block is left; the calling thread's
        own work does not count as load.
        """
        is_over = threading.Event()
        self._thread = threading.get_ident()
        self._before = core_use()

        def keep_sampling() -> None:
            while not is_over.wait(SAMPLE_S):
                self.sample()
                on_sample(self.shares)

        thread = threading.Thread(target=keep_sampling, name="load", daemon=True)
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

    Returns None if they came or `should_stop` said so, else the largest share that others took in
    the last seconds; `on_sample` gets the number of quiet seconds so far.
    """
    load, quiet = LoadHistory(), 0
    is_over = threading.Event()
    for _ in range(PATIENCE):
        if should_stop():
            return None
        is_over.wait(SAMPLE_S)
        share = load.sample()
        quiet = quiet + 1 if share <= MAX_OTHERS else 0
        on_sample(quiet)
        if quiet >= QUIET_SAMPLES:
            return None
    return max(load.shares[-QUIET_SAMPLES:])

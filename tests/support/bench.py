"""A workbench as tests of the widgets have it: one round, a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import paifuser_lab as lab
from paifuser_lab.session.state import State

TIMEOUT_S = 120.0


@contextmanager
def opened(work: lab.Workload, folder: Path, *, rounds: int = 1) -> Iterator[lab.Workbench]:
    """A workbench in this folder that has profiled and measured its model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        bench = lab.Workbench(work, rounds=rounds, seconds=0.1)
        try:
            bench.wait(TIMEOUT_S)
            yield bench
        finally:
            bench.close()


def emptied(bench: lab.Workbench) -> lab.Workbench:
    """The workbench as a test shall find it: with an empty recipe, and without an error."""
    bench.recipe = lab.Recipe([], workload=bench.session.work.name)
    bench.session.set_error(None)
    bench.wait(TIMEOUT_S)
    return bench


def ask(panel: Any, **request: Any) -> None:
    """Send a panel a request as the page does, and do not wait for what the worker makes of it."""
    panel.requests = [{**request, "id": panel.served + 1}]


def send(bench: lab.Workbench, **request: Any) -> State:
    """The state that follows from a request, sent as the page does: after those not yet served."""
    last = max([bench.served, *(earlier["id"] for earlier in bench.requests)])
    bench.requests = [*bench.requests, {**request, "id": last + 1}]
    return bench.wait(TIMEOUT_S)

"""What every test stands on: a cache of this run alone, silence, and the hand-written models beside
this file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

import paifuser_lab as lab
from paifuser_lab.attention import evaluate as attention_evaluate
from paifuser_lab.fusion import evaluate
from paifuser_lab.session import session
from tests.support.models import Small, images

PATIENCE = 120.0

if os.environ.get(
    "PAIFUSER_REQUIRE"
    # what decides whether a change lands draws the same examples each time; `make test` goes on
    # looking
):
    settings.register_profile("landing", derandomize=True)
    settings.load_profile("landing")


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache folder for all tests and all their processes, so that the hardware is measured
    once; no progress is shown.
    """
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "paifuser-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAIFUSER_CACHE", str(folder))
        patch.setenv("PAIFUSER_PROGRESS", "none")
        patch.delenv("PAIFUSER_HARDWARE", raising=False)
        yield folder


@pytest.fixture(autouse=True)
def same_chance_and_threads() -> Iterator[None]:
    """Each test draws the same random numbers and leaves torch's threads as it found them."""
    torch.manual_seed(0)
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before, (
        "a test or the code it ran changed torch's number of threads for good"
    )


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny models only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def always_quicker() -> Iterator[list[Any]]:
    """No wall time is taken: as one everything is twice as fast. The places that were timed are
    counted.
    """
    counted: list[Any] = []

    def timed(calls: dict[str, Any], device: torch.device) -> dict[str, float]:
        counted.extend([device] if evaluate.AS_ONE not in calls else [])
        return dict.fromkeys(calls, 1.0) | {evaluate.APART: 2.0}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "timed", timed)
        yield counted


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What it says when attention is timed: milliseconds before and after."""
    said = {"before": 2.0, "after": 1.0}
    monkeypatch.setattr(
        attention_evaluate, "compare_ms", lambda *given: (said["before"], said["after"])
    )
    return said


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.Workbench]:
    """A workbench of a small model that has been looked at; `as_it_was` empties it for each
    test.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("bench"))
        patch.setattr(session, "LOOK_S", 0.05)
        made = lab.Workbench(lab.Workload(Small(), images(), name="small"), rounds=1, seconds=0.1)
        made.wait(PATIENCE)
        yield made
        made.close()


@pytest.fixture
def as_it_was(request: pytest.FixtureRequest) -> None:
    """The workbench is shared; each test that has it finds it empty."""
    if "bench" in request.fixturenames:
        made = request.getfixturevalue("bench")
        made.recipe = lab.Recipe([], workload="small")
        made.sensitivity = made.importance = made.allocation = None
        made.session.tell(None)
        made.wait(PATIENCE)

"""What every test stands on: a cache of this run alone, silence, and the hand-written models beside this file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for `from models import …`; pytest runs in importlib mode


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache folder for all tests and all their processes, so that the hardware is measured once; no progress is shown."""
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
    assert torch.get_num_threads() == before, "a test or the code it ran changed torch's number of threads for good"

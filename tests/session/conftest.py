"""Fixtures of the tests of sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import paifuser_lab as lab
from paifuser_lab.session import Session
from tests.support.bench import TIMEOUT_S
from tests.support.models import Small, images


@pytest.fixture
def session() -> Iterator[Session]:
    """A session of a small model that has profiled and measured it."""
    session = Session(lab.Workload(Small(), images(), name="small"), rounds=2, seconds=0.1)
    session.wait(TIMEOUT_S)
    yield session
    session.close()
    session.wait(TIMEOUT_S)

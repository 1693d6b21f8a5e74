"""Fixtures of the browser tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.jupyterlab import Lab, browsing, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One server for all tests of a worker."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "notebooks").mkdir()
    with serving(folder / "notebooks", folder / "home") as server:
        yield server


@pytest.fixture(scope="module")
def served(server: Lab) -> Iterator[tuple[Any, Any]]:
    """The server, and one browser for all tests of a file."""
    with browsing() as browser:
        yield server, browser

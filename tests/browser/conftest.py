"""Fixtures of several browser tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import jupyterlab


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """One server and one browser for all tests of a file."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "notebooks").mkdir()
    with (
        jupyterlab.serving(folder / "notebooks", folder / "home") as server,
        jupyterlab.browsing() as browser,
    ):
        yield server, browser

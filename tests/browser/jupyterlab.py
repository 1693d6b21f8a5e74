"""What the browser tests share: when they run, and notebooks of ours that take little time. The
driving is `tests.support.jupyterlab`.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest

from paifuser_lab._files import asset
from tests.support.jupyterlab import Lab, Page, chromium
from tests.support.jupyterlab import showing as showing_page


def marks() -> list[Any]:
    """The marks of every browser test: skipped with a reason if there is no Chromium, unless it is
    required.
    """
    is_required = "browser" in os.environ.get("PAIFUSER_REQUIRE", "")
    absent = chromium() is None and not is_required
    return [
        pytest.mark.browser,
        pytest.mark.timeout(600),
        pytest.mark.skipif(absent, reason="there is no Chromium on this machine"),
    ]


@contextmanager
def showing(server: Lab, notebook: str, browser: Any) -> Iterator[Page]:
    """A page that shows one notebook; at the end its Jupyter kernel is shut down."""
    try:
        with showing_page(server, notebook, browser) as shown:
            yield shown
    finally:
        for session in json.loads(_request(server, "sessions")):
            if session["path"] == notebook:
                _request(server, f"sessions/{session['id']}", method="DELETE")


def _request(server: Lab, path: str, method: str = "GET") -> bytes:
    url = f"{server.url}/api/{path}?token={server.token}"
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
        text: bytes = answer.read()
    return text


def quick_copy(name: str, folder: Path, parameters: str) -> None:
    """Copy one of the repository's notebooks, not run, with parameters that take little time."""
    notebook = nbformat.read(asset(f"notebooks/{name}"), as_version=4)
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    cell.source += f"\n{parameters}"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    folder.mkdir(exist_ok=True)
    nbformat.write(notebook, folder / name)

"""Measurements in a process of their own, which finds this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from paifuser_lab.errors import MeasureError

ROOT = Path(__file__).parent.parent


def environment(**more: str) -> dict[str, str]:
    """This process's, with the checkout on Python's path and no progress bars."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PAIFUSER_PROGRESS": "none", **more}


def printed(what: str, words: Sequence[str], *, limit_s: float, **more: str) -> list[str]:
    """The lines that Python prints when it is called with these words and variables."""
    command = [sys.executable, *words]
    try:
        process = subprocess.run(
            command,
            env=environment(**more),
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasureError(
            f"{what} took more than {limit_s:.0f} s; nothing is recorded for it."
        ) from error
    if process.returncode:
        last = (process.stderr.strip().splitlines() or ["it ended"])[-1]
        raise MeasureError(f"{what} failed in a process of its own: {last.rstrip('.')}.")
    return process.stdout.splitlines()

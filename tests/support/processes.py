"""Python in a process of its own, whose words are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def python(
    *arguments: object, check: bool = True, added: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """What Python says with these arguments and with these variables added to those of this
    process; with `check`, it has to end well.
    """
    known = {"env": {**os.environ, **(added or {})}} | options
    command = [sys.executable, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **known)
    assert not check or ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended

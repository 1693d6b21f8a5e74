"""ES modules of the page, run by the Node that Playwright brings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import playwright


def printed_by_node(program: str, folder: Path, *arguments: object) -> Any:
    """What a program prints, as JSON."""
    node = Path(playwright.__file__).parent / "driver" / "node"
    (folder / "program.mjs").write_text(program)
    command = [node, folder / "program.mjs", *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

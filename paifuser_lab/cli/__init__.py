"""`paifuser-lab`: the lab from a terminal. `program` has the commands, `commands` the benches,
`terminal` prints.

`python -m paifuser_lab.cli` does the same.
"""

from __future__ import annotations

from .program import app, main

__all__ = ["app", "main"]

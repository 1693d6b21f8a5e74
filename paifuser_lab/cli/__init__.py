"""The command `paifuser-lab`, also `python -m paifuser_lab.cli`. `program` has the commands
and their groups, `compare` plan and compare, `commands`, `bench_memory` and `documents` the
benches, `terminal` prints.
"""

from __future__ import annotations

from .program import app, main

__all__ = ["app", "main"]

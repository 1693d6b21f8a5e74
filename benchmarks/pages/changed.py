"""Whether the code that a record measured has changed since: a sentence under its block.

What git answers depends on the checkout, so `make figures` writes the sentence, and a page keeps
it until the next time; where git cannot tell (no checkout, a shallow one) it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from paifuser_lab.bench.header import DIRTY, git
from paifuser_lab.bench.text import listed

from ..measured import ROOMS, Records

SENTENCE = re.compile(r"^_Measured before .*_\n", re.MULTILINE)


def changed(root: Path, records: Records, names: Sequence[str]) -> str | None:
    """How many commits changed what these records measured; '' for none, None where git cannot
    tell.
    """
    commits: set[str] = set()
    rooms: set[str] = set()
    for name in names:
        since = _commit(root, records, name)
        for room in ROOMS[name]:
            found = git(root, "log", "--format=%h", f"{since}..HEAD", "--", f"paifuser_lab/{room}")
            if found is None:
                return None
            commits.update(found.split())
            rooms.update([room] if found else [])
    if not commits:
        return ""
    count = f"{len(commits)} commit{'' if len(commits) == 1 else 's'}"
    return f"_Measured before {count} to {listed([f'`{room}`' for room in sorted(rooms)])}._\n"


def _commit(root: Path, records: Records, name: str) -> str | None:
    """The commit that was measured; for a record without one that in which it was recorded."""
    header = records.header(name)
    if header and header.commit:
        return header.commit.removesuffix(DIRTY)
    if git(root, "rev-parse", "--is-shallow-repository") != "false":
        return None
    return git(root, "log", "-1", "--format=%h", "--", str(records.path(name).resolve())) or None

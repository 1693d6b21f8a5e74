"""Whether the code that a record measured has changed since: a sentence under its block.

What git answers depends on the checkout, so `make figures` writes the sentence, and a page keeps
it until the next time; where git cannot tell (no checkout, a shallow one) it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from paifuser_lab.bench.header import DIRTY, git

from .folder import Records
from .text import listed

SENTENCE = re.compile(r"^_Measured before .*_\n", re.MULTILINE)
# The rooms that a record measures, where they are not those of a comparison.
COMPARED = ("comparison", "measure")
ROOMS: dict[str, tuple[str, ...]] = {
    "models": (*COMPARED, "engines", "planner"),
    "advice": ("profiler",),
    "fuse": (*COMPARED, "fusion", "attention"),
    "fuse_builds": ("fusion",),
    "profile": ("profiler",),
    "flops": ("profiler",),
    "promises": ("profiler", *COMPARED),
    "precision": ("quantization", "converter", "engines", "measure"),
    "sums": ("quantization", "converter", "engines"),
    "allocation": ("quantization", "planner/precision"),
    "sensitivity": ("saliency",),
    "hessian": ("saliency",),
    "trust": COMPARED,
    "widgets": ("widgets", "session"),
    "prune": ("pruning",),
    "prune_peer": ("pruning",),
    "compress": ("pruning", "training", "quantization"),
    "compress_segnet": ("pruning", "training", "quantization"),
    "cut": ("pruning",),
    "int4": ("quantization", "training"),
    "attention": ("attention",),
    "train": ("accelerate",),
    "train-avx2": ("accelerate",),
    "detector": ("accelerate",),
    "formats": ("planner/training", "training"),
    "checkpoints": ("planner/training", "training"),
    "parallel": ("parallel",),
    "parallel_equal": ("parallel",),
    "parallel_kills": ("parallel",),
    "memory": ("memory/pools",),
    "memory_peak": ("memory/predict",),
    "reuse": ("memory",),
    "memory_snapshot": ("memory",),
    "memory_replay": ("memory",),
    "export": ("converter",),
    "stream": ("streaming",),
    "stream_video": ("streaming",),
    "serve": ("streaming",),
}


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

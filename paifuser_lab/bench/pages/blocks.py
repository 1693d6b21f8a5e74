"""Markers in a page, the measured text between them, the pages that have them, and the command that
measures each record.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import FileError
from . import (
    advice,
    export,
    memory,
    parallel,
    precision,
    pruning,
    speed,
    streaming,
    summary,
    training,
    workbench,
)
from .changed import SENTENCE, changed
from .folder import Block, Records
from .text import paragraph

# The file name of a record → the command that writes it, with `--json docs/measured/NAME.json`.
COMMANDS = {
    "models": "bench models --by-hand",
    "advice": "bench advice --fit",
    "fuse": "bench fuse",
    "fuse_builds": "bench fuse --builds",
    "profile": "bench profile",
    "flops": "bench profile --flops",
    "promises": "bench experiment promises",
    "precision": "bench precision",
    "sums": "bench experiment sums",
    "allocation": "bench experiment allocation",
    "sensitivity": "bench sensitivity resnet18-hard-digits",
    "hessian": "bench sensitivity --peer pyhessian",
    "trust": "bench trust",
    "widgets": "bench widgets",
    "prune": "bench prune",
    "prune_peer": "bench prune --peer torch-pruning",
    "compress": "bench compress",
    "compress_segnet": "bench compress segnet-streets --goals 0.18 --seeds 1",
    "cut": "bench experiment cut",
    "int4": "bench experiment int4",
    "attention": "bench experiment attention",
    "train": "bench train",
    "detector": "bench detector",
    "formats": "bench formats",
    "checkpoints": "bench checkpoints",
    "parallel": "bench parallel",
    "parallel_equal": "bench parallel --equal",
    "parallel_kills": "bench parallel --kills 40",
    "memory": "bench memory",
    "memory_peak": "bench memory-peak",
    "reuse": "bench reuse",
    "memory_snapshot": "bench memory-snapshot",
    "memory_replay": "bench memory-replay FILES",
    "export": "bench export",
    "stream": "bench stream",
    "stream_video": "bench stream-video",
    "serve": "bench serve",
}
# Blocks whose record has another name.
RECORD_OF = {
    "pipelines": "parallel",
    "links": "parallel",
    "equal": "parallel_equal",
    "kills": "parallel_kills",
    "builds": "fuse_builds",
    "segmentation": "compress_segnet",
    "targets": "export",
    "batching": "stream",
    "stream-video": "stream_video",
}


def records_of(block: str) -> tuple[str, ...]:
    """The records that a block shows, the first of them its own."""
    several = {"summary": summary.RECORDS, "train": training.RECORDS}
    return several.get(block, (RECORD_OF.get(block, block),))


def not_measured(block: str) -> str:
    """The text of a block without a record."""
    command = COMMANDS[records_of(block)[0]]
    return f"Not measured yet: `paifuser-lab {command}` measures it."


def missing(records: Records) -> str:
    """The commands without a record in the folder."""
    commands = [
        f"`paifuser-lab {command}`" for name, command in COMMANDS.items() if not records.has(name)
    ]
    if not commands:
        return "Every command of these pages has a record."
    return paragraph(
        "These commands have no record in `docs/measured/` yet, so no page claims what they "
        f"measure: {', '.join(commands)}."
    )


BLOCK = re.compile(
    r"<!-- measured:(?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- /measured -->", re.DOTALL
)
BLOCKS: dict[str, Block] = {
    **summary.BLOCKS,
    **training.BLOCKS,
    **speed.BLOCKS,
    **advice.BLOCKS,
    **precision.BLOCKS,
    **pruning.BLOCKS,
    **memory.BLOCKS,
    **parallel.BLOCKS,
    **export.BLOCKS,
    **streaming.BLOCKS,
    **workbench.BLOCKS,
    "missing": missing,
}


def render(text: str, folder: Path, root: Path | None = None) -> str:
    """The text with every block written from the records in a folder.

    With the checkout's `root` a block says what has changed since; without, it keeps its sentence.
    """
    records = Records(folder)

    def write(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise FileError(
                f"A page has a block '{name}' that is not defined; there are {', '.join(BLOCKS)}."
            )
        body = BLOCKS[name](records).strip() or not_measured(name)
        below = "" if name == "missing" else _below(name, records, match["text"], root)
        return f"<!-- measured:{name} -->\n{body}\n{below}<!-- /measured -->"

    return BLOCK.sub(write, text)


def _below(block: str, records: Records, before: str, root: Path | None) -> str:
    """Under a block: when and with what it was measured, and what has changed since."""
    names = [name for name in records_of(block) if records.has(name)]
    headers = [header for name in names if (header := records.header(name))]
    known = SENTENCE.search(before) if names else None
    since = None if root is None else changed(root, records, names)
    since = (known[0] if known else "") if since is None else since
    measured = paragraph(*dict.fromkeys(header.sentence for header in headers))
    lines = f"{measured}\n{since}" if measured else since
    return f"\n{lines}" if lines else ""


def blocks_of(text: str) -> dict[str, str]:
    """The blocks in a text: name → the text between its markers."""
    return {match["name"]: match["text"] for match in BLOCK.finditer(text)}


def differing(text: str, rendered: str) -> list[str]:
    """The names of the blocks that differ from the rendered text."""
    current = blocks_of(text)
    return [name for name, body in blocks_of(rendered).items() if current.get(name) != body]


def pages_of(root: Path) -> list[Path]:
    """README.md and the pages in docs/, in alphabetical order."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def rewrite(root: Path, *, check: bool = False) -> dict[Path, list[str]]:
    """Write every page's blocks from docs/measured; page → the blocks that differed.

    With `check` nothing is written.
    """
    stale = {}
    for page in pages_of(root):
        text = page.read_text(encoding="utf-8")
        rendered = render(text, root / "docs" / "measured", None if check else root)
        if names := differing(text, rendered):
            stale[page] = names
            if not check:
                page.write_text(rendered, encoding="utf-8")
    return stale

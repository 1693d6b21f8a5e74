"""Markers in a page, the measured text between them, the pages that have them, and the command that
measures each record.
"""

from __future__ import annotations

import re
from pathlib import Path

from paifuser_lab.errors import FileError

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
    "models": "paifuser-lab bench models --by-hand",
    "advice": "python -m benchmarks advice --fit",
    "fuse": "python -m benchmarks fuse",
    "fuse_builds": "python -m benchmarks fuse --builds",
    "profile": "python -m benchmarks profile",
    "flops": "python -m benchmarks profile --flops",
    "promises": "python -m benchmarks experiment promises",
    "precision": "python -m benchmarks precision",
    "sums": "python -m benchmarks experiment sums",
    "allocation": "python -m benchmarks experiment allocation",
    "sensitivity": "python -m benchmarks sensitivity resnet18-hard-digits",
    "hessian": "python -m benchmarks sensitivity --peer pyhessian",
    "trust": "paifuser-lab bench trust",
    "widgets": "python -m benchmarks widgets",
    "prune": "python -m benchmarks prune",
    "prune_peer": "python -m benchmarks prune --peer torch-pruning",
    "compress": "python -m benchmarks compress",
    "compress_segnet": "python -m benchmarks compress segnet-streets --goals 0.18 --seeds 1",
    "cut": "python -m benchmarks experiment cut",
    "int4": "python -m benchmarks experiment int4",
    "attention": "python -m benchmarks experiment attention",
    "train": "python -m benchmarks train",
    "detector": "python -m benchmarks detector",
    "formats": "python -m benchmarks formats",
    "checkpoints": "python -m benchmarks checkpoints",
    "parallel": "python -m benchmarks parallel",
    "parallel_equal": "python -m benchmarks parallel --equal",
    "parallel_kills": "python -m benchmarks parallel --kills 40",
    "memory": "python -m benchmarks memory",
    "memory_peak": "python -m benchmarks memory-peak",
    "reuse": "python -m benchmarks reuse",
    "memory_snapshot": "python -m benchmarks memory-snapshot",
    "memory_replay": "python -m benchmarks memory-replay FILES",
    "export": "python -m benchmarks export",
    "stream": "python -m benchmarks stream",
    "stream_video": "python -m benchmarks stream-video",
    "serve": "python -m benchmarks serve",
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
    return f"Not measured yet: `{command}` measures it."


def missing(records: Records) -> str:
    """The commands without a record in the folder."""
    commands = [f"`{command}`" for name, command in COMMANDS.items() if not records.has(name)]
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

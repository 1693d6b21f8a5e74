"""Markers in a page, the measured text between them, and the pages that have them."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import FileError
from . import precision, pruning, speed, summary
from .commands import missing, not_measured
from .folder import Block, Records

BLOCK = re.compile(
    r"<!-- measured:(?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- /measured -->", re.DOTALL
)
BLOCKS: dict[str, Block] = {
    **summary.BLOCKS,
    **speed.BLOCKS,
    **precision.BLOCKS,
    **pruning.BLOCKS,
    "missing": missing,
}


def render(text: str, folder: Path) -> str:
    """The text with every block written from the records in a folder."""
    records = Records(folder)

    def write(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise FileError(
                f"A page has a block '{name}' that nothing writes; there are {', '.join(BLOCKS)}."
            )
        body = BLOCKS[name](records).strip() or not_measured(name)
        return f"<!-- measured:{name} -->\n{body}\n<!-- /measured -->"

    return BLOCK.sub(write, text)


def blocks_of(text: str) -> dict[str, str]:
    """The blocks in a text: name → the text between its markers."""
    return {match["name"]: match["text"] for match in BLOCK.finditer(text)}


def differing(text: str, rendered: str) -> list[str]:
    """The names of the blocks that differ from what is rendered."""
    now = blocks_of(text)
    return [name for name, body in blocks_of(rendered).items() if now.get(name) != body]


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
        rendered = render(text, root / "docs" / "measured")
        if names := differing(text, rendered):
            stale[page] = names
            if not check:
                page.write_text(rendered, encoding="utf-8")
    return stale

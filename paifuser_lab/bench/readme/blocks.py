"""Markers in a text, and the blocks that are put between them."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import FileError
from . import compression, pruning, speed
from .folder import Block, Records
from .missing import missing

BLOCK = re.compile(
    r"<!-- measured:(?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- /measured -->", re.DOTALL
)


def render(text: str, folder: Path) -> str:
    """The text with every block written anew from the records in a folder."""
    records, known = Records(folder), _known()

    def written(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in known:
            raise FileError(
                f"The README has a block '{name}' that nothing writes; there are "
                f"{', '.join(known)}."
            )
        body = known[name](records).strip()
        return f"<!-- measured:{name} -->\n" + (f"{body}\n" if body else "") + "<!-- /measured -->"

    return BLOCK.sub(written, text)


def blocks_of(text: str) -> dict[str, str]:
    """The blocks in a text: name → what stands in it."""
    return {match["name"]: match["text"] for match in BLOCK.finditer(text)}


def differing(text: str, rendered: str) -> list[str]:
    """The names of the blocks that are not as they are rendered."""
    now = blocks_of(text)
    return [name for name, body in blocks_of(rendered).items() if now.get(name) != body]


def _known() -> dict[str, Block]:
    return {**speed.BLOCKS, **compression.BLOCKS, **pruning.BLOCKS, "missing": missing}

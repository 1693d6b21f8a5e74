"""Markers in a text, and the blocks that are put between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...errors import FileError
from ...records import Record

BLOCK = re.compile(r"<!-- measured:(?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- /measured -->", re.DOTALL)
AnyRecord = TypeVar("AnyRecord", bound=Record)


class Records:
    """The records of a folder, by their files' names; None for one that is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, kind: type[AnyRecord]) -> AnyRecord | None:
        """The record in NAME.json."""
        path = self.folder / f"{name}.json"
        return kind.load(path) if path.is_file() else None

    def has(self, name: str) -> bool:
        """Whether there is a file for it."""
        return (self.folder / f"{name}.json").is_file()


Block = Callable[[Records], str]


def render(text: str, folder: Path) -> str:
    """The text with every block written anew from the records in a folder."""
    records, known = Records(folder), _known()

    def written(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in known:
            raise FileError(f"The README has a block '{name}' that nothing writes; there are {', '.join(known)}.")
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
    from . import compression, speed
    from .missing import missing

    return {**speed.BLOCKS, **compression.BLOCKS, "missing": missing}

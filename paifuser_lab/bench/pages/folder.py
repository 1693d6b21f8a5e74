"""The records of a folder, from which blocks are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...records import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)


class Records:
    """The records of a folder, by file name; None if missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, kind: type[AnyRecord]) -> AnyRecord | None:
        """The record in NAME.json."""
        path = self.folder / f"{name}.json"
        return kind.load(path) if path.is_file() else None

    def has(self, name: str) -> bool:
        """Whether the folder has NAME.json."""
        return (self.folder / f"{name}.json").is_file()


Block = Callable[[Records], str]

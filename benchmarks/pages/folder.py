"""The records of a folder, from which blocks are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from paifuser_lab.bench.header import Header, header_of
from paifuser_lab.records import Record

AnyRecord = TypeVar("AnyRecord", bound=Record)


class Records:
    """The records of a folder, by file name; None if missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, kind: type[AnyRecord]) -> AnyRecord | None:
        """The record in NAME.json."""
        return kind.load(self.path(name)) if self.has(name) else None

    def has(self, name: str) -> bool:
        """Whether the folder has NAME.json."""
        return self.path(name).is_file()

    def header(self, name: str) -> Header | None:
        """Where NAME.json was measured; None where it is missing or from before headers."""
        return header_of(self.path(name)) if self.has(name) else None

    def processor(self, name: str) -> str:
        """The processor of NAME.json; as its data name the machine where it has no header."""
        header = self.header(name)
        if header is not None or not self.has(name):
            return header.processor if header else ""
        data = Record.load(self.path(name))
        compared = getattr(data, "comparisons", ())
        return str(compared[0].machine if compared else getattr(data, "machine", ""))

    def path(self, name: str) -> Path:
        """The file of NAME.json."""
        return self.folder / f"{name}.json"


Block = Callable[[Records], str]

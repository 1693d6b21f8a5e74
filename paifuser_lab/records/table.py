"""The base class of records that are read as a table: columns in a terminal, HTML in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .record import Record
from .text import html_table, text_table


class TableRecord(Record):
    """A record with a title and a table, and lines above or below it."""

    text_columns: ClassVar[tuple[str, ...]] = ()  # those of words, not figures

    @property
    def title(self) -> str:
        """What the record is about, in a line."""
        raise NotImplementedError

    @property
    def captions(self) -> Sequence[str]:
        """The lines above the table."""
        return (self.title,)

    @property
    def remarks(self) -> Sequence[str]:
        """The lines below the table in a terminal; a notebook has them above, with the captions."""
        return ()

    def table(self) -> list[dict[str, str]]:
        """The record's rows, as text."""
        raise NotImplementedError

    def is_bold(self, row: dict[str, str]) -> bool:
        """Whether a notebook shows this row of the table in bold."""
        return False

    def __str__(self) -> str:
        table = text_table(self.table(), self.text_columns)
        return "\n".join([*self.captions, *table, *self.remarks])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title})"

    def _repr_html_(self) -> str:
        lines = (*self.captions, *self.remarks)
        return html_table(lines, self.table(), self.text_columns, self.is_bold)

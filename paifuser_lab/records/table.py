"""A table of texts: the one thing that a terminal, a notebook and the page are given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from .text import Row, text_table, view

Columns = dict[str, str | Callable[[Any], str]]  # a header; a row's field, or how its cell reads


def table_of(columns: Columns, rows: Iterable[Any]) -> list[Row]:
    """The cells of each row, by header."""
    return [
        {
            header: str(getattr(row, cell)) if isinstance(cell, str) else cell(row)
            for header, cell in columns.items()
        }
        for row in rows
    ]


def _plain(row: Row) -> bool:
    return False


class Table(NamedTuple):
    """Lines above, and a row of texts by column for each thing."""

    captions: tuple[str, ...]
    rows: list[Row]
    words: Collection[str] = ()  # the columns of words; the others are figures
    is_bold: Callable[[Row], bool] = _plain  # in a notebook

    def without(self, *columns: str) -> Table:
        """The table without some of its columns."""
        rows = [{key: row[key] for key in row if key not in columns} for row in self.rows]
        return self._replace(rows=rows)

    def packed(self) -> dict[str, Any]:
        """The table for the page; `widgets/shared/plain_table.js` draws it."""
        columns = list(self.rows[0]) if self.rows else []
        return {
            "caption": " · ".join(self.captions),
            "rows": self.rows,
            "words": [column for column in columns if column in self.words],
        }

    def __str__(self) -> str:
        return "\n".join([*self.captions, *text_table(self.rows, self.words)])

    def _repr_html_(self) -> str:
        return view("table", self.captions, self.rows, self.words, self.is_bold)

"""Writes answers to a Parquet file, a row a frame. Built on PyArrow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..._files import cannot_write, checked_path
from ...errors import StreamError
from ..frame import Frame
from ..optional import pyarrow
from ..sink import AtomicFile
from ..stage import Result
from ..stages.answer import as_json

ROWS = 1024
"""Of a row group."""


class ParquetSink:
    """A table of index, seconds, name, answer as JSON, latency and error.

    The answer of a value that is no frame is the value itself. The file appears when the stream has
    ended well.
    """

    is_resumable = False

    def __init__(self, path: str | Path) -> None:
        self.path = checked_path(path)
        self.name = self.path.name
        pyarrow()
        self._file: AtomicFile | None = None
        self._writer: Any = None
        self._rows: list[dict[str, Any]] = []

    def open(self, token: str | None) -> None:
        """Begin the file, beside its place."""
        self.abort()
        arrow = pyarrow()
        self._file = AtomicFile(self.path)
        try:
            self._writer = arrow.parquet.ParquetWriter(self._file.path, _schema(arrow))
        except OSError as error:
            self._fail(error)

    def write(self, results: Sequence[Result]) -> str | None:
        """Append the rows of a group; they are written a row group at a time."""
        self._rows += [_row(result) for result in results]
        if len(self._rows) >= ROWS:
            self._flush()
        return None

    def close(self) -> None:
        """Finish the file and put it in its place."""
        if self._file is None:
            return
        self._flush()
        try:
            self._writer.close()
        except OSError as error:
            self._fail(error)
        self._writer = None
        file, self._file = self._file, None
        file.commit()

    def abort(self) -> None:
        """Leave no file behind."""
        writer, self._writer = self._writer, None
        file, self._file = self._file, None
        self._rows = []
        if writer is not None:
            with suppress(OSError):  # the rest of a file that is removed
                writer.close()
        if file is not None:
            file.discard()

    def _flush(self) -> None:
        arrow = pyarrow()
        rows, self._rows = self._rows, []
        try:
            self._writer.write_table(arrow.Table.from_pylist(rows, schema=_schema(arrow)))
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.abort()
        raise cannot_write(f"{self.name} into {self.path.parent}", error) from error


def _schema(arrow: Any) -> Any:
    text = arrow.string()
    return arrow.schema(
        [
            ("index", arrow.int64()),
            ("seconds", arrow.float64()),
            ("name", text),
            ("answer", text),
            ("latency_ms", arrow.float64()),
            ("error", text),
        ]
    )


def _row(result: Result) -> dict[str, Any]:
    frame = result.value if isinstance(result.value, Frame) else None
    value = result.value if frame is None else frame.answer
    try:
        answer = json.dumps(as_json(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StreamError(
            f"The answer to frame {result.index} cannot be written: {error}; let the last stage "
            "return numbers, texts, lists or dicts."
        ) from error
    return {
        "index": result.index,
        "seconds": None if frame is None else frame.seconds,
        "name": "" if frame is None else frame.name,
        "answer": answer,
        "latency_ms": result.latency_ms,
        "error": "" if result.error is None else str(result.error),
    }

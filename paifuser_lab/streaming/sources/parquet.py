"""Encoded images in a Parquet file, a row group at a time. Built on PyArrow."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..._files import checked_path, size_of
from ...errors import FileError, first_line
from ..frame import Photos
from ..optional import pyarrow
from ..source import Group
from .images import _base, _checked_group

NAMES = ("name", "path", "key", "id")


class ParquetImages:
    """A column of JPEG or PNG bytes; workers decode them, and one row group is read at a time.

    `column` may also be a struct with a field `bytes`, as Hugging Face's data sets have it.
    """

    can_reopen = True

    def __init__(
        self, path: str | Path, *, column: str = "image", group: int = 8, rate: float = 25.0
    ) -> None:
        self.path = checked_path(path)
        self.name = self.path.name
        self.column = column
        self.group, self.time_base = _checked_group(group), _base(rate)
        with self._opened() as file:
            self.rows = int(file.metadata.num_rows)
            schema = file.schema_arrow
            if column not in schema.names:
                raise FileError(
                    f"{self.name} has no column '{column}', only {', '.join(schema.names)}; name "
                    "the one with the images: ParquetImages(path, column=…)."
                )
            self.is_struct = _is_struct(schema.field(column).type, self.name, column)
            self.key = next((name for name in NAMES if name in schema.names), None)

    def __repr__(self) -> str:
        return f"ParquetImages({self.name}: {self.rows} images)"

    @property
    def frames(self) -> int | None:
        """The number of rows."""
        return self.rows

    def groups(self, start: int = 0) -> Iterator[Group]:
        """The groups from number `start` on."""
        columns = [self.column, *([self.key] if self.key else [])]
        with self._opened() as file:
            first = sequence = 0
            batches = file.iter_batches(batch_size=self.group, columns=columns)
            for batch in _read(batches, self.name):
                if sequence >= start:
                    yield Group(sequence, first, len(batch), self._photos(batch, first).packed())
                first, sequence = first + len(batch), sequence + 1

    def _photos(self, batch: Any, first: int) -> Photos:
        images = batch.column(0).to_pylist()
        if self.is_struct:
            images = [None if image is None else image.get("bytes") for image in images]
        names = (
            [str(name) for name in batch.column(1).to_pylist()]
            if self.key
            else [f"row {first + index}" for index in range(len(batch))]
        )
        return Photos(
            tuple(image or b"" for image in images),
            tuple(names),
            tuple(range(first, first + len(batch))),
            Fraction(self.time_base),
        )

    def _opened(self) -> Any:
        arrow = pyarrow()
        try:
            size_of(self.path)
            return arrow.parquet.ParquetFile(self.path)
        except arrow.ArrowException as error:
            raise FileError(
                f"Cannot read {self.name} as Parquet: {first_line(error).rstrip('.')}."
            ) from error
        except OSError as error:
            raise FileError(
                f"Cannot read {self.path}: {error.strerror or first_line(error)}."
            ) from error


def _is_struct(kind: Any, name: str, column: str) -> bool:
    """Whether images are the field `bytes` of a struct; raises if the column has none."""
    types = pyarrow().types

    def is_bytes(kind: Any) -> bool:
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    if types.is_struct(kind) and any(
        field.name == "bytes" and is_bytes(field.type) for field in kind
    ):
        return True
    if is_bytes(kind):
        return False
    raise FileError(f"Column '{column}' of {name} has {kind}, not the bytes of images.")


def _read(batches: Iterator[Any], name: str) -> Iterator[Any]:
    try:
        yield from batches
    except (pyarrow().ArrowException, OSError) as error:
        raise FileError(f"{name} is damaged: {first_line(error).rstrip('.')}.") from error

"""The images of a folder or of a Parquet file, and images made as by a camera. Built on PyArrow."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..._files import checked_path, folder_exists, size_of
from ...arguments import check_count
from ...errors import FileError, StreamError, first_line
from ..frame import Frame, Photos, frame_of
from ..optional import pyarrow
from ..source import Group, Items

GROUP = 8  # images that are sent together
SUFFIXES = (".jpg", ".jpeg", ".png")
NAMES = ("name", "path", "key", "id")  # of a column that names images


class ImageFolder:
    """The JPEG and PNG files of a folder, in the order of their names; workers decode them."""

    can_reopen = True

    def __init__(self, folder: str | Path, *, group: int = GROUP, rate: float = 25.0) -> None:
        self.folder = checked_path(folder)
        self.name = self.folder.name
        if not folder_exists(self.folder):
            raise FileError(f"There is no folder {self.folder}.")
        self.paths = sorted(
            path for path in self.folder.iterdir() if path.suffix.lower() in SUFFIXES
        )
        if not self.paths:
            raise FileError(f"{self.folder} has no image ({', '.join(SUFFIXES)}).")
        self.frames: int | None = len(self.paths)
        check_count("group", group, error=StreamError)
        self.group, self.time_base = group, _base(rate)

    def __repr__(self) -> str:
        return f"ImageFolder({self.name}: {self.frames} images)"

    def groups(self, start: int = 0) -> Iterator[Group]:
        size = self.group
        for sequence in range(start, -(-len(self.paths) // size)):
            first = sequence * size
            paths = self.paths[first : first + size]
            photos = Photos(
                tuple(_content(path) for path in paths),
                tuple(path.name for path in paths),
                tuple(range(first, first + len(paths))),
                self.time_base,
            )
            yield Group(sequence, first, len(paths), photos)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from error


class Camera(Items):
    """Images that a function makes, `rate` a second, as a camera would; `look(index)` returns an
    image, or None at the end. Each is sent at once, unless `group` says how many together.
    """

    can_reopen = False  # it has other images each time

    def __init__(
        self,
        look: Callable[[int], Any],
        *,
        rate: float = 25.0,
        group: int = 1,
        name: str = "camera",
    ) -> None:
        self.look, self.rate = look, rate
        self.time_base = _base(rate)
        super().__init__(self._images, group=group, name=name)

    def _images(self) -> Iterator[Frame]:
        began, index = clock.monotonic(), 0
        while (image := self.look(index)) is not None:
            clock.sleep(max(0.0, began + index / self.rate - clock.monotonic()))
            yield frame_of(image).with_(time=index, time_base=self.time_base)
            index += 1


class ParquetImages:
    """A column of JPEG or PNG bytes; workers decode them, and one row group is read at a time.

    `column` may also be a struct with a field `bytes`, as Hugging Face's data sets have it.
    """

    can_reopen = True

    def __init__(
        self, path: str | Path, *, column: str = "image", group: int = GROUP, rate: float = 25.0
    ) -> None:
        self.path = checked_path(path)
        self.name = self.path.name
        self.column = column
        check_count("group", group, error=StreamError)
        self.group, self.time_base = group, _base(rate)
        with self._opened() as file:
            self.frames: int | None = int(file.metadata.num_rows)
            schema = file.schema_arrow
            if column not in schema.names:
                raise FileError(
                    f"{self.name} has no column '{column}', only {', '.join(schema.names)}; name "
                    "the one with the images: ParquetImages(path, column=…)."
                )
            self.is_struct = _is_struct(schema.field(column).type, self.name, column)
            self.key = next((name for name in NAMES if name in schema.names), None)

    def __repr__(self) -> str:
        return f"ParquetImages({self.name}: {self.frames} images)"

    def groups(self, start: int = 0) -> Iterator[Group]:
        columns = [self.column, *([self.key] if self.key else [])]
        with self._opened() as file:
            first = sequence = 0
            batches = file.iter_batches(batch_size=self.group, columns=columns)
            for batch in _read(batches, self.name):
                if sequence >= start:
                    yield Group(sequence, first, len(batch), self._photos(batch, first))
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


def _base(rate: float) -> Fraction:
    if not 0 < rate < float("inf"):
        raise StreamError(f"A rate of {rate} images a second is not possible; give more than 0.")
    return 1 / Fraction(rate).limit_denominator(100_000)

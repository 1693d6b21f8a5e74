"""Reads the zip archive of a torch.export program: its JSON and the plain bytes of its weights.

`torch.export.load` evaluates expressions of the file and unpickles without restriction where a
restricted unpickler refuses. Here no pickle is read and no text is evaluated.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from ..._files import checked_path, file_exists, size_of
from ...errors import FileError, first_line
from ..limits import MAX_ELEMENTS, checked_shape, shown

MAX_ENTRIES = 100_000
MAX_JSON = 64 << 20  # bytes
MAX_READ = 64 << 20  # bytes at once, so that no list of entries is longer
CHUNK = 16 << 20  # bytes
STRIDED = 7  # torch's number of the layout
DTYPES: dict[int, torch.dtype] = {  # by the numbers in the file
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64,
    6: torch.float16, 7: torch.float32, 8: torch.float64, 9: torch.complex32,
    10: torch.complex64, 11: torch.complex128, 12: torch.bool, 13: torch.bfloat16,
    28: torch.uint16, 29: torch.float8_e4m3fn, 30: torch.float8_e5m2, 34: torch.uint32,
    35: torch.uint64,
}  # fmt: skip
BROKEN = (
    zipfile.BadZipFile, NotImplementedError, struct.error, EOFError, RuntimeError, ValueError,
    KeyError, TypeError, IndexError, AttributeError, OverflowError, StopIteration,
)  # fmt: skip


class _Bounded(io.FileIO):
    """A file of which a zip reader cannot ask for too much at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most the limit; a longer request comes from a damaged list of entries."""
        if size is None or size < 0:
            size = os.fstat(self.fileno()).st_size - self.tell()
        if size > MAX_READ:
            raise zipfile.BadZipFile("its list of entries is too long")
        return super().read(size) or b""


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """Turn what a damaged file raises while it is read into one sentence."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or first_line(error)}.") from error
    except BROKEN as error:  # RecursionError is a RuntimeError, a wrong JSON a ValueError
        reason = shown(f"{type(error).__name__}: {first_line(error)}").strip("'\"").rstrip(".")
        raise FileError(
            f"{path.name} is not a sound program of torch.export ({reason}); was it cut short?"
        ) from error


class Archive:
    """The entries of the archive by name, without the folder that all of them are in."""

    def __init__(self, path: str | Path) -> None:
        self.path = checked_path(path)
        if not file_exists(self.path):
            raise FileError(f"There is no program {str(path)!r}.")
        size = size_of(self.path)
        self.file = _Bounded(self.path, "rb")
        try:
            with sound(self.path):
                self.zip = zipfile.ZipFile(self.file)
                self.entries = self._entries(size)
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def _entries(self, size: int) -> dict[str, zipfile.ZipInfo]:
        """The entries; refused if they are compressed, or longer together than the file."""
        infos = self.zip.infolist()
        if not infos or len(infos) > MAX_ENTRIES:
            raise zipfile.BadZipFile(f"it has {len(infos):,} entries")
        root = infos[0].filename.partition("/")[0] + "/"
        entries: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = info.filename.removeprefix(root)
            if name in entries or not info.filename.startswith(root):
                raise zipfile.BadZipFile(f"its entry {info.filename[:40]!r} is out of place")
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise zipfile.BadZipFile("its entries are compressed, which torch does not do")
            entries[name] = info
        if sum(info.file_size for info in infos) > size:
            raise zipfile.BadZipFile("its entries overlap")
        return entries

    def read(self, name: str, limit: int) -> bytearray:
        """The bytes of an entry, compared with its checksum."""
        if name not in self.entries:
            raise FileError(f"{self.path.name} has no {shown(name)}; save the program again.")
        info = self.entries[name]
        if info.file_size > limit:
            raise FileError(
                f"{self.path.name}: {shown(name)} is {info.file_size:,} bytes, past the limit of "
                f"{limit:,}; is it the right file?"
            )
        content = bytearray(info.file_size)
        view, end = memoryview(content), 0
        with sound(self.path), self.zip.open(info) as file:
            while part := file.read(CHUNK):
                view[end : end + len(part)] = part
                end += len(part)
        return content

    def json(self, name: str) -> dict[str, Any]:
        """An entry that holds JSON."""
        with sound(self.path):
            value = json.loads(self.read(name, MAX_JSON))
            if not isinstance(value, dict):
                raise ValueError(f"{name[:40]} is no dict")
        return value

    def tensors(self, folder: str, model: str) -> dict[str, tuple[Tensor, bool]]:
        """The tensors of a folder, and whether each is a parameter; equal ones are one tensor."""
        config = f"data/{folder}/{model}_{folder}_config.json"
        flat: dict[tuple[str, torch.dtype], Tensor] = {}
        views: dict[tuple[object, ...], Tensor] = {}
        found = {}
        with sound(self.path):
            for name, entry in self.json(config)["config"].items():
                what = f"{self.path.name}: the weight {shown(name)}"
                if entry["use_pickle"] or entry["tensor_meta"] is None:
                    raise FileError(
                        f"{what} is a pickle, which may run code and is not read; build the model "
                        "yourself, and use Workload(model, inputs)."
                    )
                file = str(entry["path_name"])
                dtype, shape, strides, offset = layout_of(entry["tensor_meta"], what)
                if (file, dtype) not in flat:
                    flat[file, dtype] = self._flat(f"data/{folder}/{file}", dtype, what)
                key = (file, dtype, shape, strides, offset)
                if key not in views:
                    views[key] = _view(flat[file, dtype], shape, strides, offset, what)
                found[str(name)] = views[key], bool(entry["is_param"])
        return found

    def _flat(self, name: str, dtype: torch.dtype, what: str) -> Tensor:
        content = self.read(name, MAX_ELEMENTS * dtype.itemsize)
        if len(content) % dtype.itemsize:
            raise FileError(f"{what} has {len(content):,} bytes, which are no {dtype}; copy it.")
        return torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)


def layout_of(
    meta: dict[str, Any], what: str
) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]:
    """The dtype, sizes, strides and offset of a tensor of which all are numbers."""
    if meta["layout"] != STRIDED or meta["dtype"] not in DTYPES:
        raise FileError(f"{what} is sparse or of a type that is not read; save a dense one.")
    shape = checked_shape((size["as_int"] for size in meta["sizes"]), what)
    strides = tuple(int(stride["as_int"]) for stride in meta["strides"])
    offset = int(meta["storage_offset"]["as_int"])
    if len(strides) != len(shape) or min((*strides, offset)) < 0:
        raise FileError(f"{what} has strides that it cannot have; save the program again.")
    return DTYPES[meta["dtype"]], shape, strides, offset


def _view(
    flat: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, what: str
) -> Tensor:
    """A tensor of its own memory, unless it is all that the bytes hold."""
    if not prod(shape):
        return torch.empty(shape, dtype=flat.dtype)
    last = offset + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if last >= flat.numel():
        raise FileError(
            f"{what} has {flat.numel():,} values where its shape needs {last + 1:,}; copy the file "
            "again."
        )
    view = flat.as_strided(shape, strides, offset)
    return view if view.numel() == flat.numel() else view.clone()

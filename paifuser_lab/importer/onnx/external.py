"""Weights of an ONNX file that are in a file of their own: read only from the file's own folder,
and from no link.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import onnx

from ...errors import FileError
from ..limits import shown


@dataclass(frozen=True)
class ExternalData:
    """A part of a file beside the model."""

    path: Path
    offset: int
    length: int

    def read(self) -> bytearray:
        """The bytes; a link that has come in place of the file is not followed."""
        content = bytearray(self.length)
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            with os.fdopen(os.open(self.path, flags), "rb") as file:
                file.seek(self.offset)
                count = file.readinto(content)
        except OSError as error:
            raise FileError(f"Cannot read {self.path}: {error.strerror}.") from error
        if count != self.length:
            raise FileError(f"{self.path.name} was cut short; copy it again.")
        return content


def external_data(tensor: onnx.TensorProto, model: Path) -> ExternalData:
    """Where the values of a tensor are, if that is a plain file in the model's folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    what = f"{model.name}: the data of {shown(tensor.name)}"
    path = _inside(location, model.parent, what)
    try:
        status = path.lstat()
    except (OSError, ValueError) as error:
        raise FileError(
            f"{what} should be in {shown(location)} beside it, which cannot be found; copy both."
        ) from error
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise FileError(
            f"{what} is in {shown(location)}, which is a link or no plain file and may lead out of "
            "the folder; put a copy in its place."
        )
    offset = _number(entries.get("offset", "0"), what)
    length = _number(entries.get("length", str(max(0, status.st_size - offset))), what)
    if offset + length > status.st_size:
        raise FileError(
            f"{what} ends at byte {offset + length:,} of {shown(location)}, which has "
            f"{status.st_size:,}; copy it again."
        )
    return ExternalData(path, offset, length)


def _inside(location: str, folder: Path, what: str) -> Path:
    """The path of a location that neither leads out of the folder nor through a link."""
    parts = PurePosixPath(location.replace("\\", "/")).parts
    is_plain = bool(parts) and ".." not in parts and ":" not in location and "\0" not in location
    if not is_plain or location.startswith(("/", "\\")):
        raise FileError(
            f"{what} is in {shown(location)}, outside the folder of the model; only files in that "
            "folder are read."
        )
    path = folder
    for part in parts[:-1]:
        path = path / part
        if path.is_symlink():
            raise FileError(
                f"{what} is reached through the link {shown(part)}, which may lead out of the "
                "folder; put the folder itself there."
            )
    return path / parts[-1]


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise FileError(f"{what} begins or ends at byte {shown(text)}, which is no number.")
    return int(text)

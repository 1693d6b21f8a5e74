"""Files: written whole or not at all, kept in the cache folder, and the package's own assets.

Assets are the files that are not Python, in a wheel as in a checkout: front-end sources, CUDA
sources and notebooks.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from .errors import FileError, first_line

PACKAGE = Path(__file__).parent
APP = "paifuser-lab"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LONGEST_PART = 40  # letters of a name that stand in the name of what is written beside it


def cache_folder(*parts: str) -> Path:
    """Where measured and trained things are kept between runs: PAIFUSER_CACHE, or the user's cache
    folder.
    """
    root = os.environ.get("PAIFUSER_CACHE")
    folder = Path(root) if root else platformdirs.user_cache_path(APP)
    folder = folder.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cache_file(kind: str, *known: object) -> Path:
    """The cache's file for what was found where this was known: a machine, a number of threads, a
    version …
    """
    digest = hashlib.sha256("|".join(map(str, known)).encode()).hexdigest()
    return cache_folder() / f"{kind}-{digest[:16]}.json"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and is gone
    when it does not.
    """
    path = checked_path(path)
    temporary = path.with_name(f".{path.name[:LONGEST_PART]}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        mode = (
            temporary.stat().st_mode
        )  # as the user's files are; safetensors, like mkstemp, would leave it to the owner alone
        try:
            yield temporary
            temporary.chmod(mode)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(f"{path.name} into {path.parent}", error) from error


def cannot_write(what: str, error: OSError) -> FileError:
    """The message for something that could not be written, with a remedy."""
    reason = error.strerror or first_line(error)
    remedy = (
        "free some space there or choose another folder"
        if error.errno in NO_ROOM
        else "choose a folder you can write to"
    )
    return FileError(f"Cannot write {what}: {reason}; {remedy}.")


def checked_path(path: str | Path) -> Path:
    """A path that the system can be asked about; a name with half a character in it, or a zero
    byte, can be none.
    """
    if not is_encodable(str(path)) or "\0" in str(path):
        raise FileError(
            f"{str(path)!r} holds a character that no file's name can have; choose another name."
        )
    return Path(path)


def file_exists(path: str | Path) -> bool:
    """Whether there is such a file; a name that none can have is none (pathlib raises for some of
    these).
    """
    return os.path.isfile(path)


def folder_exists(path: str | Path) -> bool:
    """Whether there is such a folder."""
    return os.path.isdir(path)


def is_encodable(text: str) -> bool:
    """Whether a text can be written into a file: half a character (a lone surrogate) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file whole."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def read_text(path: str | Path, *, limit_bytes: int = 64 << 20) -> str:
    """Read a text file, refusing at once what is missing, too large, no file or not text."""
    path = checked_path(path)
    try:
        check_size(path, limit_bytes=limit_bytes)
        with path.open("rb") as file:
            content = file.read(limit_bytes + 1)
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from error
    if len(content) > limit_bytes:  # the system's own files say that they are empty
        raise FileError(
            f"{path.name} is longer than the limit of {limit_bytes:,} bytes; is it the right file?"
        )
    try:
        return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path.name} is not a text file (byte {error.start} is not UTF-8)."
        ) from error


def check_size(path: Path, *, limit_bytes: int = 64 << 20) -> None:
    """Refuse what is no file or too large before anybody reads it."""
    if (size := size_of(path)) > limit_bytes:
        raise FileError(
            f"{path.name} is {size:,} bytes, past the limit of {limit_bytes:,}; is it the right "
            "file?"
        )


def size_of(path: Path) -> int:
    """How many bytes a file holds; to read from a pipe or a device may never end, so these are
    refused.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise FileError(f"{path} is a folder; give a file.")
    if not stat.S_ISREG(found.st_mode):
        raise FileError(
            f"{path} is a pipe or a device, not a file; write what it holds into a file and give "
            "that."
        )
    return found.st_size


def asset(name: str) -> Path:
    """The path of `widgets/…`, `kernels/…` or `notebooks/…`: of the wheel's copy, or of the
    checkout's.
    """
    places = (PACKAGE / "_sources" / name, PACKAGE.parent / name)
    for place in places:
        if place.exists():
            return place
    raise FileError(
        f"{name} is neither in the installed package ({places[0]}) nor in a checkout "
        f"({places[1]}); reinstall paifuser-lab."
    )


def notebook_file(name: str) -> Path:
    """A notebook: a file of the user's, or one of ours by its name."""
    if Path(name).is_file():
        return Path(name)
    ours = sorted(path.name for path in asset("notebooks").glob("*.ipynb"))
    if name not in ours:
        raise FileError(
            f"There is no notebook {name}, neither as a file nor among ours: {', '.join(ours)}."
        )
    return asset(f"notebooks/{name}")

"""Files that are either whole or not there."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from .errors import FileError, first_line

APP = "paifuser-lab"


def cache_folder(*parts: str) -> Path:
    """Where measured and trained things are kept between runs: PAIFUSER_CACHE, or the user's cache folder."""
    root = os.environ.get("PAIFUSER_CACHE")
    folder = Path(root) if root else platformdirs.user_cache_path(APP)
    folder = folder.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cache_file(kind: str, *known: object) -> Path:
    """The cache's file for what was found where this was known: a machine, a number of threads, a version …"""
    digest = hashlib.sha256("|".join(map(str, known)).encode()).hexdigest()
    return cache_folder() / f"{kind}-{digest[:16]}.json"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and is gone when it does not."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode  # as the user's files are; safetensors, like mkstemp, would leave it to the owner alone
        try:
            yield temporary
            temporary.chmod(mode)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise FileError(f"Cannot write {path.name} into {path.parent}: {reason}; choose a folder you can write to.") from error


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file whole."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def read_text(path: str | Path, *, limit_bytes: int = 64 << 20) -> str:
    """Read a text file, refusing what is missing, too large or not text."""
    path = Path(path)
    try:
        if (size := path.stat().st_size) > limit_bytes:
            raise FileError(f"{path.name} is {size:,} bytes, past the limit of {limit_bytes:,}; is it the right file?")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path.name} is not a text file (byte {error.start} is not UTF-8).") from error

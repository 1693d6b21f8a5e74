"""Atomic file writes, the cache folder, and the assets shipped with the package.

Assets are the files that are not Python, in a wheel as in a checkout: front-end sources, CUDA and
C++ sources and notebooks.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

from .errors import FileError, first_line

try:
    import fcntl
except ImportError:  # Windows: leftovers of a killed save are not removed
    fcntl = None  # type: ignore[assignment]

PACKAGE = Path(__file__).parent
APP = "paifuser-lab"
HISTORY_OFF = "PAIFUSER_HISTORY"  # 0: nothing that was measured is kept in the data folder
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LEAST_SPACE = 1 << 16  # bytes: a disk with less is full
EXCHANGE, AT_FDCWD = 2, -100  # of renameat2(2)
MAX_PREFIX = 40  # characters of a file's name that its temporary file's name starts with


def cache_folder(*parts: str) -> Path:
    """Measurements and weights kept between runs: PAIFUSER_CACHE, or the user's cache folder."""
    root = os.environ.get("PAIFUSER_CACHE")
    folder = Path(root) if root else platformdirs.user_cache_path(APP)
    folder = folder.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def forget_oldest(folder: Path, most_bytes: int) -> None:
    """Delete what was not used for longest in a folder of the cache; never the newest."""
    kept = [
        path for path in folder.iterdir() if not path.name.startswith(".")
    ]  # others are written
    total = 0
    for index, path in enumerate(sorted(kept, key=lambda path: -path.stat().st_mtime)):
        files = [*path.iterdir()] if path.is_dir() else [path]
        total += sum(file.stat().st_size for file in files)
        if total > most_bytes and index:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def cache_file(kind: str, *key: object) -> Path:
    """The cache file of a result by all that it depends on: machine, threads, versions …"""
    digest = hashlib.sha256("|".join(map(str, key)).encode()).hexdigest()
    return cache_folder() / f"{kind}-{digest[:16]}.json"


def history_file() -> Path | None:
    """The database of what was measured, in the user's data folder; None where it is off."""
    if os.environ.get(HISTORY_OFF, "1") == "0":
        return None
    is_moved = "PAIFUSER_CACHE" in os.environ  # all that is kept goes there
    try:
        folder = cache_folder() if is_moved else platformdirs.user_data_path(APP)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"The folder of the history cannot be made ({first_line(error)}); make it, or set "
            f"{HISTORY_OFF}=0."
        ) from error
    return folder / "searches.db"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file that replaces `path` if the block succeeds, and is deleted if it raises.

    It is in a folder of its own: safetensors writes another file beside it, which a kill leaves.
    """
    path = checked_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(path)
        stage, lock = _locked(lambda: _made(path.with_name(_prefix(path) + secrets.token_hex(4))))
        temporary = stage / path.name
        try:
            temporary.touch()
            # the mode of the user's other files; safetensors makes it readable only by the owner
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)
            with temporary.open("r+b") as file:  # Windows flushes what may be written alone
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            _unlock(lock)
    except OSError as error:
        raise cannot_write(f"{path.name} into {path.parent}", error) from error


def clear_leftovers(path: Path) -> None:
    """Remove what killed saves of this file left."""
    _clear(path.parent, _prefix(path), "[0-9a-f]" * 8)


def _prefix(path: Path) -> str:
    return f".{path.name[:MAX_PREFIX]}."


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A folder beside the target, from which files are renamed; locked while it is written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # of the whole name: a stage that was exchanged has no lock, and others' names begin alike
    own = hashlib.sha256(folder.name.encode(errors="surrogateescape")).hexdigest()[:8]
    prefix = f".{folder.name[:MAX_PREFIX]}.{own}.saving-"
    _clear(folder.parent, prefix, "*")
    stage, lock = _locked(lambda: Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent)))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        _unlock(lock)


def replace_folder(stage: Path, folder: Path) -> None:
    """Put a complete stage in the folder's place; an earlier folder is then where the stage was, to
    be deleted.
    """
    stage.chmod(0o755)
    if not folder.exists():
        stage.rename(folder)
    elif not _exchanged(stage, folder):
        old = stage.with_name(f"{stage.name}-old")  # a name that the next stage clears
        folder.rename(old)
        stage.rename(folder)
        old.rename(stage)


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange two folders in one step, where the system can (Linux)."""
    if sys.platform != "linux":
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    result = renameat2(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), EXCHANGE)
    return bool(result == 0)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _locked(create: Callable[[], Path]) -> tuple[Path, int | None]:
    """A new file or folder and its lock; again if another save removed it before it was locked."""
    while True:
        new = create()
        with suppress(BlockingIOError):
            lock = _lock(new)
            if new.exists():
                return new, lock
            _unlock(lock)


def _clear(parent: Path, prefix: str, ending: str) -> None:
    """Remove what killed saves left; running ones hold their locks."""
    for leftover in parent.glob(f"{glob.escape(prefix)}{ending}"):
        with suppress(BlockingIOError):
            if (lock := _lock(leftover)) is not None:
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    leftover.unlink(missing_ok=True)
                _unlock(lock)


def _lock(stage: Path) -> int | None:
    """Lock a folder; BlockingIOError if another process has; None if there are no such locks."""
    if fcntl is None:
        return None
    try:
        handle = os.open(stage, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise
        return None


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def check_space(folder: Path) -> None:
    """Raise OSError where a disk is full, which other libraries report as errors of their own."""
    if shutil.disk_usage(folder).free < LEAST_SPACE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def make_folder(folder: Path) -> None:
    """Make a folder that results are written into, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"Cannot make the folder {folder}: {error.strerror}; choose another."
        ) from error


def cannot_write(what: str, error: OSError) -> FileError:
    """The error for a failed write: what could not be written, why, and what to do."""
    reason = error.strerror or first_line(error)
    remedy = (
        "free some space there or choose another folder"
        if error.errno in DISK_FULL
        else "choose a folder you can write to"
    )
    return FileError(f"Cannot write {what}: {reason}; {remedy}.")


def checked_path(path: str | Path) -> Path:
    """The path; raises for a name that no file can have: a lone surrogate or a zero byte."""
    if not is_encodable(str(path)) or "\0" in str(path):
        raise FileError(
            f"{str(path)!r} holds a character that no file's name can have; choose another name."
        )
    return Path(path)


def file_exists(path: str | Path) -> bool:
    """Whether the file exists; False for a name that no file can have, where pathlib may raise."""
    return os.path.isfile(path)


def folder_exists(path: str | Path) -> bool:
    """Whether the folder exists."""
    return os.path.isdir(path)


def is_encodable(text: str) -> bool:
    """Whether a text can be encoded as UTF-8; one with a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def read_text(path: str | Path, *, limit_bytes: int = 64 << 20) -> str:
    """Read a text file; raises if it is missing, too large, not a regular file or not UTF-8."""
    path = checked_path(path)
    try:
        check_size(path, limit_bytes=limit_bytes)
        with path.open("rb") as file:
            content = file.read(limit_bytes + 1)
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from error
    if len(content) > limit_bytes:  # files of /proc and /sys report size 0
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
    """Raise before reading if the path is not a regular file or is too large."""
    if (size := size_of(path)) > limit_bytes:
        raise FileError(
            f"{path.name} is {size:,} bytes, past the limit of {limit_bytes:,}; is it the right "
            "file?"
        )


def size_of(path: Path) -> int:
    """The size of a file in bytes; raises for pipes and devices, whose end may never come."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise FileError(f"{path} is a folder; give a file.")
    if not stat.S_ISREG(status.st_mode):
        raise FileError(
            f"{path} is a pipe or a device, not a file; write what it holds into a file and give "
            "that."
        )
    return status.st_size


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def asset(name: str) -> Path:
    """`widgets/…`, `kernels/…`, `runners/…` or `notebooks/…`, in the wheel or the checkout."""
    candidates = (PACKAGE / "_sources" / name, PACKAGE.parent / name)
    for path in candidates:
        if path.exists():
            return path
    raise FileError(
        f"{name} is neither in the installed package ({candidates[0]}) nor in a checkout "
        f"({candidates[1]}); reinstall paifuser-lab."
    )


def notebook_file(name: str) -> Path:
    """The path of a notebook: the user's own file, or one of the package's by its name."""
    if Path(name).is_file():
        return Path(name)
    ours = sorted(path.name for path in asset("notebooks").glob("*.ipynb"))
    if name not in ours:
        raise FileError(
            f"There is no notebook {name}, neither as a file nor in the package, which has "
            f"{', '.join(ours)}."
        )
    return asset(f"notebooks/{name}")

"""A deploy folder on the disk: it appears whole, replaces an earlier one whole or not at all, and
never replaces files that no deployment wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .._files import (
    cannot_write,
    check_size,
    checked_path,
    read_text,
    replace_folder,
    sha256,
    staged,
    write_text,
)
from ..errors import ExportError, FileError
from ..records import DeployedFile

MANIFEST = "manifest.json"
KIND = "paifuser-lab deployment"
VERSION = 1
CACHES = ("__pycache__", ".ipynb_checkpoints")  # what running or looking at the files leaves


@contextmanager
def replaced_folder(folder: str | Path) -> Iterator[Path]:
    """A stage that becomes the folder if the block succeeds; both are checked before and after."""
    target = checked_path(folder).absolute()
    check_replaceable(target)
    try:
        with staged(target) as stage:
            yield stage
            check_replaceable(target)
            replace_folder(stage, target)
    except OSError as error:
        raise cannot_write(f"into {target}", error) from error


def check_replaceable(folder: Path) -> None:
    """Raise unless the folder is missing, empty or an unchanged deployment."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ExportError(f"{folder} is no folder; give another path.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        written = read_manifest(folder)
    except FileError as error:
        raise ExportError(
            f"{folder} has files that no deployment wrote; give an empty folder or another path."
        ) from error
    found = {path.relative_to(folder).as_posix(): path for path in _files_in(folder)}
    for name, path in sorted(found.items()):
        if name != MANIFEST and (name not in written or sha256(path) != written[name]):
            raise ExportError(
                f"{folder} has a file '{name}' that is not as the deployment wrote it; move it "
                "away, or give another path."
            )


def write_manifest(folder: Path, **about: str) -> tuple[DeployedFile, ...]:
    """Write the SHA-256 of each file, and return the files."""
    files = tuple(
        DeployedFile(
            name=path.relative_to(folder).as_posix(),
            bytes=path.stat().st_size,
            sha256=sha256(path),
        )
        for path in sorted(_files_in(folder))
    )
    hashes = {file.name: file.sha256 for file in files}
    content = {"kind": KIND, "version": VERSION, **about, "files": hashes}
    write_text(folder / MANIFEST, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return files


def read_manifest(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file by its name; raise if the folder is no deployment."""
    try:
        content = json.loads(read_text(folder / MANIFEST, limit_bytes=4 << 20))
        if content["kind"] != KIND:
            raise ValueError(content["kind"])
        return {str(name): str(value) for name, value in content["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{folder / MANIFEST} is no manifest of a deployment.") from error


def checked_file(folder: Path, name: str, limit_bytes: int) -> bytes:
    """The content of a file that the folder's manifest names, if it is not too large."""
    if name != MANIFEST and name not in read_manifest(folder):
        raise FileError(f"{folder} has no file '{name}' of a deployment.")
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise FileError(f"'{name}' leads out of {folder}.")
    check_size(path, limit_bytes=limit_bytes)
    return path.read_bytes()


def _files_in(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if (path.is_file() or path.is_symlink()) and not set(CACHES) & set(path.parts):
            yield path

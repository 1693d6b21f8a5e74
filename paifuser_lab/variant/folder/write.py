"""Writes a compressed model into a folder: a new folder appears with all its files, an existing one
is valid again once its manifest is written.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import nn

from ..._files import MAX_PREFIX, cannot_write, checked_path, read_text
from ...errors import FileError
from ...model.weights import save_weights
from ...recipe import Recipe
from ...records import Manifest, Measurement, Record, SavedModel

try:
    import fcntl
except ImportError:  # Windows: leftovers of a killed save are not removed
    fcntl = None  # type: ignore[assignment]

VERSION = 1
RECIPE, STRUCTURE, WEIGHTS, REPORT, MANIFEST = (
    "recipe.yaml",
    "structure.json",
    "weights.safetensors",
    "report.json",
    "manifest.json",
)


def write_folder(
    folder: Path,
    recipe: Recipe,
    module: nn.Module,
    saved: SavedModel,
    report: Record | None,
    checked: Measurement,
) -> None:
    """Write the files; without a new report an existing one stays if it describes these weights,
    else `checked` is written.
    """
    folder = checked_path(folder).resolve()
    try:
        if folder.exists() and not folder.is_dir():
            raise FileError(f"{folder} is a file; give a folder.")
        with staged(folder) as stage:
            recipe.save(stage / RECIPE)
            saved.save(stage / STRUCTURE)
            save_weights(module, stage / WEIGHTS)
            if report is not None or not _keep_report(folder / REPORT, saved.weights_hash, stage):
                (report or checked).save(stage / REPORT)
            files = {path.name: sha256(path) for path in sorted(stage.iterdir())}
            Manifest(version=VERSION, torch=torch.__version__, files=files).save(stage / MANIFEST)
            _swap(stage, folder)
    except (OSError, FileError) as error:
        cause = error.__cause__ if isinstance(error, FileError) else error
        if not isinstance(cause, OSError):
            raise
        raise cannot_write(f"into {folder}", cause) from error


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _keep_report(report: Path, weights_hash: str, stage: Path) -> bool:
    """Whether an existing report stays: one about these weights, which is copied to the stage, or
    one that no earlier save has written.
    """
    if not report.is_file():
        return False
    try:
        if weights_hash in read_text(report):
            shutil.copyfile(report, stage / REPORT)
            return True
        return sha256(report) != Manifest.load(report.with_name(MANIFEST)).files.get(REPORT)
    except FileError:  # it is not text, or there was no earlier save
        return True


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A folder beside the target, so that files are moved by renaming; it is locked while it is
    written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _clear(folder)
    stage, lock = _create_stage(folder)
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        _unlock(lock)


def _prefix(folder: Path) -> str:
    return f".{folder.name[:MAX_PREFIX]}.saving-"


def _create_stage(folder: Path) -> tuple[Path, int | None]:
    """A new folder and its lock; created again if another save removed it as a leftover before it
    was locked.
    """
    while True:
        stage = Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=folder.parent))
        with suppress(BlockingIOError):
            lock = _lock(stage)
            if stage.exists():
                return stage, lock
            _unlock(lock)


def _clear(folder: Path) -> None:
    """Remove what killed saves of this folder left; the system releases their locks, but not those
    of running saves.
    """
    for leftover in folder.parent.glob(f"{glob.escape(_prefix(folder))}*"):
        with suppress(BlockingIOError):
            if (lock := _lock(leftover)) is not None:
                shutil.rmtree(leftover, ignore_errors=True)
                _unlock(lock)


def _lock(stage: Path) -> int | None:
    """Lock a folder, or raise BlockingIOError if another process has locked it; None if there are
    no such locks.
    """
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


def _swap(stage: Path, folder: Path) -> None:
    """Rename the stage if there is no folder; else move file by file, without a manifest."""
    if not folder.exists():
        stage.chmod(0o755)
        stage.rename(folder)
        return
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in sorted(stage.iterdir(), key=lambda file: file.name == MANIFEST):
        os.replace(path, folder / path.name)

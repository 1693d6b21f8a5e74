"""Where an exported file goes, and how it gets there: whole, beside nothing of an older one."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from .._files import checked_path
from ..errors import ExportError
from .target import Target

WEIGHTS = re.compile(r"\.[0-9a-f]{8}\.data")  # ends the names of weights beside a file
NO_FILE_NAME = re.compile(r"[^\w.-]+")


def size_bytes(folder: Path) -> int:
    """The size of all files in a folder and below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def deliver(stage: Path, goal: Path) -> None:
    """Move an artefact from its temporary folder to `goal`: what lies beside it first, and itself
    last, so that a kill in between leaves the old one, or the new one whole.

    Where a file beside it is replaced, such as OpenVINO's weights, the old artefact is moved away
    first, so that a kill never leaves one with the weights of another.
    """
    artefact, old = stage / goal.name, stage / f"{goal.name}.old"  # deleted with the stage
    _check_replaceable(goal, artefact)
    for file in (stage, *stage.rglob("*")):
        _synced(file)
    others = [file for file in sorted(stage.iterdir()) if file.name != goal.name]
    is_folder = goal.is_dir() and not goal.is_symlink()
    if is_folder or (goal.exists() and any(_is_replaced(file, goal) for file in others)):
        os.rename(goal, old)
    moved = []
    try:
        for file in others:
            os.replace(file, goal.parent / file.name)
            moved.append(file.name)
        os.replace(artefact, goal)
    except OSError:
        if old.exists() and not moved:
            os.rename(old, goal)
        raise
    if goal.suffix == ".onnx":  # the weights beside any other artefact are not named by content
        for file in goal.parent.glob(f"{glob.escape(goal.stem)}.*.data"):
            if _is_named_by_content(file, goal) and file.name not in moved:
                file.unlink(missing_ok=True)  # of the file that was replaced


def _check_replaceable(goal: Path, artefact: Path) -> None:
    """Raise where a folder would go with others' files, or a file is in a folder's way."""
    if not goal.exists() or (artefact.is_file() and goal.is_file()):
        return
    if goal.is_dir() != artefact.is_dir():
        found, written = ("folder", "file") if goal.is_dir() else ("file", "folder")
        raise ExportError(
            f"{goal} is a {found}, and a {written} is to be written there; no file was changed, "
            "give another path."
        )
    written_names = {file.name for file in artefact.iterdir()}
    for file in sorted(goal.iterdir()):
        if file.name not in written_names and not WEIGHTS.search(file.name):
            raise ExportError(
                f"{goal} has '{file.name}', which no export wrote; no file was changed, move it "
                "away or give another path."
            )


def _is_replaced(file: Path, goal: Path) -> bool:
    """Whether another file is there in place of one beside the artefact."""
    return (goal.parent / file.name).exists() and not _is_named_by_content(file, goal)


def _is_named_by_content(file: Path, goal: Path) -> bool:
    return WEIGHTS.fullmatch(file.name[len(goal.stem) :]) is not None


def _synced(file: Path) -> None:
    is_windows = os.name == "nt"  # it flushes a file that may be written alone, and no folder
    if is_windows and (file.is_dir() or not os.access(file, os.W_OK)):
        return
    handle = os.open(file, os.O_RDWR if is_windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def path_of(path: str | Path | None, name: str, target: Target) -> Path:
    """Where the artefact goes: the given file, a file in the given folder, or the model's name."""
    own = (NO_FILE_NAME.sub("_", name).strip("_.") or "model") + target.suffix
    if path is None:
        return Path(own).absolute()
    given = checked_path(path)
    if given.is_dir() and not given.name.endswith(target.suffix):
        return (given / own).absolute()
    if not given.name.endswith(target.suffix):
        raise ExportError(
            f"{target.title} is written as '{target.suffix}', and {given.name!r} ends otherwise; "
            f"give {given.with_suffix(target.suffix).name!r}, or a folder that exists."
        )
    return given.absolute()

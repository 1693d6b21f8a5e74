"""Write a compressed model into a folder: a new folder appears whole, and one that is there is whole again when its manifest is."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import torch
from torch import nn

from .._files import read_text
from ..errors import FileError, first_line
from ..recipe import Recipe
from ..records import Manifest, Measurement, Record, SavedModel
from ..weights import save_weights

VERSION = 1
RECIPE, STRUCTURE, WEIGHTS, REPORT, MANIFEST = (
    "recipe.yaml",
    "structure.json",
    "weights.safetensors",
    "report.json",
    "manifest.json",
)


def write_folder(
    folder: Path, recipe: Recipe, module: nn.Module, saved: SavedModel, report: Record | None, checked: Measurement
) -> None:
    """Write the files; without a report the one that lies there stays if it is about these weights, else `checked` is written."""
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file; give a folder.")
    staged = _stage(folder)
    try:
        recipe.save(staged / RECIPE)
        saved.save(staged / STRUCTURE)
        save_weights(module, staged / WEIGHTS)
        if report is not None or not _kept(folder / REPORT, saved.weights_hash, staged):
            (report or checked).save(staged / REPORT)
        files = {path.name: sha256(path) for path in sorted(staged.iterdir())}
        Manifest(version=VERSION, torch=torch.__version__, files=files).save(staged / MANIFEST)
        _swap(staged, folder)
    except OSError as error:
        raise FileError(
            f"Cannot write into {folder}: {error.strerror or first_line(error)}; choose a folder you can write to."
        ) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def sha256(path: Path) -> str:
    """The hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kept(report: Path, weights_hash: str, staged: Path) -> bool:
    """Whether a report that lies there stays: one about these weights, which joins them, or one that no earlier save has written."""
    if not report.is_file():
        return False
    try:
        if weights_hash in read_text(report):
            shutil.copyfile(report, staged / REPORT)
            return True
        return sha256(report) != Manifest.load(report.with_name(MANIFEST)).files.get(REPORT)
    except FileError:  # it is no text, or there was no earlier save
        return True


def _stage(folder: Path) -> Path:
    """A folder beside the one that is wanted, so that all can be renamed."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise FileError(f"Cannot write into {folder.parent}: {error.strerror}; choose a folder you can write to.") from error


def _swap(staged: Path, folder: Path) -> None:
    """In one go where there is no folder; else file by file, without a manifest meanwhile."""
    if not folder.exists():
        staged.chmod(0o755)
        staged.rename(folder)
        return
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in sorted(staged.iterdir(), key=lambda one: one.name == MANIFEST):
        os.replace(path, folder / path.name)

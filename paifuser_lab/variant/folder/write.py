"""Writes a compressed model into a folder: a new folder appears with all its files, an existing one
is valid again once its manifest is written.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
from torch import nn

from ..._files import cannot_write, checked_path, read_text, sha256, staged
from ...errors import FileError
from ...model.weights import save_weights
from ...recipe import Recipe
from ...records import Manifest, Measurement, Record, SavedModel

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


def _swap(stage: Path, folder: Path) -> None:
    """Rename the stage if there is no folder; else move file by file, without a manifest."""
    if not folder.exists():
        stage.chmod(0o755)
        stage.rename(folder)
        return
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in sorted(stage.iterdir(), key=lambda file: file.name == MANIFEST):
        os.replace(path, folder / path.name)

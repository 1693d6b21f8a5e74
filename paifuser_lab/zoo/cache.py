"""Trained weights kept on disk: written atomically, and read only if their SHA-256 matches."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import platformdirs
import safetensors.torch
import torch

# Increase it when a trained model's architecture, data or training changes: old weights are then
# ignored.
VERSION = 1

Weights = dict[str, torch.Tensor]


def folder() -> Path:
    """Where trained weights are kept; the environment variable PAIFUSER_CACHE moves it."""
    return Path(os.environ.get("PAIFUSER_CACHE") or platformdirs.user_cache_path("paifuser-lab"))


def path_for(name: str, seed: int) -> Path:
    """The file of a model's trained weights; its SHA-256 is beside it."""
    key = hashlib.sha256(f"{VERSION}|{name}|{seed}|{torch.__version__}".encode()).hexdigest()
    return folder() / f"{name}-{key[:16]}.safetensors"


def load_or_make(name: str, seed: int, make: Callable[[], Weights]) -> Weights:
    """The weights from the cache, or made anew if there are none or the file is damaged."""
    path = path_for(name, seed)
    weights = _read(path)
    if weights is not None:
        return weights
    weights = make()
    try:
        _write(
            path,
            safetensors.torch.save({key: tensor.contiguous() for key, tensor in weights.items()}),
        )
    except OSError as error:
        hint = "it will train again next time; set PAIFUSER_CACHE to a folder that can be written"
        warnings.warn(
            f"{name!r} could not be kept in {path.parent} ({error}): {hint}.", stacklevel=2
        )
    return weights


def _read(path: Path) -> Weights | None:
    try:
        data, expected = path.read_bytes(), _digest_path(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    if hashlib.sha256(data).hexdigest() != expected:
        return None
    weights: Weights = safetensors.torch.load(data)
    return weights


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, data)
    _replace(_digest_path(path), f"{hashlib.sha256(data).hexdigest()}\n".encode())


def _replace(path: Path, data: bytes) -> None:
    """Write atomically, so that no reader sees a partial file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _digest_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")

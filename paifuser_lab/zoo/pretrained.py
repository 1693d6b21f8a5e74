"""Trained weights that come with the package, for seed 0.

`make weights` trains the models again and writes their weights to pretrained/, with weights.json:
for each model its hash, its metric on the test data and the torch that trained it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from .._files import write_text
from ..errors import FileError

FOLDER = Path(__file__).with_name("pretrained")
SEED = 0
MAX_BYTES = 3_000_000


def read(name: str, seed: int) -> dict[str, torch.Tensor] | None:
    """The weights of a model, or None where the package has none for this seed."""
    known = manifest()
    if seed != SEED or name not in known:
        return None
    path = path_of(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"Cannot read {path}: {error.strerror}; install the package again."
        ) from error
    if hashlib.sha256(data).hexdigest() != known[name]["sha256"]:
        raise FileError(
            f"{path} is damaged (its SHA-256 is not the one in weights.json); install the package "
            "again."
        )
    weights: dict[str, torch.Tensor] = safetensors.torch.load(data)
    return weights


def manifest() -> dict[str, Any]:
    """What weights.json records of each model."""
    path = FOLDER / "weights.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def path_of(name: str) -> Path:
    """The file of a model's weights."""
    return FOLDER / f"{name}.safetensors"


def write(name: str, weights: Mapping[str, torch.Tensor], metric: float) -> bool:
    """Write a model's weights and their record; False, and nothing, if they are larger than
    `MAX_BYTES`.
    """
    data = safetensors.torch.save({key: value.contiguous() for key, value in weights.items()})
    if len(data) > MAX_BYTES:
        return False
    FOLDER.mkdir(exist_ok=True)
    path_of(name).write_bytes(data)
    record = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "metric": round(metric, 4),
        "torch": torch.__version__,
    }
    ordered = dict(sorted((manifest() | {name: record}).items()))
    write_text(FOLDER / "weights.json", json.dumps(ordered, indent=1) + "\n")
    return True

"""The checkpoint file of a training, in the user's cache: written whole or not at all, and read
only if its hash matches.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from .._files import cache_folder, replacing
from ..errors import FileError, first_line
from ..model.weights import weights_hash, write_tensors


@dataclass(frozen=True)
class Checkpoint:
    """A training between steps: `epoch` epochs and `step` steps of the next are done."""

    # of the model, of the module trained along with it and of the optimizer, by name
    tensors: dict[str, Tensor]
    epoch: int = 0
    step: int = 0
    losses: tuple[float, ...] = ()  # of each step
    scaler: dict[str, float] = field(default_factory=dict)  # of the loss, in fp16
    skipped: int = 0  # the steps whose gradient overflowed in fp16
    seconds: float = 0.0
    is_done: bool = False

    @property
    def bytes(self) -> int:
        """The memory of its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


VERSION = 1  # increment when equal options no longer train to equal weights
MOST_BYTES = 2 << 30  # of all files; those not used for longest are deleted first


class CheckpointFile:
    """The checkpoint file of the training that is identified by these texts; `notes` reports what
    failed.
    """

    def __init__(self, *made_of: str) -> None:
        self.key = hashlib.sha256("\n".join((str(VERSION), *made_of)).encode()).hexdigest()
        self.notes: list[str] = []

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._folder() / f"{self.key[:32]}.safetensors"

    def load(self) -> Checkpoint | None:
        """The last checkpoint; None if there is none or it is damaged."""
        try:
            return self._read() if self.path.is_file() else None
        except OSError:  # there is no such folder, as `save` will note
            return None
        # safetensors raises many kinds of errors for a damaged file
        except Exception as error:
            self._note(
                f"the checkpoint of an earlier run is damaged and was ignored ({first_line(error)})"
            )
            return None

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint over the last one; if that fails, training continues without."""
        facts = json.dumps({name: getattr(checkpoint, name) for name in _FACTS})
        contents = {
            name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()
        }
        try:
            with replacing(self.path) as temporary:
                write_tensors(
                    contents, temporary, {"facts": facts, "digest": _digest(facts, contents)}
                )
            self._tidy()
        except (FileError, OSError) as error:
            self._note(
                f"the checkpoint could not be written ({first_line(error).rstrip('.')}); set "
                "PAIFUSER_CACHE to a folder that can be written"
            )

    def _read(self) -> Checkpoint:
        from safetensors import safe_open

        with safe_open(self.path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it cannot be iterated over)
        facts = metadata.get("facts", "")
        if metadata.get("digest") != _digest(facts, tensors):
            raise FileError("it does not have the hash that was stored with it")
        os.utime(self.path)
        return _checkpoint(tensors, json.loads(facts))

    def _folder(self) -> Path:
        folder = cache_folder("training")
        folder.chmod(0o700)  # models are private to their owner
        return folder

    def _tidy(self) -> None:
        """Delete the files that were not used for longest; never the newest."""
        newest_first = sorted(
            self._folder().iterdir(), key=lambda file: file.stat().st_mtime, reverse=True
        )
        total = 0
        for index, file in enumerate(newest_first):
            total += file.stat().st_size
            if total > MOST_BYTES and index:
                file.unlink(missing_ok=True)

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


_FACTS = ("epoch", "step", "losses", "scaler", "skipped", "seconds", "is_done")


def _checkpoint(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Checkpoint:
    return Checkpoint(tensors, **{**facts, "losses": tuple(facts["losses"])})


def _digest(facts: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256(f"{facts} {weights_hash(tensors)}".encode()).hexdigest()

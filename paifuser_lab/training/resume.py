"""The checkpoint file of a training: written whole or not at all, read only if its hash matches.

One in the user's cache is found by what the training depends on, and a damaged one is ignored; a
file that the user names is refused if it is damaged or of another training.
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

from .._files import (
    cache_folder,
    check_size,
    checked_path,
    clear_leftovers,
    forget_oldest,
    replacing,
)
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
    history: dict[str, Tensor] = field(default_factory=dict)  # as `History.tensors` has it
    began_from: str = ""  # the hash of the weights before the first step

    @property
    def weights_hash(self) -> str:
        """The hash of the models' weights and buffers, without the optimizer's state."""
        parts = {
            name: tensor
            for name, tensor in self.tensors.items()
            if name.startswith(("model/", "extra/"))
        }
        return weights_hash(parts)

    def problem_for(self, weights: str) -> str:
        """Why a model of the same shapes, whose weights have this hash, cannot go on from here; ''
        if it can: it has the weights of the beginning, or those that were reached.
        """
        is_same = weights in (self.began_from, self.weights_hash)
        return "" if is_same else "began from other weights than this model has"


VERSION = 3  # increment when equal options no longer train to equal weights
MOST_BYTES = 2 << 30  # of all files; those not used for longest are deleted first


class CheckpointFile:
    """The checkpoint file of the training that is identified by these texts; `notes` reports what
    failed.
    """

    remedy = "set PAIFUSER_CACHE to a folder that can be written"

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
            clear_leftovers(self.path)  # a training that is complete saves no more
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
        stored = {name: getattr(checkpoint, name) for name in _FACTS}
        facts = json.dumps({"version": VERSION} | stored | self._known())
        contents = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in (
                *checkpoint.tensors.items(),
                *((f"{HISTORY}{name}", tensor) for name, tensor in checkpoint.history.items()),
            )
        }
        try:
            with replacing(self.path) as temporary:
                write_tensors(
                    contents, temporary, {"facts": facts, "digest": _digest(facts, contents)}
                )
            self._tidy()
        except (FileError, OSError) as error:
            self._note(
                f"the checkpoint could not be written ({first_line(error).rstrip('.')}); "
                f"{self.remedy}"
            )

    def check_fits(self, problem: str) -> bool:
        """Whether to resume from the checkpoint, which has a problem or ''."""
        if problem:
            self._note(f"the checkpoint of an earlier run {problem} and was ignored")
        return not problem

    def _known(self) -> dict[str, Any]:
        """More facts to store with a checkpoint."""
        return {}

    def _check_known(self, facts: dict[str, Any]) -> None:
        """Raise if the stored facts are those of another training."""

    def _read(self) -> Checkpoint:
        from safetensors import safe_open

        with safe_open(self.path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it cannot be iterated over)
        facts = metadata.get("facts", "")
        if metadata.get("digest") != _digest(facts, tensors):
            raise FileError("it does not have the hash that was stored with it")
        os.utime(self.path)
        known = json.loads(facts)
        self._check_known(known)
        return _checkpoint(tensors, known)

    def _folder(self) -> Path:
        folder = cache_folder("training")
        folder.chmod(0o700)  # models are private to their owner
        return folder

    def _tidy(self) -> None:
        forget_oldest(self._folder(), MOST_BYTES)

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


class NamedCheckpointFile(CheckpointFile):
    """A checkpoint file of the user's own, which knows the training's options, data and torch."""

    remedy = "name a file that can be written"

    def __init__(self, path: str | Path, known: Mapping[str, Any]) -> None:
        super().__init__(str(path))
        self._path, self.known = checked_path(path), dict(known)

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._path

    def load(self) -> Checkpoint | None:
        """The checkpoint; None where there is no file yet. One that cannot be used is refused."""
        if not self.path.exists():
            return None
        try:
            check_size(self.path, limit_bytes=MOST_NAMED_BYTES)
            return self._read()
        except FileError as error:
            raise FileError(f"{self.path.name}: {first_line(error)}") from error
        # safetensors raises many kinds of errors for a damaged file
        except Exception as error:
            raise FileError(
                f"{self.path.name} is no checkpoint of a training or was cut short "
                f"({first_line(error).rstrip('.')}); give another file, or delete it to begin anew."
            ) from error

    def check_fits(self, problem: str) -> bool:
        """Raise if the checkpoint has a problem."""
        if problem:
            raise FileError(
                f"{self.path.name} {problem}; give another file, or delete it to begin anew."
            )
        return True

    def _known(self) -> dict[str, Any]:
        return {"known": json.loads(json.dumps(self.known))}

    def _check_known(self, facts: dict[str, Any]) -> None:
        stored, own = facts.get("known", {}), self._known()["known"]
        if facts.get("version") != VERSION:
            raise FileError(
                f"it is stored in form {facts.get('version')}, and this version reads {VERSION}; "
                "delete it to begin anew."
            )
        for name in own | stored:
            if stored.get(name) != own.get(name):
                made_with = (
                    f"other {name}"
                    if name in HASHED
                    else f"{name} {stored.get(name)!r}, not {own.get(name)!r}"
                )
                raise FileError(
                    f"it was made with {made_with}, and would not go on to the same losses; give "
                    "the same, or another file."
                )

    def _tidy(self) -> None:
        """Nothing else in the user's folder is ours."""


HISTORY = "history/"
MOST_NAMED_BYTES = 1 << 40
HASHED = ("train data", "layers", "values of the loss")  # facts that are no use to a reader
_FACTS = ("epoch", "step", "losses", "scaler", "skipped", "seconds", "is_done", "began_from")
OTHER_MODEL = "is of another model (its tensors have other names, shapes or dtypes)"


def _checkpoint(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Checkpoint:
    values = {name: facts[name] for name in _FACTS} | {"losses": tuple(facts["losses"])}
    history = {
        name.removeprefix(HISTORY): tensor
        for name, tensor in tensors.items()
        if name.startswith(HISTORY)
    }
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(HISTORY)}
    return Checkpoint(own, **values, history=history)


def _digest(facts: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256(f"{facts} {weights_hash(tensors)}".encode()).hexdigest()

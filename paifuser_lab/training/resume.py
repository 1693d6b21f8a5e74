"""Where a training keeps how far it has come, in the user's cache: written whole or not at all, and
believed only when its hash agrees.
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
class Moment:
    """A training between two steps: `epoch` epochs and `step` steps of the next one are done."""

    tensors: dict[
        str, Tensor
    ]  # of the model, of what is trained along and of the optimizer, by name
    epoch: int = 0
    step: int = 0
    losses: tuple[float, ...] = ()  # of each step
    scaler: dict[str, float] = field(default_factory=dict)  # of the loss, in fp16
    skipped: int = 0  # steps whose gradient was past fp16
    seconds: float = 0.0
    is_done: bool = False

    @property
    def bytes(self) -> int:
        """How much memory its tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


VERSION = 1  # raise it when equal options no longer train to equal weights
MOST_BYTES = 2 << 30  # of all that is kept; what was not used for longest goes first


class Kept:
    """`Kept(what, of, what)` is the place for the one training that is made of that; `notes` says
    what went wrong with it.
    """

    def __init__(self, *made_of: str) -> None:
        self.key = hashlib.sha256("\n".join((str(VERSION), *made_of)).encode()).hexdigest()
        self.notes: list[str] = []

    @property
    def path(self) -> Path:
        """The file."""
        return self._folder() / f"{self.key[:32]}.safetensors"

    def load(self) -> Moment | None:
        """How far it came; None where nothing is kept, or what is kept is damaged."""
        try:
            return self._read() if self.path.is_file() else None
        except OSError:  # there is no such folder, as `save` will say
            return None
        except (
            Exception
        ) as error:  # the reader of safetensors raises whatever a damaged file makes it trip over
            self._note(f"what an earlier run kept is damaged and was ignored ({first_line(error)})")
            return None

    def save(self, moment: Moment) -> None:
        """Keep a moment in place of the one before; where that fails the training goes on
        without.
        """
        facts = json.dumps({name: getattr(moment, name) for name in _FACTS})
        contents = {
            name: tensor.detach().cpu().contiguous() for name, tensor in moment.tensors.items()
        }
        try:
            with replacing(self.path) as temporary:
                write_tensors(
                    contents, temporary, {"facts": facts, "digest": _digest(facts, contents)}
                )
            self._tidy()
        except (FileError, OSError) as error:
            self._note(
                f"it could not be kept ({first_line(error).rstrip('.')}); set PAIFUSER_CACHE to a "
                "folder that can be written"
            )

    def _read(self) -> Moment:
        from safetensors import safe_open

        with safe_open(self.path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it cannot be iterated over)
        facts = metadata.get("facts", "")
        if metadata.get("digest") != _digest(facts, tensors):
            raise FileError("it does not have the hash that was stored with it")
        os.utime(self.path)
        return _moment(tensors, json.loads(facts))

    def _folder(self) -> Path:
        folder = cache_folder("training")
        folder.chmod(0o700)  # models are their owner's
        return folder

    def _tidy(self) -> None:
        """Throw away what was not used for longest, until the rest is small enough; never the
        newest.
        """
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


def _moment(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Moment:
    return Moment(tensors, **{**facts, "losses": tuple(facts["losses"])})


def _digest(facts: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256(f"{facts} {weights_hash(tensors)}".encode()).hexdigest()

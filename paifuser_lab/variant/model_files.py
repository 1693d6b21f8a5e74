"""Workloads that are read from files of other tools: which names mean one, where the file is now,
and whether it still holds what it held.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from .._files import file_exists
from ..errors import FileError, PaifuserError, UnknownModelError, WorkloadError
from ..importer import Imported
from ..machine.host import free_memory
from ..model.silence import compilers_silenced
from ..records import Origin
from ..zoo.installed import installed_names

FOLDER = "hf:"
WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
# of a workload, which a file does not have
PARTS = ("name", "loss", "train", "test", "metric", "preprocessing")
OPTIONS = ("text", *PARTS)
SHAPES = ("inputs", "sizes")  # of a graph; a language model has a batch alone
PROGRAM = ".pt2"
GGUF = ".gguf"
# suffix → what reads the file, imported where one is read
READERS = {".onnx": "onnx:load_onnx", PROGRAM: "pt2:load_pt2", GGUF: "gguf:load_gguf"}


def is_model_file(name: str) -> bool:
    """Whether a name is that of a file that a model is read from."""
    return name.lower().endswith(tuple(READERS))


def is_program(name: str) -> bool:
    """Whether a name is that of a program of torch.export."""
    return name.lower().endswith(PROGRAM)


def holds_weights(name: str) -> bool:
    """Whether a name is that of a file which holds weights, or a pickle, and no code."""
    return name.lower().endswith(WEIGHTS)


def weights_alone(name: str) -> PaifuserError:
    """The error for such a file in place of a model."""
    if not file_exists(name):
        return FileError(f"There is no file {name!r}.")
    return UnknownModelError(
        f"{name} holds weights, not the code that they belong to: name the code and give the "
        f"weights, lab.load('net.py:Net', weights={name!r}) or `paifuser-lab run recipe.yaml "
        f"--model net.py:Net --weights {name}`; a program that torch.export.save wrote ends in "
        ".pt2."
    )


def read_model_file(name: str, **options: Any) -> Imported:
    """Read the file that a name means."""
    file, _, function = READERS[Path(name).suffix.lower()].partition(":")
    read = getattr(import_module(f"..importer.{file}", __package__), function)
    if name.lower().endswith(GGUF):
        options["free"] = free_memory()
    with compilers_silenced() if is_program(name) else nullcontext():
        imported: Imported = read(name, **options)
    return imported


def check_options(name: str, options: Iterable[str]) -> None:
    """Raise for an option that a file does not have."""
    known = OPTIONS if name.lower().endswith(GGUF) else (*SHAPES, *OPTIONS)
    if unknown := set(options) - set(known):
        raise WorkloadError(
            f"{name} has no option {min(unknown)!r}; it has batch, seed, {', '.join(known)}."
        )


def content_hash(files: Iterable[Path]) -> str:
    """The SHA-256 of what files hold; '' without any."""
    total = hashlib.sha256()
    paths = list(files)
    for path in paths:
        try:
            with path.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise FileError(f"Cannot read {path}: {error.strerror}.") from error
    return total.hexdigest() if paths else ""


def places(origin: Origin, source: Path) -> Iterator[str]:
    """The names by which a saved folder may find its original's file: as it was named, where it
    was, and beside the folder.
    """
    if origin.name in installed_names():
        yield origin.name
    prefix = FOLDER if origin.name.startswith(FOLDER) else ""
    named = origin.name.removeprefix(prefix)
    tried = dict.fromkeys((named, origin.path, str(source.absolute().parent / Path(named).name)))
    inside = "config.json" if prefix else ""
    found = [place for place in tried if place and file_exists(Path(place, inside))]
    yield from (f"{prefix}{place}" for place in found or [named])


def changed(name: str) -> FileError:
    """The error for a file that no longer holds what it held."""
    return FileError(
        f"{name} holds something else than when the model was saved; put the file as it was in its "
        "place."
    )

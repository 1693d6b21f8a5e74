"""The manifest of a checkpoint's folder: the size and SHA-256 of every file, verified before one is
read; and a reader of torch's metadata, which is a pickle, that refuses to execute anything.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

from .._files import read_text, sha256, write_text
from ..errors import FileError, first_line

FORMAT = 1
MANIFEST = "manifest.json"


class SafeReader(FileSystemReader):
    """Reads a checkpoint whose files are known; its pickled metadata may name nothing but what
    describes tensors.
    """

    def __init__(self, path: Path, files: set[str]) -> None:
        super().__init__(path)
        self.folder, self.files = path, files

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        try:
            with (self.folder / ".metadata").open("rb") as file:
                metadata = _Unpickler(file).load()
        except FileError:
            raise
        except Exception as error:  # pickle raises many kinds of errors for a damaged file
            raise FileError(
                f"the checkpoint's metadata is damaged ({first_line(error)})."
            ) from error
        if not isinstance(metadata, Metadata):
            raise FileError("the checkpoint's metadata describes no tensors; it was refused.")
        for place in (metadata.storage_data or {}).values():
            if place.relative_path not in self.files:
                raise FileError(
                    f"the checkpoint's metadata names {place.relative_path!r}, which is no file of "
                    "its manifest; it was refused."
                )
        metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return metadata


class _Unpickler(pickle.Unpickler):
    ALLOWED = {
        "torch.distributed.checkpoint.metadata": {
            "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex",
            "StorageMeta", "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
        },
        "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
        "torch.serialization": {"_get_layout"},
        "torch": {"Size"},
        "pathlib": {"PosixPath", "WindowsPath"},
        "collections": {"OrderedDict"},
    }  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not is_dtype and name not in self.ALLOWED.get(module, ()):
            raise FileError(
                f"the checkpoint's metadata names {module}.{name}, which may execute code; it was "
                "refused, and nothing was executed."
            )
        return super().find_class(module, name)


def write_manifest(folder: Path, body: dict[str, Any]) -> None:
    """Write what the folder holds: the size and SHA-256 of every file."""
    files = {
        path.name: [path.stat().st_size, sha256(path)]
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST
    }
    body = {**body, "format": FORMAT, "files": files}
    write_text(folder / MANIFEST, json.dumps({"digest": _digest(body), "body": body}, indent=1))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint's folder."""
    path = folder / MANIFEST
    if not path.is_file():
        raise FileError("it has no manifest")
    try:
        content = json.loads(read_text(path))
        body = dict(content["body"])
        if content["digest"] != _digest(body):
            raise FileError("its manifest was altered")
        if body["format"] != FORMAT:
            raise FileError(f"it has form {body['format']}, and this version reads {FORMAT}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"its manifest is damaged ({first_line(error)})") from error
    return body


def first_problem(folder: Path, body: Mapping[str, Any], names: list[str]) -> str | None:
    """What is wrong with the first of these files that is not as the manifest says."""
    there = {path.name for path in folder.iterdir()} - {MANIFEST}
    if unknown := sorted(there - body["files"].keys()):
        return f"{unknown[0]} is not in its manifest"
    for name in names:
        size, digest = body["files"][name]
        path = folder / name
        if Path(name).name != name or path.is_symlink() or not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size:,} bytes and had {size:,}"
        if sha256(path) != digest:
            return f"{name} was altered"
    return None


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

"""Checkpoints of a parallel training, by torch.distributed.checkpoint: each rank writes its part,
and another number of ranks can go on from it.

A checkpoint is a folder that appears whole or not at all. Its manifest has the SHA-256 of every
file and is verified before anything else is read; torch's own metadata is a pickle, of which only
names that describe tensors are allowed.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from .._files import checked_path, read_text, sha256, write_text
from ..errors import FileError, first_line
from ..records import counted
from .averaging import LocalSteps
from .group import Group
from .strategy import WHEN, DataParallel

PART = ".part"  # what the name of an unfinished one begins with
NAME = re.compile(r"step-(\d{10})")
FORMAT = 1
MANIFEST = "manifest.json"


class SafeReader(FileSystemReader):
    """Reads a checkpoint of known files; its pickle may name nothing but what describes tensors."""

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


class Checkpoints:
    """The checkpoints of one training in a folder; the newest `keep` stay."""

    def __init__(self, folder: str | Path, strategy: DataParallel, *, keep: int = 2) -> None:
        self.folder, self.strategy, self.keep = checked_path(folder), strategy, keep

    @property
    def group(self) -> Group:
        """The ranks that save and load together."""
        return self.strategy.group

    def newest(self) -> Path | None:
        """The newest whole checkpoint; None if there is none."""
        if not self.folder.is_dir():
            return None
        found = [path for path in self.folder.iterdir() if NAME.fullmatch(path.name)]
        return max(found, default=None)

    def save(self, step: int, facts: Mapping[str, Any] | None = None) -> Path:
        """Write a checkpoint after this step; all ranks call it together. `facts` are stored with
        it, as JSON.
        """
        try:
            json.dumps(dict(facts or {}), allow_nan=False)
        except (TypeError, ValueError) as error:  # on every rank, before one waits for another
            raise FileError(f"the facts cannot be stored as JSON: {first_line(error)}.") from error
        part, path = self.folder / f"{PART}-{step}", self.folder / f"step-{step:010d}"
        if self.group.rank == 0:
            for old in self.folder.glob(f"{PART}-*") if self.folder.is_dir() else ():
                shutil.rmtree(old, ignore_errors=True)
            part.mkdir(parents=True)
        self._meet()
        writer = FileSystemWriter(part)
        with _without_group_quietly():
            save(self._tensors(), storage_writer=writer, no_dist=self.group.is_alone)
        if self.group.rank == 0:
            write_manifest(part, self._body(step, facts or {}))
            shutil.rmtree(path, ignore_errors=True)
            os.replace(part, path)
            self._tidy()
        self._meet()
        return path

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """Restore the newest checkpoint, and return its step and facts; None if there is none. All
        ranks call it together; one that is damaged is refused on all of them, and nothing changed.
        """
        message: list[Any] = [self.newest() if self.group.rank == 0 else None]
        if not self.group.is_alone:
            dist.broadcast_object_list(message, 0)
        path = message[0]
        if path is None:
            return None
        body = self._verified(path)
        self._check_known(path, body)
        reader = SafeReader(path, set(body["files"]))
        wanted = self._wanted(reader.read_metadata(), body["world"])
        with _without_group_quietly():
            load(wanted, storage_reader=reader, no_dist=self.group.is_alone)
        self._restore(wanted, body)
        return int(body["step"]), dict(body["facts"])

    def _meet(self) -> None:
        if not self.group.is_alone:
            dist.barrier()

    def _verified(self, path: Path) -> dict[str, Any]:
        """The manifest, once every file has the hash that it names; each rank hashes a part."""
        try:
            body, problem = read_manifest(path), None
            names = sorted(body["files"])[self.group.rank :: self.group.world]
            problem = first_problem(path, body, names)
        except (FileError, OSError) as error:
            body, problem = {}, first_line(error)
        problems: list[str | None] = [problem] * self.group.world
        if not self.group.is_alone:
            dist.all_gather_object(problems, problem)
        for found in problems:
            if found is not None:
                raise FileError(
                    f"The checkpoint {path.name} is refused, and nothing of it was read: "
                    f"{found.rstrip('.')}. Delete the folder to go on from the one before."
                )
        return body

    def _check_known(self, path: Path, body: Mapping[str, Any]) -> None:
        if body["kind"] != self.strategy.kind:
            raise FileError(
                f"The checkpoint {path.name} was saved {WHEN[body['kind']]}, and not "
                f"{WHEN[self.strategy.kind]}; prepare the model as it was."
            )
        groups = sum(len(optimizer.param_groups) for optimizer in self.strategy.optimizers)
        if len(body["groups"]) != groups:
            raise FileError(
                f"The checkpoint {path.name} has {counted(len(body['groups']), 'parameter group')} "
                f"of optimizers, and the strategy knows {groups}; give the optimizer to "
                "prepare(model, optimizer)."
            )
        names = self._optimizer_names
        if body.get("optimizers", names) != names:
            raise FileError(
                f"The checkpoint {path.name} was trained by {', '.join(body['optimizers'])}, and "
                f"here it is {', '.join(names)}; prepare the same optimizer."
            )

    def _body(self, step: int, facts: Mapping[str, Any]) -> dict[str, Any]:
        groups = [
            _plain({key: value for key, value in group.items() if key != "params"})
            for optimizer in self.strategy.optimizers
            for group in optimizer.param_groups
        ]
        return {
            "step": step,
            "world": self.group.world,
            "kind": self.strategy.kind,
            "torch": torch.__version__,
            "optimizers": self._optimizer_names,
            "groups": groups,
            "facts": dict(facts),
        }

    @property
    def _optimizer_names(self) -> list[str]:
        return [type(optimizer).__name__ for optimizer in self.strategy.optimizers]

    @property
    def _model(self) -> nn.Module:
        return self.strategy._prepared()

    @property
    def _is_local(self) -> bool:
        return self.strategy.kind == "local"

    def _prefixes(self, rank: int) -> tuple[str, str]:
        """How the names begin of what each rank has by itself, and of what all share: where weights
        are averaged every few steps, those differ, too.
        """
        own = f"ranks/{rank}/"
        return own, own if self._is_local else ""

    def _of_model(self, rank: int) -> dict[str, Tensor]:
        """The weights and buffers by their names in the checkpoint of a rank."""
        own, shared = self._prefixes(rank)
        weights = self._model.named_parameters()
        tensors = {f"{shared}model/{name}": weight.detach() for name, weight in weights}
        return tensors | {f"{own}model/{name}": each for name, each in self._model.named_buffers()}

    def _tensors(self) -> dict[str, Any]:
        """Every tensor to save, by name: those that differ have the rank in it."""
        own, shared = self._prefixes(self.group.rank)
        tensors = self._of_model(self.group.rank)
        names = {id(weight): name for name, weight in self._model.named_parameters()}
        for index, optimizer in enumerate(self.strategy.optimizers):
            for weight, state in optimizer.state.items():
                for key, value in state.items():
                    if isinstance(value, Tensor) and id(weight) in names:
                        tensors[f"{shared}optimizer/{index}/{key}/{names[id(weight)]}"] = value
        local = self.strategy.method
        state = local.state() if isinstance(local, LocalSteps) else {}
        return tensors | {f"{own}strategy/{name}": value for name, value in state.items()}

    def _wanted(self, metadata: Metadata, world: int) -> dict[str, Any]:
        """A tensor to fill for each that this rank needs, like the one that is there now."""
        known: dict[str, Any] = dict(metadata.state_dict_metadata)
        is_same = world == self.group.world
        for name, entry in known.items():
            if not isinstance(entry, TensorStorageMetadata):
                raise FileError(f"the checkpoint has {name}, which is no tensor; it was refused.")
        self._check_names(known)
        own, _ = self._prefixes(self.group.rank % world)
        weights = dict(self._model.named_parameters())
        wanted: dict[str, Any] = {}
        for name, entry in known.items():
            kind, _, rest = re.sub(r"^ranks/\d+/", "", name).partition("/")
            is_mine = name.startswith(own) or not name.startswith("ranks/")
            is_averaged = self._is_local and not is_same and kind == "model"
            if not (is_mine or is_averaged) or (kind == "strategy" and not is_same):
                continue
            like = weights.get(rest.split("/", 2)[-1]) if kind != "strategy" else None
            if kind == "optimizer" and like is None:
                raise FileError(f"the checkpoint has {name}, of no weight here; it was refused.")
            if like is not None and like.shape == entry.size:
                wanted[name] = torch.zeros_like(like, dtype=entry.properties.dtype).detach()
            else:
                wanted[name] = torch.zeros(entry.size, dtype=entry.properties.dtype)
        return wanted

    def _check_names(self, known: Mapping[str, Any]) -> None:
        """Raise if the checkpoint is of another model: each weight and buffer is in both."""
        own, shared = self._prefixes(0)
        here = {name: tuple(value.shape) for name, value in self._of_model(0).items()}
        of_model = (f"{own}model/", f"{shared}model/")
        there = {
            name: tuple(entry.size) for name, entry in known.items() if name.startswith(of_model)
        }
        for name in [*here, *there]:
            if here.get(name) != there.get(name):
                raise FileError(
                    f"The checkpoint is of another model: '{name.partition('model/')[2]}' has "
                    f"shape {here.get(name, 'none')} here and {there.get(name, 'none')} there."
                )

    @torch.no_grad()
    def _restore(self, loaded: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        world = body["world"]
        own, shared = self._prefixes(self.group.rank % world)
        for name, value in self._model.named_parameters():
            if self._is_local and world != self.group.world:
                parts = [loaded[f"ranks/{rank}/model/{name}"] for rank in range(world)]
                value.copy_(torch.stack(parts).mean(0))
            else:
                value.copy_(loaded[f"{shared}model/{name}"])
        for name, buffer in self._model.named_buffers():
            buffer.copy_(loaded[f"{own}model/{name}"])
        groups = iter(body["groups"])
        weights = dict(self._model.named_parameters())
        for index, optimizer in enumerate(self.strategy.optimizers):
            for group in optimizer.param_groups:
                group.update(_tuples(next(groups)))
            begin = f"{shared}optimizer/{index}/"
            for name, value in loaded.items():
                if name.startswith(begin):
                    key, _, weight = name.removeprefix(begin).partition("/")
                    optimizer.state[weights[weight]][key] = value
        local = self.strategy.method
        if isinstance(local, LocalSteps):
            begin = f"{own}strategy/"
            saved = {name: value for name, value in loaded.items() if name.startswith(begin)}
            state = {name.removeprefix(begin): value for name, value in saved.items()}
            local.restore(state) if state else local.rebase(int(body["step"]))

    def _tidy(self) -> None:
        found = sorted(path for path in self.folder.iterdir() if NAME.fullmatch(path.name))
        for old in found[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _without_group_quietly() -> Iterator[None]:
    """Leave out torch's warning that a process is alone, which is known."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a parameter group that JSON can hold."""
    kinds = (int, float, str, bool, type(None), list, tuple)
    return {key: value for key, value in options.items() if isinstance(value, kinds)}


def _tuples(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in options.items()
    }

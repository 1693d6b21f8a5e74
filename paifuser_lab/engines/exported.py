"""The base class of engines that run an exported ONNX file, and these files, which are kept in the
user's cache: exporting takes seconds, also where a saved variant is loaded or a worker opens it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._files import PACKAGE, cache_folder, forget_oldest, replace_folder, staged
from ..converter import export_onnx
from ..errors import StepError
from ..measure import output_error
from ..model.tensors import tensors_in
from ..model.weights import answer_hash, weights_hash
from ..quantization import roundings_of
from ..workload import Inputs, running
from ..workload.eval_mode import is_evaluating
from .engine import Engine
from .nodes import NodeRecorder

Arrays = list[Tensor]
Session = Callable[[Arrays], Arrays]
MAX_SESSIONS = 4
MOST_PARTS_S = 3.0  # about what an export takes
MODEL, FACTS = "model.onnx", "facts.json"
MOST_BYTES = 2 << 30  # of all kept files; those not used for longest are deleted first
# relative error far above rounding, in 16 bits too, and far below the output of another branch
MAX_ERROR = 0.05


class Exported(Engine):
    """Exports the model at once for the example's shapes, and again with a dynamic batch when other
    shapes come.

    If the dynamic file is wrong for some shapes, the model is exported for these; the last few
    sessions are kept. While test data are evaluated, the example's session runs a larger batch in
    parts, until that has taken as long as an export.
    """

    def __init__(self, module: nn.Module, inputs: Inputs, count: int) -> None:
        super().__init__(module, inputs, count)
        inputs = _in_order(inputs)
        signature = _signature(inputs)
        self.sessions: dict[Any, Session] = {signature: self._export(inputs, open_batch=False)}
        # None: export with a dynamic batch failed
        self.open_sessions: dict[Any, Session | None] = {}
        self.outputs = {signature: _OutputStructure(module, inputs)}
        self.quick: dict[Any, tuple[Session, _OutputStructure]] = {}
        self.parts: dict[Any, Session | None] = {}  # None: its output is not the model's
        self.parts_s = 0.0

    @abstractmethod
    def open(self, path: Path, names: list[str]) -> Session:
        """Open a session of an ONNX file: a function from input tensors to output tensors."""

    @abstractmethod
    def record(self, path: Path, names: list[str], tensors: Arrays) -> NodeRecorder:
        """Open another session of the file with the engine's profiler on, and warm it up."""

    def recorder(self, inputs: Inputs) -> NodeRecorder:
        """A recorder of the nodes for these inputs' shapes, in a session of its own."""
        inputs = _in_order(inputs)
        path, names = _exported(self.module, inputs, open_batch=False)
        return self.record(path, names, inputs.tensors)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the session for these inputs, with its own threads.

        A call with the same shapes as an earlier one, of tensors alone, goes straight to its
        session: Python code between calls is slow, since the model has evicted it from the caches.
        """
        if kwargs or not (
            cached := self.quick.get(
                tuple([(arg.shape, arg.dtype) if isinstance(arg, Tensor) else None for arg in args])
            )
        ):
            return self.answer(_in_order(Inputs(args, kwargs)))
        session, structure = cached
        return structure.fill(session(list(args)))

    def answer(self, inputs: Inputs) -> Any:
        """Find or open the session for these shapes, run it and restore the model's output
        structure.
        """
        signature = _signature(inputs)
        if signature not in self.outputs:
            self.outputs[signature] = self._alike(signature) or _OutputStructure(
                self.module, inputs
            )
        if signature not in self.sessions:
            if is_evaluating() and self.parts_s < MOST_PARTS_S:
                began = time.perf_counter()
                outputs = self._in_parts(signature, inputs)
                self.parts_s += time.perf_counter() - began
                if outputs is not None:
                    return self.outputs[signature].fill(outputs)
            self._keep(signature, self._session_for(inputs))
        session, structure = self.sessions[signature], self.outputs[signature]
        if inputs.is_flat and not inputs.kwargs:
            self.quick[tuple((tensor.shape, tensor.dtype) for tensor in inputs.tensors)] = (
                session,
                structure,
            )
        return structure.fill(session(inputs.tensors))

    def _alike(self, signature: Any) -> _OutputStructure | None:
        """The structure of other shapes, unless it holds what depends on them, such as sizes."""
        known = (one for (kind, _), one in self.outputs.items() if kind == signature[0])
        return next((one for one in known if one.holds_tensors_alone), None)

    def _in_parts(self, signature: Any, inputs: Inputs) -> Arrays | None:
        """The output by the example's session, if parts of the batch give what the whole does."""
        if signature not in self.parts:
            ((structure, shapes), session), *_ = self.sessions.items()
            parts = _over_parts(shapes, session)
            # another constant may change the output by less than what is tolerated
            agrees = signature[0] == structure and _outputs_agree(parts, self.module, inputs)
            self.parts[signature] = parts if agrees else None
        known = self.parts[signature]
        return known(inputs.tensors) if known is not None else None

    def _session_for(self, inputs: Inputs) -> Session:
        """The session with a dynamic batch if its output equals the model's, else one for these
        shapes alone.
        """
        opened = self._open_session(inputs)
        if opened is not None and _outputs_agree(opened, self.module, inputs):
            return opened
        return self._export(inputs, open_batch=False)

    def _open_session(self, inputs: Inputs) -> Session | None:
        structure = _structure(inputs)
        if structure not in self.open_sessions:
            try:
                self.open_sessions[structure] = self._export(_doubled(inputs), open_batch=True)
            except StepError:
                self.open_sessions[structure] = None
                self.notes.append(
                    "the batch could not be left open; each new shape is exported anew"
                )
        return self.open_sessions[structure]

    def _keep(self, signature: Any, session: Session) -> None:
        """Keep a session; the oldest of one shape goes, since each holds the weights again."""
        opened = list(self.open_sessions.values())
        of_one_shape = [key for key, known in self.sessions.items() if known not in opened]
        if session not in opened and len(of_one_shape) >= MAX_SESSIONS:
            self.sessions.pop(of_one_shape[1])  # never the example's
            self.quick.clear()
        self.sessions[signature] = session

    def _export(self, inputs: Inputs, *, open_batch: bool) -> Session:
        path, names = _exported(self.module, inputs, open_batch=open_batch)
        if len(names) != len(inputs.tensors):
            raise StepError(
                f"the exported file reads {len(names)} tensors where the call gives "
                f"{len(inputs.tensors)}."
            )
        return self.open(path, names)


class _OutputStructure:
    """The structure of a model's output, from one eager call: where its tensors go, and what else
    it holds, such as sizes.
    """

    def __init__(self, module: nn.Module, inputs: Inputs) -> None:
        with running(module):
            self.leaves, self.spec = pytree.tree_flatten(inputs.clone()(module))
        self.leaves = [leaf.dtype if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        self.holds_tensors_alone = all(isinstance(leaf, torch.dtype) for leaf in self.leaves)
        self.is_one_tensor = self.spec.is_leaf() and isinstance(self.leaves[0], torch.dtype)

    def fill(self, tensors: Arrays) -> Any:
        if self.is_one_tensor and len(tensors) == 1 and tensors[0].dtype == self.leaves[0]:
            return tensors[0]
        expected = sum(isinstance(leaf, torch.dtype) for leaf in self.leaves)
        if len(tensors) != expected:
            raise StepError(
                f"the exported file outputs {len(tensors)} tensors where the model outputs "
                f"{expected}."
            )
        remaining = iter(tensors)
        leaves = [
            next(remaining).to(leaf) if isinstance(leaf, torch.dtype) else leaf
            for leaf in self.leaves
        ]
        return pytree.tree_unflatten(leaves, self.spec)


def _doubled(inputs: Inputs) -> Inputs:
    """The inputs with a batch of two in place of one: the exporter takes every size of 1 as
    fixed.
    """
    if any(tensor.shape[:1] != (1,) for tensor in inputs.tensors):
        return inputs
    return inputs.map(lambda tensor: torch.cat([tensor, tensor]))


def _over_parts(shapes: Sequence[torch.Size], session: Session) -> Session:
    """The session of the example's shapes over one part of a larger batch after another."""

    def run(tensors: Arrays) -> Arrays:
        split = [torch.split(each, shape[0]) for each, shape in zip(tensors, shapes, strict=True)]
        outputs = [session(list(part)) for part in zip(*split, strict=True)]
        return [torch.cat(column) for column in zip(*outputs, strict=True)]

    return run


def _outputs_agree(session: Session, module: nn.Module, inputs: Inputs) -> bool:
    """Whether the session's output equals the model's; checked once for new shapes, since the file
    silently fixes what the model's code decides by a shape.
    """
    with running(module):
        expected = tensors_in(inputs.clone()(module))
    try:
        return output_error(expected, session(inputs.tensors))[0] <= MAX_ERROR
    except Exception:  # each runtime raises its own errors for shapes that it does not accept
        return False


def _exported(module: nn.Module, inputs: Inputs, *, open_batch: bool) -> tuple[Path, list[str]]:
    """The model as an ONNX file; several engines, thread counts and processes use the same one."""
    with running(module):
        output_hash = answer_hash(inputs.clone()(module))

    def export(path: Path) -> list[str]:
        with running(module):
            return export_onnx(module, inputs.clone(), path, open_batch=open_batch)

    key = weights_hash(module), output_hash, roundings_of(module), _signature(inputs), open_batch
    return kept_file(key, export)


def kept_file(key: object, export: Callable[[Path], list[str]]) -> tuple[Path, list[str]]:
    """The file of a key and the names of its inputs, exported where it is not kept yet."""
    name = hashlib.sha256(repr((key, _exporter())).encode()).hexdigest()[:32]
    try:
        root = cache_folder("engines")
        root.chmod(0o700)  # models are private to their owner
        return _kept_in(root / name, export)
    except OSError:
        return _kept_in(Path(_temporary().name) / name, export)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """In place of a cache that cannot be written; deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="paifuser-onnx-")


def _kept_in(folder: Path, export: Callable[[Path], list[str]]) -> tuple[Path, list[str]]:
    names = _names(folder)
    if names is None:
        with staged(folder) as stage:
            names = export(stage / MODEL)
            sizes = {file.name: file.stat().st_size for file in stage.iterdir()}
            facts = json.dumps({"names": names, "sizes": sizes})
            (stage / FACTS).write_text(facts, encoding="utf-8")
            replace_folder(stage, folder)
        forget_oldest(folder.parent, MOST_BYTES)
    os.utime(folder)
    return folder / MODEL, names


def _names(folder: Path) -> list[str] | None:
    """The names that were stored with a file; None where one is missing or damaged."""
    try:
        facts = json.loads((folder / FACTS).read_text("utf-8"))
        is_whole = all(
            (folder / name).stat().st_size == size for name, size in facts["sizes"].items()
        )
        return list(facts["names"]) if is_whole else None
    except (OSError, ValueError, KeyError):
        return None


@cache
def _exporter() -> str:
    """What the same model's file depends on: this package's code and what exports with it."""
    code = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        stat = file.stat()
        code.update(f"{file} {stat.st_mtime_ns} {stat.st_size}".encode())
    packages = [version(name) for name in ("torch", "onnx", "onnxscript")]
    return " ".join([code.hexdigest(), *packages])


def _in_order(inputs: Inputs) -> Inputs:
    """Keyword arguments sorted by name, so that their order in a call does not matter."""
    return (
        Inputs(inputs.args, dict(sorted(inputs.kwargs.items())))
        if len(inputs.kwargs) > 1
        else inputs
    )


def _structure(inputs: Inputs) -> Any:
    """A key of a call's structure, dtypes and constants, without shapes; quick for calls of tensors
    alone, which are most.
    """
    if inputs.is_flat:
        return tuple(inputs.kwargs), tuple(tensor.dtype for tensor in inputs.tensors)
    leaves, spec = pytree.tree_flatten((inputs.args, inputs.kwargs))
    return str(spec), tuple(leaf.dtype if isinstance(leaf, Tensor) else leaf for leaf in leaves)


def _signature(inputs: Inputs) -> Any:
    return _structure(inputs), tuple(tensor.shape for tensor in inputs.tensors)

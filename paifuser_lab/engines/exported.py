"""Engines that run a file: the model is exported for the shapes it is called with, and called as before."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..converter import export_onnx
from ..errors import StepError
from ..weights import weights_hash
from ..workload import Inputs, running
from .engine import Engine

Arrays = list[Tensor]
Session = Callable[[Arrays], Arrays]
MOST_SESSIONS = 4
MOST_FILES = 2


class Exported(Engine):
    """Exports the model for the example's shapes at once; for other shapes once more, with the batch left open.

    A model whose code fixes more than its batch is exported for each of the last few kinds of shapes.
    """

    def __init__(self, module: nn.Module, inputs: Inputs, count: int) -> None:
        super().__init__(module, count)
        self.sessions: dict[Any, Session] = {_signature(inputs): self._export(inputs, open_batch=False)}
        self.open_session: Session | None = None
        self.answers = {_structure(inputs): _Answer(module, inputs)}

    @abstractmethod
    def open(self, path: Path, names: list[str]) -> Session:
        """Make a session of an ONNX file: a function from the tensors of a call to the tensors of its answer."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Answer from the exported file; its threads are its own."""
        return self.answer(Inputs(args, kwargs))

    def answer(self, inputs: Inputs) -> Any:
        """Find or make the session for these shapes and put its tensors into the shape of the model's answer."""
        structure = _structure(inputs)
        if structure not in self.answers:
            self.answers[structure] = _Answer(self.module, inputs)
        tensors = [tensor.detach() for tensor in inputs.tensors]
        found = self.sessions.get(_signature(inputs))
        if found is None:
            return self.answers[structure].fill(self._run_other(inputs, tensors))
        return self.answers[structure].fill(found(tensors))

    def _run_other(self, inputs: Inputs, tensors: Arrays) -> Arrays:
        if self.open_session is None and not self.sessions.keys() - {next(iter(self.sessions))}:
            try:
                self.open_session = self._export(inputs, open_batch=True)
            except StepError:
                self.notes.append("the batch could not be left open; each new shape is exported anew")
        if self.open_session is not None:
            try:
                return self.open_session(tensors)
            except RuntimeError as error:
                self.notes.append(f"the open-batch file refused {_signature(inputs)[1]}: {type(error).__name__}")
        session = self._export(inputs, open_batch=False)
        if len(self.sessions) >= MOST_SESSIONS:
            self.sessions.pop(list(self.sessions)[1])
        self.sessions[_signature(inputs)] = session
        return session(tensors)

    def _export(self, inputs: Inputs, *, open_batch: bool) -> Session:
        path, names = _exported(self.module, inputs, open_batch=open_batch)
        if len(names) != len(inputs.tensors):
            raise StepError(f"the exported file reads {len(names)} tensors where the call gives {len(inputs.tensors)}.")
        return self.open(path, names)


class _Answer:
    """The structure of a model's answer, learnt from one eager call: where its tensors go, and what is constant."""

    def __init__(self, module: nn.Module, inputs: Inputs) -> None:
        with running(module):
            self.leaves, self.spec = pytree.tree_flatten(inputs.clone()(module))
        self.leaves = [leaf.dtype if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]

    def fill(self, tensors: Arrays) -> Any:
        wanted = sum(isinstance(leaf, torch.dtype) for leaf in self.leaves)
        if len(tensors) != wanted:
            raise StepError(f"the exported file gives {len(tensors)} tensors where the model's answer has {wanted}.")
        given = iter(tensors)
        leaves = [next(given).to(leaf) if isinstance(leaf, torch.dtype) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.spec)


_files: OrderedDict[Any, tuple[tempfile.TemporaryDirectory[str], list[str]]] = OrderedDict()


def _exported(module: nn.Module, inputs: Inputs, *, open_batch: bool) -> tuple[Path, list[str]]:
    """The model as an ONNX file; the last few are kept, since engines and thread counts are tried on the same one."""
    key = (weights_hash(module), str(module), _signature(inputs), open_batch)
    if key not in _files:
        folder = tempfile.TemporaryDirectory(prefix="paifuser-onnx-")
        with running(module):
            names = export_onnx(module, inputs.clone(), Path(folder.name) / "model.onnx", open_batch=open_batch)
        _files[key] = folder, names
        while len(_files) > MOST_FILES:
            _files.popitem(last=False)[1][0].cleanup()
    folder, names = _files[key]
    return Path(folder.name) / "model.onnx", names


def _structure(inputs: Inputs) -> Any:
    """What a call is made of beside its tensors' shapes."""
    leaves, spec = pytree.tree_flatten((inputs.args, inputs.kwargs))
    return str(spec), tuple(leaf.dtype if isinstance(leaf, Tensor) else leaf for leaf in leaves)


def _signature(inputs: Inputs) -> Any:
    return _structure(inputs), tuple(tuple(tensor.shape) for tensor in inputs.tensors)

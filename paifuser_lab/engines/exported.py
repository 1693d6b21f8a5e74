"""Engines that run a file: the model is exported for the shapes it is called with, and called as
before.
"""

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
from ..measure import output_error
from ..model.weights import answer_hash, weights_hash
from ..workload import Inputs, running
from .engine import Engine

Arrays = list[Tensor]
Session = Callable[[Arrays], Arrays]
MOST_SESSIONS = 4
MOST_FILES = 2
ALIKE = 0.05  # far above rounding, in 16 bits too; far below another branch's output


class Exported(Engine):
    """Exports the model for the example's shapes at once; for other shapes once more, with the
    batch left open.

    A model whose code fixes more than its batch is exported for each of the last few kinds of
    shapes.
    """

    def __init__(self, module: nn.Module, inputs: Inputs, count: int) -> None:
        super().__init__(module, inputs, count)
        inputs = _in_order(inputs)
        self.sessions: dict[Any, Session] = {
            _signature(inputs): self._export(inputs, open_batch=False)
        }
        self.open_sessions: dict[Any, Session | None] = {}  # None: the batch could not be left open
        self.answers = {_structure(inputs): _Answer(module, inputs)}
        self.quick: dict[Any, tuple[Session, _Answer]] = {}

    @abstractmethod
    def open(self, path: Path, names: list[str]) -> Session:
        """Make a session of an ONNX file: a function from the tensors of a call to the tensors of
        its output.
        """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Output from the exported file; its threads are its own.

        A call like an earlier one, of tensors alone, goes straight to its session: what Python does
        between two calls is dear, since the model has emptied the caches.
        """
        if kwargs or not (
            known := self.quick.get(
                tuple([(one.shape, one.dtype) if isinstance(one, Tensor) else None for one in args])
            )
        ):
            return self.answer(_in_order(Inputs(args, kwargs)))
        session, answer = known
        return answer.fill(session(list(args)))

    def answer(self, inputs: Inputs) -> Any:
        """Find or make the session for these shapes and put its tensors into the shape of the
        model's output.
        """
        signature = structure, _ = _signature(inputs)
        if structure not in self.answers:
            self.answers[structure] = _Answer(self.module, inputs)
        if signature not in self.sessions:
            self._keep(signature, self._session_for(inputs))
        session, answer = self.sessions[signature], self.answers[structure]
        if inputs.is_flat and not inputs.kwargs:
            self.quick[tuple((tensor.shape, tensor.dtype) for tensor in inputs.tensors)] = (
                session,
                answer,
            )
        return answer.fill(session(inputs.tensors))

    def _session_for(self, inputs: Inputs) -> Session:
        """The session with the open batch where it outputs these inputs as the model does, else one
        for their shapes alone.
        """
        opened = self._open_session(inputs)
        if opened is not None and _answers_alike(opened, self.module, inputs):
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
        if len(self.sessions) >= MOST_SESSIONS:
            self.sessions.pop(list(self.sessions)[1])  # never the example's
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


class _Answer:
    """The structure of a model's output, learnt from one eager call: where its tensors go, and what
    is constant.
    """

    def __init__(self, module: nn.Module, inputs: Inputs) -> None:
        with running(module):
            self.leaves, self.spec = pytree.tree_flatten(inputs.clone()(module))
        self.leaves = [leaf.dtype if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        self.is_one_tensor = self.spec.is_leaf() and isinstance(self.leaves[0], torch.dtype)

    def fill(self, tensors: Arrays) -> Any:
        if self.is_one_tensor and len(tensors) == 1 and tensors[0].dtype == self.leaves[0]:
            return tensors[0]
        wanted = sum(isinstance(leaf, torch.dtype) for leaf in self.leaves)
        if len(tensors) != wanted:
            raise StepError(
                f"the exported file gives {len(tensors)} tensors where the model's output has "
                f"{wanted}."
            )
        given = iter(tensors)
        leaves = [
            next(given).to(leaf) if isinstance(leaf, torch.dtype) else leaf for leaf in self.leaves
        ]
        return pytree.tree_unflatten(leaves, self.spec)


def _doubled(inputs: Inputs) -> Inputs:
    """A batch of one says nothing about other batches: the exporter takes every 1 for a fixed
    size.
    """
    if any(tensor.shape[:1] != (1,) for tensor in inputs.tensors):
        return inputs
    return inputs.map(lambda tensor: torch.cat([tensor, tensor]))


def _answers_alike(session: Session, module: nn.Module, inputs: Inputs) -> bool:
    """Checked once for new shapes: what the code decided by a shape is written into the file
    without a word.
    """
    with running(module):
        wanted = [
            leaf for leaf in pytree.tree_leaves(inputs.clone()(module)) if isinstance(leaf, Tensor)
        ]
    try:
        return output_error(wanted, session(inputs.tensors))[0] <= ALIKE
    except Exception:  # each runtime has errors of its own for shapes that it does not take
        return False


_files: OrderedDict[Any, tuple[tempfile.TemporaryDirectory[str], list[str]]] = OrderedDict()


def _exported(module: nn.Module, inputs: Inputs, *, open_batch: bool) -> tuple[Path, list[str]]:
    """The model as an ONNX file; the last few are kept, since engines and thread counts are tried
    on the same one.
    """
    with running(module):
        answered = answer_hash(inputs.clone()(module))
    key = (weights_hash(module), answered, _signature(inputs), open_batch)
    if key not in _files:
        folder = tempfile.TemporaryDirectory(prefix="paifuser-onnx-")
        try:
            with running(module):
                names = export_onnx(
                    module, inputs.clone(), Path(folder.name) / "model.onnx", open_batch=open_batch
                )
        except StepError:
            folder.cleanup()
            raise
        _files[key] = folder, names
        while len(_files) > MOST_FILES:
            _files.popitem(last=False)[1][0].cleanup()
    folder, names = _files[key]
    return Path(folder.name) / "model.onnx", names


def _in_order(inputs: Inputs) -> Inputs:
    """Keyword arguments sorted by name, so that their order in a call does not matter."""
    return (
        Inputs(inputs.args, dict(sorted(inputs.kwargs.items())))
        if len(inputs.kwargs) > 1
        else inputs
    )


def _structure(inputs: Inputs) -> Any:
    """What a call is made of beside its tensors' shapes; calls of tensors alone, which are most,
    are distinguished quickly.
    """
    if inputs.is_flat:
        return tuple(inputs.kwargs), tuple(tensor.dtype for tensor in inputs.tensors)
    leaves, spec = pytree.tree_flatten((inputs.args, inputs.kwargs))
    return str(spec), tuple(leaf.dtype if isinstance(leaf, Tensor) else leaf for leaf in leaves)


def _signature(inputs: Inputs) -> Any:
    return _structure(inputs), tuple(tensor.shape for tensor in inputs.tensors)

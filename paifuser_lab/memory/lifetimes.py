"""Record one run of a model as buffers: what makes each, touches it last, and when it is released.

A buffer is memory that the run allocates between operators: tensors that share it, such as views
and results in place, are one buffer. What an operator allocates and frees inside is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from ..fusion.call_trace import Form, form_of
from ..model.tensors import tensors_in
from ..model.watch import watching

SEPARATE = 0  # the result of torch._debug_has_internal_overlap for dense tensors


@dataclass
class Buffer:
    """Memory that an operator allocates; operators are counted from 0."""

    layer: str
    operator: str
    size_bytes: int
    begin: int
    end: int  # the operator that touches it last; of what outlives the call the last operator
    # the operator before which nobody refers to it any more; None if it outlives the call
    released: int | None = None
    is_output: bool = False


@dataclass(frozen=True)
class Given:
    """The only argument of a layer's call, or an operand of a sum."""

    buffer: int | None  # None for inputs, weights and all that the run did not allocate
    is_whole: bool  # it is a plain tensor whose values are all of its memory, without gaps


@dataclass
class Call:
    """One call of a layer; the operators from `begin` until before `end` run during it."""

    layer: str
    caller: str
    form: Form | None
    given: Given | None
    begin: int
    end: int = 0


@dataclass(frozen=True)
class Sum:
    """A sum of two tensors outside of the layers inside a layer."""

    layer: str
    operands: tuple[Given, Given]
    step: int  # the operator's number


@dataclass(frozen=True)
class Recording:
    """The buffers of one run, the calls of its layers and the sums between them, in order."""

    operators: int
    buffers: tuple[Buffer, ...]
    calls: tuple[Call, ...]
    sums: tuple[Sum, ...] = ()

    @property
    def referenced_bytes(self) -> int:
        """The largest sum of buffers that the model refers to at once."""
        alive = [0] * (self.operators + 1)
        for buffer in self.buffers:
            alive[buffer.begin] += buffer.size_bytes
            if buffer.released is not None:
                alive[buffer.released] -= buffer.size_bytes
        return max(accumulate(alive))


def record(model: nn.Module, run: Callable[[], Any]) -> Recording:
    """Run a model once, without gradients, and record its buffers."""
    recorder = _Recorder()
    with watching(model, recorder.enter, recorder.leave), torch.no_grad(), recorder:
        output = run()
    recorder.finish(output)
    return Recording(
        recorder.step, tuple(recorder.buffers), tuple(recorder.calls), tuple(recorder.sums)
    )


@dataclass
class _Memory:
    """Known memory: weakly referenced, so that its address is not mistaken for a later one's."""

    reference: StorageWeakRef
    buffer: int | None


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records buffers, and holds none of them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.step = 0  # operators so far
        self.buffers: list[Buffer] = []
        self.calls: list[Call] = []
        self.sums: list[Sum] = []
        self._open: list[Call] = []
        self._known: dict[int, _Memory] = {}
        self._alive: dict[int, StorageWeakRef] = {}  # by buffer

    def enter(self, layer: str, args: Any, kwargs: Any) -> None:
        caller = self._open[-1].layer if self._open else ""
        alone = args[0] if len(args) == 1 and not kwargs else None
        given = self._given(alone) if isinstance(alone, Tensor) else None
        self._open.append(Call(layer, caller, form_of(args, kwargs), given, self.step))
        self.calls.append(self._open[-1])

    def leave(self, layer: str, output: Any) -> None:
        self._open.pop().end = self.step

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note_releases()
        self._touch(tensors_in((args, kwargs)), "")
        is_add = func is torch.ops.aten.add.Tensor and not kwargs
        if is_add and all(isinstance(value, Tensor) for value in args):
            layer = self._open[-1].layer if self._open else ""
            self.sums.append(Sum(layer, (self._given(args[0]), self._given(args[1])), self.step))
        result = func(*args, **(kwargs or {}))
        self._touch(tensors_in(result), func._schema.name.removeprefix("aten::"))
        self.step += 1
        return result

    def finish(self, output: Any) -> None:
        """Mark the output's buffers, and those that others keep, as alive to the end."""
        self._note_releases()
        for buffer in self._alive:
            self.buffers[buffer].end = self.step - 1
        for tensor in tensors_in(output):
            if (index := self._buffer_of(tensor)) is not None:
                self.buffers[index].is_output = True

    def _given(self, tensor: Tensor) -> Given:
        storage = _storage_of(tensor)
        is_whole = (
            storage is not None
            and type(tensor) is Tensor
            and tensor.nbytes == storage.nbytes() > 0
            and torch._debug_has_internal_overlap(tensor) == SEPARATE
        )
        return Given(self._buffer_of(tensor), is_whole)

    def _buffer_of(self, tensor: Tensor) -> int | None:
        storage = _storage_of(tensor)
        known = None if storage is None else self._known.get(storage._cdata)
        return None if known is None else known.buffer

    def _touch(self, tensors: Iterable[Tensor], maker: str) -> None:
        """Note what an operator reads or, as `maker`, returns: unknown memory is a new buffer."""
        for tensor in tensors:
            storage = _storage_of(tensor)
            if storage is None or not storage.nbytes():
                continue
            size, key = storage.nbytes(), storage._cdata
            if key not in self._known:
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                index = self._added(reference, size, maker) if maker else None
                self._known[key] = _Memory(reference, index)
            elif (index := self._known[key].buffer) is not None:
                self.buffers[index].end = self.step
                self.buffers[index].size_bytes = max(self.buffers[index].size_bytes, size)

    def _added(self, reference: StorageWeakRef, size: int, maker: str) -> int:
        layer = self._open[-1].layer if self._open else ""
        self.buffers.append(Buffer(layer, maker, size, self.step, self.step))
        self._alive[len(self.buffers) - 1] = reference
        return len(self.buffers) - 1

    def _note_releases(self) -> None:
        for index in [index for index, memory in self._alive.items() if memory.expired()]:  # type: ignore[no-untyped-call]
            self.buffers[index].released = self.step
            del self._alive[index]


def _storage_of(tensor: Tensor) -> Any:
    """A tensor's memory; None for sparse, nested and opaque tensors, which have none."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None

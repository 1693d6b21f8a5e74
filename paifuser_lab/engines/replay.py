"""torch's own operators, recorded once and replayed: between them runs no Python code of the model,
which takes longer than a small layer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..converter import Part
from ..errors import StepError
from ..machine import threads
from ..workload import Inputs, running
from .engine import Engine
from .nodes import EngineNode, NodeRecorder
from .tape import Operation, Tape

MAX_KINDS = 8


class Replay(Engine):
    """Records at once for the example inputs, and for other shapes at their second call; the first
    call and what cannot be recorded run in the model.
    """

    title = "Replayed torch"

    def __init__(self, module: nn.Module, inputs: Inputs, count: int) -> None:
        super().__init__(module, inputs, count)
        # by kind of inputs; None: the next call is recorded; False: it cannot be
        self.replays: dict[Any, Callable[..., Any] | Literal[False] | None] = {}
        with torch.no_grad(), threads(count):
            try:
                tape = Tape.of(module, inputs)
            except StepError as error:
                reason = str(error).rstrip(".")
                raise StepError(f"the model cannot be replayed: {reason}; use eager.") from error
        self.replays[_kind(inputs)] = tape.compiled()
        self.notes.append(f"{len(tape.operations)} operators are replayed")

    def __getstate__(self) -> dict[str, Any]:
        """Without what was recorded, in which a copy would run with the original's weights."""
        return {**self.__dict__, "replays": {}}

    def answer(self, inputs: Inputs) -> Any:
        """Replay the call that had inputs of the same kind; run the model where there is none."""
        kind = _kind(inputs)
        with torch.no_grad():
            if torch._C._is_any_autocast_enabled():  # what was recorded has other formats
                return inputs(self.module)
            if kind not in self.replays:
                if len(self.replays) >= MAX_KINDS:
                    self.replays.pop(list(self.replays)[1])  # never the first, the example's
                self.replays[kind] = None
            elif self.replays[kind] is None:
                self.replays[kind] = self._recorded(inputs)
            replay = self.replays[kind]
            return replay(*inputs.tensors) if replay else inputs(self.module)

    def _recorded(self, inputs: Inputs) -> Callable[..., Any] | Literal[False]:
        try:
            with running(self.module):
                return Tape.of(self.module, inputs).compiled()
        except StepError:
            return False

    def recorder(self, inputs: Inputs) -> TapeRecorder:
        with torch.no_grad(), threads(self.threads):
            return TapeRecorder(Tape.of(self.module, inputs))


class TapeRecorder(NodeRecorder):
    """Replays a call and notes the time after each operator."""

    title = Replay.title
    no_memory = "the memory of a replayed call is not recorded"

    def __init__(self, tape: Tape) -> None:
        self.tape, self.marks = tape, list[float]()
        self.replay = tape.compiled(self.marks)
        self.runs: list[list[float]] = []

    def run(self, tensors: list[Tensor]) -> None:
        self.marks.clear()
        with torch.no_grad():
            self.replay(*tensors)
        self.runs.append([(after - before) * 1e3 for before, after in pairwise(self.marks)])

    def nodes(self) -> list[EngineNode]:
        return [
            _node(index, one, tuple(run[index] for run in self.runs))
            for index, one in enumerate(self.tape.operations)
        ]


def _node(index: int, one: Operation, ms: tuple[float, ...]) -> EngineNode:
    """A node whose kernel is the library that has the operator: aten, mkldnn, mkl and others."""
    library, name, _ = one.name.split(".", 2)
    op = name.strip("_")
    return EngineNode(
        name=f"{index} {one.name}",
        op=op,
        kernel=library,
        ms=ms,
        parts=(Part(one.layer, op),),
        read_bytes=one.read_bytes,
        written_bytes=one.written_bytes,
    )


def _kind(inputs: Inputs) -> Any:
    """What operators may depend on: shapes, strides, dtypes and devices, and all else by value."""
    if inputs.is_flat and not inputs.kwargs:
        return tuple([(x.shape, x.stride(), x.dtype, x.device) for x in inputs.args])
    leaves, spec = torch.utils._pytree.tree_flatten((inputs.args, inputs.kwargs))
    return spec, tuple(
        (x.shape, x.stride(), x.dtype, x.device) if isinstance(x, Tensor) else repr(x)
        for x in leaves
    )

"""Where each operator of a run is called from: its layer, the line of Python code, the category.

A dispatch mode sees every operator; it marks each for torch's profiler with the number of its
place. An operator of the backward pass belongs to the layer whose operator it differentiates: both
have the sequence number of the autograd node.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from .stacks import Frame, Stacks

MARK = "paifuser-lab place: "
PACKAGE = str(Path(__file__).parents[2])
MODELS = str(Path(__file__).parents[2] / "zoo")
WRAPPERS = ("/torch/_dynamo/eval_frame.py",)  # frames that say nothing of the call
MAX_FRAMES = 64


class Places(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The places of one run, each once; `category` is that of what is allocated now."""

    def __init__(self, stacks: Stacks, stops_at: CodeType) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stacks = stacks
        self.category = "activations"
        self._stops_at = stops_at
        self._layers: list[str] = []
        self._marks: list[Any] = []
        self._layer_of: dict[int, str] = {}  # by the sequence number of an autograd node
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._frames: dict[tuple[CodeType, int], int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        layer = self._layer()
        with record_function(f"{MARK}{self.number(layer, self.category, self._stack())}"):
            return func(*args, **(kwargs or {}))

    def enter(self, layer: str, args: Any, kwargs: Any) -> None:
        """A layer's call begins; what it allocates outside of all operators is marked too."""
        self._layers.append(layer)
        number = self.number(layer, self.category, self._stack())
        self._marks.append(record_function(f"{MARK}{number}"))
        self._marks[-1].__enter__()

    def leave(self, layer: str, output: Any) -> None:
        """A layer's call ends."""
        self._layers.pop()
        self._marks.pop().__exit__(None, None, None)

    def number(self, layer: str, category: str, stack: tuple[int, ...] = ()) -> int:
        """The number of a place, which is that of its stack in the snapshot."""
        key = (layer, category, stack)
        if key not in self._numbers:
            self._numbers[key] = self.stacks.add(stack, layer, category)
        return self._numbers[key]

    def _layer(self) -> str:
        """The layer that runs, or whose gradient is computed."""
        if self._layers:
            layer = self._layers[-1]
            # the first operator after a node was made is the one that it belongs to
            self._layer_of.setdefault(torch._C._autograd._get_sequence_nr() - 1, layer)
            return layer
        node = torch._C._current_autograd_node()
        return "" if node is None else self._layer_of.get(node._sequence_nr(), "")

    def _stack(self) -> tuple[int, ...]:
        """The Python frames of the call, innermost first, without this package's own."""
        frame: FrameType | None = sys._getframe(2)
        found: list[int] = []
        while frame is not None and frame.f_code is not self._stops_at and len(found) < MAX_FRAMES:
            code = frame.f_code
            is_ours = code.co_filename.startswith(PACKAGE)
            is_model = code.co_filename.startswith(MODELS)
            if is_model or not (is_ours or code.co_filename.endswith(WRAPPERS)):
                found.append(self._frame(code, frame.f_lineno))
            frame = frame.f_back
        return tuple(found)

    def _frame(self, code: CodeType, line: int) -> int:
        key = (code, line)
        if key not in self._frames:
            self._frames[key] = len(self.stacks.frames)
            self.stacks.frames.append(Frame(code.co_qualname, code.co_filename, line))
        return self._frames[key]


def place_of(name: str) -> int | None:
    """The place that an event of the profiler marks; None if it marks none."""
    return int(name.removeprefix(MARK)) if name.startswith(MARK) else None

"""Runs a model on each frame's tensor, a batch at a time; opened on the workers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from ...arguments import check_count
from ...errors import StreamError
from ..frame import Frame
from ..model import ModelSource, OpenModel, portable, received


class Infer:
    """Gives each frame its `output`; a tensor is answered by its output.

    The model is a name of the zoo, a folder that a variant was saved in, a workload or a variant,
    with whatever engine it runs in. Calls have at most `batch` examples. Threads share the model,
    but an engine takes one call at a time: where the model has a name or a folder, each thread
    opens one of its own. `opened` is the model, if it was.
    """

    takes_group = False

    def __init__(
        self,
        model: ModelSource,
        *,
        batch: int = 8,
        trust: bool = False,
        opened: OpenModel | None = None,
    ) -> None:
        check_count("batch", batch, error=StreamError)
        self.model, self.batch, self.trust = model, batch, trust
        self.name = "infer"
        self._opened: OpenModel | None = None
        self._turn = threading.Lock()
        self._shared = _Shared(opened)

    def __copy__(self) -> Infer:
        """The same model for another thread; an engine that they share is called in turns."""
        other = Infer(self.model, batch=self.batch, trust=self.trust)
        other._turn, other._shared = self._turn, self._shared
        return other

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "model": portable(self.model), "_opened": None}
        return {name: value for name, value in state.items() if name not in ("_turn", "_shared")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _turn=threading.Lock(), _shared=_Shared(None))

    def open(self) -> None:
        self.model = received(self.model, trust=self.trust)
        is_named = isinstance(self.model, str | Path)
        with self._shared.lock:
            if self._shared.opened is None:
                self._shared.opened = OpenModel(self.model, trust=self.trust)
            self._opened = self._shared.opened
            self._shared.users += 1
            if self._opened.is_engine and is_named and self._shared.users > 1:
                self._opened = OpenModel(self.model, trust=self.trust)
        if is_named or not self._opened.is_engine:
            self._turn = threading.Lock()  # its own, or one that threads may call at once

    def close(self) -> None:
        if self._opened is None:
            return
        self._opened = None
        with self._shared.lock:
            self._shared.users -= 1
            if not self._shared.users:
                self._shared.opened = None

    def __call__(self, items: Any) -> list[Any]:
        if self._opened is None:
            self.open()
        assert self._opened is not None
        answers: list[Any] = []
        for start in range(0, len(items), self.batch):
            together = items[start : start + self.batch]
            with self._turn:
                outputs = self._opened.answers([_input(item) for item in together])
            # the input is not needed any more, and travelling costs
            answers += [
                item.with_(output=output, tensor=None) if isinstance(item, Frame) else output
                for item, output in zip(together, outputs, strict=True)
            ]
        return answers


class _Shared:
    """The model that the copies of a stage, each on a thread, have opened."""

    def __init__(self, opened: OpenModel | None) -> None:
        self.opened, self.users = opened, 0
        self.lock = threading.Lock()


def _input(item: Any) -> Any:
    if not isinstance(item, Frame):
        return item
    if item.tensor is None:
        raise StreamError(
            "A frame has no tensor for the model; put Preprocess before Infer in the stream."
        )
    return item.tensor

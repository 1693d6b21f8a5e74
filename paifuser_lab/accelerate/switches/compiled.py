"""The model compiled by Inductor, aside in a thread while the loop goes on.

What is compiled is a copy in the same memory formats, so that batch-norm's statistics of the model
stay as they are; the code is cached for the model's class, and the model then runs it, too. The
copy's training step draws random numbers of the process, but nothing is rewound.
"""

from __future__ import annotations

import copy
import functools
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...errors import first_line
from ...machine.openmp import release_pool
from ...model.layers import has_hooks
from ...model.silence import compilers_silenced
from ...model.tensors import tensors_in
from .base import Call, Course, Example, Parts, Switch

LEAST_STEPS, LEAST_S = 200, 30.0  # of a loop, before it is worth compiling unasked
MOST_GRAPHS = 4  # compiled after the switch was first tried; more is a storm


class Compiled(Switch):
    """`torch.compile` of each model's forward; more compilations in the loop end it."""

    name = "compile"
    feature = "graph_optimization"
    is_exact = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.compiled: dict[nn.Module, Callable[..., Any]] = {}
        self.thread: threading.Thread | None = None
        self.failure = ""
        self._graphs = 0

    def obstacle(self, parts: Parts) -> str:
        if not parts.models:
            return "no module of the loop holds the weights, and modules are what is compiled"
        if parts.is_compiled:
            return "the loop compiles its model already"
        if self.options.get("precision") == "fp16":
            return "scaled gradients in fp16 are not compiled"
        if "model_quantization" in self.options.get("switches", ()):
            return "rounded weights are not compiled"
        if "checkpointing" in self.options.get("switches", ()):
            return "blocks that are computed again are not compiled"
        if any(has_hooks(model) for model in parts.models):
            return "the model has hooks of its own, which its compiled forward would leave out"
        return ""

    def wrap(self, model: nn.Module, call: Call) -> Call:
        compiled = self.compiled.get(model)
        if compiled is None:
            return call
        return lambda args, kwargs: compiled(model, *args, **kwargs)

    def _start(
        self,
        examples: Mapping[nn.Module, Example],
        calls: Callable[[nn.Module], Call],
    ) -> None:
        """Compile copies of the models in a thread; `calls` wraps a copy as the model is called."""
        twins: list[tuple[nn.Module, Example]] = []
        try:
            for model, batch in examples.items():
                twin = copy.deepcopy(model)
                example = pytree.tree_map_only(Tensor, lambda value: value.detach().clone(), batch)
                self.compiled[model] = self.compiled[twin] = torch.compile(
                    _entry(model), backend=self.options.get("backend", "inductor")
                )
                twins.append((twin, example))
        except Exception as error:
            self.failure = f"the model cannot be copied ({first_line(error)[:80]})"
            return
        count = torch.get_num_threads()
        work = [(calls(twin), example) for twin, example in twins]
        self.thread = threading.Thread(
            target=self._compile,
            args=(work, count, [twin for twin, _ in twins]),
            name="compiling a model",
            daemon=True,
        )
        self.thread.start()

    def is_pending(self, course: Course) -> bool:
        is_long = course.steps >= LEAST_STEPS and course.seconds >= LEAST_S
        return self.thread is not None or bool(self.options.get("compile_now")) or is_long

    def tend(self, course: Course, *, is_on: bool) -> str:
        """Begin to compile once that is worth it; end a storm."""
        if is_on:
            return "the loop makes it compile again and again" if self.is_storm() else ""
        # without examples: in the next step, whose calls are watched
        if self.thread is None and self.is_pending(course) and course.examples:
            self._start(course.examples, course.copies)
        return self.failure

    @property
    def is_ready(self) -> bool:
        return self.thread is not None and not self.thread.is_alive() and not self.failure

    def forget(self) -> None:
        """Begin anew with other models; what a thread still compiles is not used."""
        self.compiled.clear()
        self.thread, self.failure, self._graphs = None, "", 0

    def turn_on(self, parts: Parts) -> None:
        if not self._graphs:
            self._graphs = _graphs()

    def is_storm(self) -> bool:
        """Whether the loop compiles again and again, as for changing shapes."""
        return bool(self._graphs) and _graphs() - self._graphs > MOST_GRAPHS

    def why(self) -> str:
        is_running = self.thread is not None and self.thread.is_alive()
        return "being compiled while the loop goes on" if is_running else ""

    def _compile(
        self, work: list[tuple[Call, Example]], threads: int, twins: list[nn.Module]
    ) -> None:
        """One training step of each copy, which compiles its forward and its backward."""
        try:
            torch.set_num_threads(threads)  # which Dynamo guards
            with compilers_silenced(), unnoticed_by_others():
                for call, (args, kwargs) in work:
                    outputs = tensors_in(call(args, kwargs))
                    parts = [leaf.float().sum() for leaf in outputs if leaf.requires_grad]
                    if parts:
                        torch.stack(parts).sum().backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            if self.thread is threading.current_thread():
                self.failure = f"it does not compile ({first_line(error)[:120]})"
        finally:
            for twin in twins:
                self.compiled.pop(twin, None)
            release_pool()


SESSION = "_compile_session_context"  # of torch 2.13 and later
_unnoticed: set[int] = set()  # the threads that compile
_replaced: list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]] = []  # before, ours
_lock = threading.Lock()


@contextmanager
def unnoticed_by_others() -> Iterator[None]:
    """What this thread compiles does not show in others: a compiler saves and restores the random
    state of the process, which would rewind what they have drawn meanwhile, and lets
    `torch.compiler.is_compiling` be true for all, which optimizers and models ask.

    The functions that do so are replaced until the last such thread has ended, also after
    `lab.disable()`: they do in other threads what they always do.
    """
    here = threading.get_ident()
    with _lock:
        if not _unnoticed:
            _replace()
        _unnoticed.add(here)
    try:
        yield
    finally:
        with _lock:
            _unnoticed.discard(here)
            if not _unnoticed:
                for place, name, before, ours in _replaced:
                    # else somebody has replaced it since, and calls ours
                    if getattr(place, name) is ours:
                        setattr(place, name, before)
                _replaced.clear()


def _replace() -> None:
    places = [(torch.random, "set_rng_state"), (random, "setstate")]
    places += [(torch.compiler, SESSION)] if hasattr(torch.compiler, SESSION) else []
    for place, name in places:
        before = getattr(place, name)
        ours = _in_other_threads(before)
        setattr(place, name, ours)
        _replaced.append((place, name, before, ours))


def _in_other_threads(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which does nothing in a thread that compiles."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_unnoticed = threading.get_ident() in _unnoticed
        return nullcontext() if is_unnoticed else function(*args, **kwargs)

    return call


def _entry(model: nn.Module) -> Callable[..., Any]:
    """A function of its own for a model and its copy: torch caches compiled code by a function's
    code, and other models would share its limit of recompilations.
    """

    def entry(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return module.forward(*args, **kwargs)

    own_code = entry.__code__.replace(co_name=f"training_{id(model)}")
    return FunctionType(own_code, entry.__globals__, own_code.co_name, None, entry.__closure__)


def _graphs() -> int:
    """The graphs that Dynamo has compiled in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])

"""One call of a workload, or a step of training, recorded as a snapshot.

On a CPU torch's profiler reports each block that is allocated and freed, with its address, also
inside operators; what an operator frees before it ends is its workspace. Weights and inputs are
known by their addresses, gradients and the optimizer's state by a mark once they are there. On CUDA
it is the allocator's own history.

A dispatch mode marks each operator for the profiler with the number of its place: its layer, the
line of code and the category. An operator of the backward pass belongs to the layer whose operator
it differentiates: both have the sequence number of the autograd node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from ...arguments import check_count
from ...errors import MeasureError, PaifuserError, first_line
from ...machine.host import threads
from ...model.watch import watching
from ...records import StepOptions
from ...workload import QUIET, Derived, Workload, outside_inference, running, workload_of
from ...workload.batching import example_batch
from ...workload.seeding import preserve_rng
from ..predict.ledger import OPTIMIZER
from ..predict.step import Observer, real_subject, run, watching_gradients
from .reading import read_snapshot
from .snapshot import ALLOC, FREE_COMPLETED, Snapshot, Trace
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

    def begin(self, phase: str) -> None:
        self.category = "workspace" if phase == OPTIMIZER else "activations"

    def enter(self, layer: str, args: Any, kwargs: Any) -> None:
        """A layer's call begins; what it allocates outside of all operators is marked too."""
        self._layers.append(layer)
        number = self.number(layer, self.category, self._stack())
        self._marks.append(record_function(f"{MARK}{number}"))
        self._marks[-1].__enter__()

    def leave(self, layer: str, output: Any) -> None:
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


Call = Callable[[Observer], Any]
GIVEN = "paifuser-lab address: "  # the mark of a run; with an address and what lies there, of that
MAX_EVENTS = 1_000_000  # of CUDA's history


@outside_inference
def recorded(
    subject: Workload | Derived, options: StepOptions, batch: int | None = None
) -> Snapshot:
    """Run a workload once and record its memory; training changes a copy of the model."""
    work = workload_of(subject)
    if batch is not None:
        check_count("batch", batch)
    record = _history if work.device.type == "cuda" else _recording
    with QUIET, preserve_rng(work.device), threads(subject.own_threads):
        if options != StepOptions() or batch is not None:
            step = real_subject(work, options, example_batch(work) if batch is None else batch)
            try:
                return record(work, step.model, step.tensors, partial(run, step))
            except PaifuserError:
                raise
            except Exception as error:
                raise MeasureError(
                    f"{work.name} fails in this step ({type(error).__name__}: "
                    f"{first_line(error).rstrip('.')}); give another batch=…."
                ) from error
        work.output()  # a failing model raises here with its layer's name
        inputs, model = work.inputs.clone(), work.model
        with running(model):
            return record(work, model, inputs.tensors, lambda observer: inputs(model))


def _history(work: Workload, model: nn.Module, tensors: Iterable[Any], call: Call) -> Snapshot:
    """What CUDA's allocator recorded of a call."""
    memory: Any = torch.cuda.memory
    if torch._C._cuda_isHistoryEnabled():
        raise MeasureError(
            "torch's memory history is on already; turn it off before: "
            "torch.cuda.memory._record_memory_history(enabled=None)."
        )
    memory._record_memory_history(max_entries=MAX_EVENTS, stacks="python")
    try:
        kept = call(Observer())
        torch.cuda.synchronize(work.device)
        taken: dict[str, Any] = memory._snapshot(work.device)
        del kept
    finally:
        memory._record_memory_history(enabled=None)
    return replace(read_snapshot(taken), name=work.name)


def _recording(work: Workload, model: nn.Module, tensors: Iterable[Any], call: Call) -> Snapshot:
    """What a call allocates on a CPU."""
    stacks = Stacks()
    places = Places(stacks, _recording.__code__)
    static = list(_static(places, work.name, model, tensors))
    is_opaque = bool(getattr(type(model), "opaque", "")) or any(
        "_orig_mod" in module._modules for module in model.modules()
    )  # compiled code would run differently under a dispatch mode
    with ExitStack() as stack:
        stack.enter_context(watching_gradients(model, partial(_mark, "gradients")))
        profiled = stack.enter_context(profile(profile_memory=True))
        stack.enter_context(watching(model, places.enter, places.leave))
        stack.enter_context(nullcontext() if is_opaque else places)
        with record_function(GIVEN):
            kept = call(Observer(places.begin, partial(_mark, "optimizer state")))
    del kept
    nodes = in_order(profiled.kineto_results.experimental_event_tree())
    first = next(index for index, node in enumerate(nodes) if node.name == GIVEN)
    blocks = _Blocks(nodes[first:], places, static).found
    return Snapshot(work.name, (), (_trace(nodes[first:], blocks),), stacks, {}, "cpu")


def _static(
    places: Places, name: str, model: nn.Module, tensors: Iterable[Any]
) -> Iterator[_Block]:
    """What is there before the run: the weights, and the inputs."""
    seen: set[int] = set()
    named = [*model.named_parameters(), *model.named_buffers()]
    weights = [(path.rpartition(".")[0], tensor, "weights") for path, tensor in named]
    for layer, tensor, category in (*weights, *(("", tensor, "inputs") for tensor in tensors)):
        if not isinstance(tensor, Tensor) or not torch._C._has_storage(tensor):
            continue
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            places.stacks.frames.append(Frame(f"{category} of {layer or name}", "", 0))
            stack = (len(places.stacks.frames) - 1,)
            number = places.number(layer, category, stack)
            yield _Block(storage.data_ptr(), storage.nbytes(), number)


def _mark(category: str, tensors: Iterable[Any]) -> None:
    """Tell the profiler what lies at these addresses."""
    for tensor in tensors:
        if isinstance(tensor, Tensor) and torch._C._has_storage(tensor):
            with record_function(f"{GIVEN}{tensor.untyped_storage().data_ptr()} {category}"):
                pass


def in_order(tree: Iterable[Any]) -> list[Any]:
    """The events in order of time, enclosing events first."""
    found, pending = [], [*tree][::-1]
    while pending:
        node = pending.pop()
        found.append(node)
        pending.extend(reversed(node.children))
    return sorted(found, key=lambda node: (node.start_time_ns, -node.end_time_ns))


@dataclass
class _Block:
    """Memory from its allocation to its release, by the numbers of events."""

    address: int
    size: int
    place: int
    begin: int = 0
    operator_end_ns: int = 0  # of the operator that allocated it
    end: int | None = None


class _Blocks:
    """The blocks of a run; `found` has them by the time of their allocation."""

    def __init__(self, nodes: list[Any], places: Places, static: list[_Block]) -> None:
        self.found = static
        self._places = places
        self._alive = {block.address: block for block in static}
        self._spans: list[Any] = []
        for index, node in enumerate(nodes):
            while self._spans and self._spans[-1].end_time_ns <= node.start_time_ns:
                self._spans.pop()
            if node.tag == _EventType.Allocation:
                self._note(index, node)
            elif node.tag == _EventType.TorchOp and node.start_tid == nodes[0].start_tid:
                self._spans.append(node)
                if node.name.startswith(GIVEN) and node.name != GIVEN:
                    address, _, category = node.name.removeprefix(GIVEN).partition(" ")
                    self._name(self._alive.get(int(address)), category)

    def _note(self, index: int, node: Any) -> None:
        """Take an allocation or a release."""
        event = node.extra_fields
        if event.device.type != "cpu":
            return
        if event.alloc_size > 0:
            marked = [at for at, span in enumerate(self._spans) if place_of(span.name) is not None]
            inside = self._spans[marked[-1] :] if marked else []
            place = place_of(inside[0].name) if inside else None
            ended = inside[1].end_time_ns if len(inside) > 1 else 0
            block = _Block(event.ptr, event.alloc_size, place or 0, index, ended)
            self._alive[event.ptr] = block
            self.found.append(block)
        elif event.ptr in self._alive:
            freed = self._alive.pop(event.ptr)
            freed.end = index
            if node.start_time_ns <= freed.operator_end_ns:
                self._name(freed, "workspace")

    def _name(self, block: _Block | None, category: str) -> None:
        """Give a block another category."""
        if block is not None:
            stacks = self._places.stacks
            layer, _ = stacks.known.get(block.place, ("", ""))
            block.place = self._places.number(layer, category, stacks.stacks[block.place])


def _trace(nodes: list[Any], blocks: list[_Block]) -> Trace:
    """The events of blocks in order; those of what was there before come first."""
    began = nodes[0].start_time_ns
    rows = []
    for block in blocks:
        for event, action in ((block.begin, ALLOC), (block.end, FREE_COMPLETED)):
            if event is not None:
                time = (nodes[event].start_time_ns - began) // 1000
                rows.append((event, action, block.address, block.size, 0, time, block.place))
    rows.sort(key=lambda row: row[0])
    return Trace(*numpy.asarray(rows, numpy.int64).reshape(len(rows), 7).T[1:])

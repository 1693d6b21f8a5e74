"""A model together with what is needed to judge it: example inputs and, where known, loss, data and
metric.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock
from types import GeneratorType
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from .._files import is_encodable
from ..arguments import device_of
from ..errors import ForwardError, MeasureError, PaifuserError, WorkloadError, first_line
from ..model.copying import copied
from ..model.watch import describe, failing_layer, first_nan, has_nan
from ..records import Origin
from ..records.workload_name import WorkloadName

Loss = Callable[[Any, Any], Tensor]
Options = dict[str, dict[str, Any]]  # a step's name, and what was chosen for it
Metric = Callable[[Callable[..., Any], Any], float]


@dataclass(frozen=True)
class Inputs:
    """Example inputs, as a call takes them."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: Any) -> Inputs:
        """A tensor is one argument, a tuple or list several, a dict keyword arguments."""
        if isinstance(inputs, Inputs):
            return inputs
        if isinstance(inputs, Mapping):  # a tokenizer's answer is no dict
            return cls(kwargs=dict(inputs))
        return cls(tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,))

    def map(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The same inputs with every tensor changed."""
        args, kwargs = pytree.tree_map_only(Tensor, change, (self.args, self.kwargs))
        return Inputs(args, kwargs)

    def clone(self) -> Inputs:
        """A copy that a model may scribble on."""
        return self.map(lambda tensor: tensor.detach().clone())

    @cached_property
    def is_flat(self) -> bool:
        """Whether every argument is a tensor, as in most calls."""
        return all(isinstance(leaf, Tensor) for leaf in (*self.args, *self.kwargs.values()))

    @cached_property
    def tensors(self) -> list[Tensor]:
        """The tensors in them, in order."""
        if self.is_flat:
            return [*self.args, *self.kwargs.values()]
        return [
            leaf
            for leaf in pytree.tree_leaves((self.args, self.kwargs))
            if isinstance(leaf, Tensor)
        ]

    def __call__(self, model: Callable[..., Any]) -> Any:
        """The model's answer to these inputs; one that comes piece by piece, such as tokens, is
        taken to its end.
        """
        answer = model(*self.args, **self.kwargs)
        return list(answer) if isinstance(answer, GeneratorType) else answer


class Workload:
    """What every tool takes: a model, example inputs and, where known, loss, train and test data
    and a metric.

    The model is used as it is and never changed: it runs in eval mode, without gradients, and its
    training flags and buffers are put back afterwards.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        *,
        name: str | None = None,
        loss: Loss | None = None,
        train: Sequence[tuple[Any, Any]] | None = None,
        test: Sequence[tuple[Any, Any]] | None = None,
        metric: Metric | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise WorkloadError(
                f"A workload needs a torch.nn.Module; {type(model).__name__} is none."
            )
        self.model = model
        self.name: str = WorkloadName(_checked_name(name or type(model).__name__))
        self.inputs = Inputs.of(inputs)
        self.loss, self.train, self.test, self.metric = loss, train, test, metric
        self.origin: Origin | None = None  # how `load` made it, where it did
        self.applied: tuple[
            Options, ...
        ] = ()  # the steps that a recipe changed the model by, where one did
        self.variants: OrderedDict[str, Any] = (
            OrderedDict()
        )  # what was made of it, kept by `apply`, gone when it goes
        _check_names(self)
        _check_runs_live(self)
        _check_materialised(self)
        _check_inputs(self)

    def __repr__(self) -> str:
        shapes = ", ".join("×".join(map(str, tensor.shape)) for tensor in self.inputs.tensors)
        return f"Workload({self.name}: {shapes})"

    @property
    def device(self) -> torch.device:
        """Where the model's weights are (the CPU for a model without any)."""
        return next((tensor.device for tensor in self.model.parameters()), torch.device("cpu"))

    @property
    def metric_name(self) -> str | None:
        """What the metric is called."""
        return (
            None
            if self.metric is None
            else getattr(self.metric, "__name__", type(self.metric).__name__)
        )

    def output(self) -> Any:
        """The model's answer to its example inputs, checked: a failure or a NaN names the layer
        where it began.
        """
        inputs = self.inputs.clone()
        with running(self.model):
            try:
                output = inputs(self.model)
            except Exception as error:
                raise _forward_error(self, error) from error
            _check_plain(self.name, output)
            if has_nan(output):
                layer = first_nan(self.model, lambda: self.inputs.clone()(self.model))
                raise ForwardError(
                    f"{self.name} returns NaN on its example inputs, first at "
                    f"{describe(self.model, layer)}.",
                    layer=layer,
                )
        return output

    def evaluate(self, model: Callable[..., Any] | None = None) -> float | None:
        """The metric of a model (its own, unless another is given) on the test data; None where
        either is unknown.
        """
        if self.metric is None or self.test is None:
            return None
        judged = model or self.model
        module = judged if isinstance(judged, nn.Module) else self.model

        def predict(batch: Any) -> Any:
            with _told(
                f"{self.name} fails on its test data",
                "see that each batch has what the model takes",
            ):
                answer = Inputs.of(batch).map(lambda tensor: tensor.to(self.device))(judged)
            return pytree.tree_map_only(Tensor, lambda tensor: tensor.cpu(), answer)

        what = f"metric '{self.metric_name}' of {self.name} fails"
        with running(module), _told(what, "mend it: it is called as metric(predict, test)"):
            return float(self.metric(predict, self.test))

    def to(self, device: str | torch.device) -> Self:
        """The same workload on another device, with a copy of the model."""
        device = device_of(device)
        moved = self.copied()
        moved.model = moved.model.to(device)
        moved.inputs = self.inputs.map(lambda tensor: tensor.to(device))
        return moved

    def copied(self) -> Self:
        """The same workload with a copy of the model."""
        own = copy.copy(self)
        own.variants = OrderedDict()
        try:
            own.model = copied(self.model)
        except Exception as error:
            raise WorkloadError(
                f"{self.name} cannot be copied ({first_line(error)}), and only a copy is changed "
                "or moved."
            ) from error
        return own


@contextmanager
def _told(what: str, remedy: str) -> Iterator[None]:
    """Whatever the user's code raises is told with what it was called for."""
    try:
        yield
    except PaifuserError:
        raise
    except Exception as error:
        raise MeasureError(
            f"{what} ({type(error).__name__}: {first_line(error).rstrip('.')}); {remedy}."
        ) from error


class Derived(Protocol):
    """What was made from a workload, such as a variant, and can be looked at like one."""

    @property
    def workload(self) -> Workload: ...

    @property
    def own_threads(self) -> int | None: ...


def workload_of(subject: Workload | Derived) -> Workload:
    """The workload that a tool was handed, or the one that what it was handed makes; a bare model
    is none.

    Every public function that takes a workload begins with it.
    """
    if isinstance(subject, Workload):
        return subject
    made = None if isinstance(subject, nn.Module) else getattr(subject, "workload", None)
    if not isinstance(made, Workload):
        kind = type(subject).__name__
        raise WorkloadError(
            f"A {kind} is no workload; wrap the model: lab.Workload(model, inputs), or "
            "lab.load(name)."
        )
    return made


# What was called under torch.inference_mode() and makes models or needs gradients: what it makes is
# to be trained and changed later.
outside_inference = torch.inference_mode(False)


# One thread runs models at a time: a workbench does so in the background while a cell may do the
# same, perhaps with the same model. Its flags and buffers, torch's profiler and its modes,
# exporting and compiling are the whole process's, and two timings would disturb each other.
QUIET = RLock()


@contextmanager
def running(model: nn.Module) -> Iterator[None]:
    """In eval mode and without gradients, while no other thread runs one; flags and buffers are put
    back whatever happens.
    """
    with QUIET:
        yield from _running(model)


def _running(model: nn.Module) -> Iterator[None]:
    before = [(module, module.training, dict(module._buffers)) for module in model.modules()]
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, flag, buffers in before:
            module.training = flag
            _put_buffers_back(module, buffers)
        with torch.no_grad():
            for buffer, value in values:
                if buffer.shape == value.shape and not _is_equal(buffer, value):
                    buffer.copy_(value)


def _put_buffers_back(module: nn.Module, buffers: dict[str, Tensor | None]) -> None:
    """A forward may have put a new tensor, or a new name, in a buffer's place; compiled script
    cannot have new names.
    """
    if isinstance(module, torch.jit.ScriptModule):
        for name, buffer in buffers.items():
            setattr(module, name, buffer)
        return
    module._buffers.clear()
    module._buffers.update(buffers)


def _is_equal(one: Tensor, other: Tensor) -> bool:
    return (
        torch.equal(one, other)
        if one.layout is torch.strided
        else torch.equal(one.to_dense(), other.to_dense())
    )


def changed_buffers(work: Workload) -> tuple[str, ...]:
    """The buffers that the model's forward writes to, by name."""
    before = {name: buffer.detach().clone() for name, buffer in work.model.named_buffers()}
    inputs = work.inputs.clone()
    with running(work.model):
        inputs(work.model)
        after = dict(work.model.named_buffers())
        return tuple(
            name
            for name, value in before.items()
            if name not in after or not _is_equal(after[name], value)
        )


def _checked_name(name: str) -> str:
    """A name that can be saved and shown."""
    if not isinstance(name, str):
        raise WorkloadError(f"{name!r} cannot name a workload; a name is text, such as 'resnet18'.")
    if not is_encodable(name):
        raise WorkloadError(
            f"The name {name!r} cannot be written into a file: it holds half a character; choose "
            "another."
        )
    return name


def _check_names(work: Workload) -> None:
    named = (
        *work.model.named_modules(),
        *work.model.named_parameters(),
        *work.model.named_buffers(),
    )
    for name, _ in named:
        if not is_encodable(name):
            raise WorkloadError(
                f"{work.name}: the name {name!r} cannot be written into a file; name that layer "
                "otherwise."
            )


def _check_runs_live(work: Workload) -> None:
    """A module of torch.export is a fixed graph in a fixed mode: it cannot be put into eval mode,
    and its layers are gone.
    """
    if any(
        isinstance(module, GraphModule) and "eval" in vars(module)
        for module in work.model.modules()
    ):
        raise WorkloadError(
            f"{work.name} was made by torch.export, which fixes its mode and leaves no layers; "
            "give the model that was exported."
        )


def _check_materialised(work: Workload) -> None:
    for name, tensor in (*work.model.named_parameters(), *work.model.named_buffers()):
        if is_lazy(tensor):
            raise WorkloadError(
                f"{work.name}: '{name}' of a lazy layer has no shape yet; call the model once "
                "first."
            )
        if tensor.is_meta:
            raise WorkloadError(
                f"{work.name}: '{name}' is on the meta device and has no values; load the weights "
                "first."
            )


def _check_inputs(work: Workload) -> None:
    for tensor in work.inputs.tensors:
        if tensor.is_meta:
            raise WorkloadError(
                f"{work.name}: an input is on the meta device and has no values; give real tensors."
            )
        if tensor.ndim and tensor.shape[0] == 0:
            raise WorkloadError(
                f"{work.name}: an input has shape {tuple(tensor.shape)}, a batch of zero; give at "
                "least one example."
            )
        if tensor.device != work.device:
            raise WorkloadError(
                f"{work.name} is on {work.device} and an input is on {tensor.device}; move one of "
                "them."
            )


def _check_plain(name: str, output: Any) -> None:
    if any(isinstance(leaf, Tensor) and leaf.is_nested for leaf in pytree.tree_leaves(output)):
        raise WorkloadError(
            f"{name} answers with a nested tensor, whose values cannot be compared; let its "
            "forward return a padded one "
            f"(torch.nested.to_padded_tensor)."
        )


def _forward_error(work: Workload, error: Exception) -> ForwardError:
    layer, shapes = failing_layer(work.model, lambda: work.inputs.clone()(work.model))
    received = f", which received {', '.join(shapes)}" if shapes else ""
    reason = first_line(error).rstrip(".")
    return ForwardError(
        f"{work.name} fails on its example inputs at {describe(work.model, layer)}{received}: "
        f"{reason}.",
        layer=layer,
    )

"""The models that a loop calls, observed: their mode, whether they build a graph, and
denormal values inside them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree

from ...model.watch import watching
from .trace import LOOK, MODEL


def our_look() -> AbstractContextManager[Any]:
    """Mark time that the loop would not have taken alone."""
    return record_function(LOOK)


@dataclass
class Denormals:
    """How many values lie between zero and the smallest normal number, and where most of them
    do.
    """

    values: int = 0
    denormal: int = 0
    by_layer: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        return self.denormal / self.values if self.values else 0.0

    def look(self, layer: str, tensor: Any) -> None:
        """Count the values of a tensor in the CPU's memory; a GPU computes with denormals at full
        speed.
        """
        if not _can_be_slow(tensor):
            return
        with torch.no_grad():
            size = tensor.detach().abs()
            found = int(((size > 0) & (size < torch.finfo(size.dtype).tiny)).sum())
        self.values += size.numel()
        self.denormal += found
        self.by_layer[layer] += found


@dataclass
class ModelWatch:
    """Observations of the outermost calls of models, in order."""

    models: dict[int, nn.Module] = field(default_factory=dict)
    calls: Counter[int] = field(default_factory=Counter)
    grown: int = 0  # calls whose answer can be differentiated
    training: dict[str, str] = field(
        default_factory=dict
    )  # layers that behave otherwise in training mode, and were in it
    outputs: Denormals = field(default_factory=Denormals)
    _open: list[tuple[ExitStack, bool]] = field(default_factory=list)

    def enter(self, model: nn.Module) -> None:
        """A model is called from outside any other."""
        stack, is_call = ExitStack(), not (_is_in_backward() or is_read_along())
        if is_call:
            with our_look():
                self._meet(model)
            count = self.calls[id(model)]
            stack.enter_context(record_function(MODEL))
            if (
                count & (count - 1) == 0
            ):  # the first call, the second, the fourth: late ones are seen and most cost nothing
                stack.enter_context(watching(model, _no_matter, self._see_layer))
        self._open.append((stack, is_call))

    def leave(self, model: nn.Module, output: Any) -> None:
        """The model has answered, or failed."""
        stack, is_call = self._open.pop()
        stack.close()
        if is_call:
            self.grown += any(
                isinstance(leaf, Tensor) and leaf.requires_grad
                for leaf in pytree.tree_leaves(output)
            )

    def weights(self) -> Denormals:
        """Denormal weights of all models met, as they are now."""
        found = Denormals()
        for model in self.models.values():
            for name, parameter in model.named_parameters():
                found.look(name, parameter)
        return found

    def _meet(self, model: nn.Module) -> None:
        if id(model) not in self.models:
            self.training |= {
                name or "itself": type(layer).__name__ for name, layer in training_layers(model)
            }
        self.models[id(model)] = model
        self.calls[id(model)] += 1

    def _see_layer(self, layer: str, output: Any) -> None:
        with our_look():
            for leaf in pytree.tree_leaves(output):
                self.outputs.look(layer, leaf)


def training_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers in training mode that answer otherwise than in eval mode."""
    return [
        (name, layer)
        for name, layer in model.named_modules()
        if layer.training and _minds_mode(layer)
    ]


def _minds_mode(layer: nn.Module) -> bool:
    share = layer.p if isinstance(layer, _DropoutNd) else getattr(layer, "dropout", 0.0)
    return isinstance(layer, _BatchNorm) or (isinstance(share, float) and share > 0)


def _can_be_slow(tensor: Any) -> bool:
    is_plain = (
        isinstance(tensor, Tensor)
        and type(tensor) in (Tensor, nn.Parameter)
        and tensor.layout is torch.strided
    )
    if not is_plain or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return tensor.device.type == "cpu" and tensor.dtype in (
        torch.float32,
        torch.float64,
        torch.bfloat16,
    )


def is_read_along() -> bool:
    """Whether a tracer or a mode such as FakeTensorMode reads every operator: our own would end up
    in what it makes.
    """
    return torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0


def _is_in_backward() -> bool:
    """Where checkpointed layers are run again, which is no call of the loop's own."""
    return bool(torch._C._current_graph_task_id() != -1)


def _no_matter(layer: str, args: Any, kwargs: Any) -> None:
    return

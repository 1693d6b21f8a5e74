"""Watch the models that a loop calls: their mode, autograd graphs, and denormal values."""

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
from .trace import MODEL, WATCHING


def watching_time() -> AbstractContextManager[Any]:
    """Mark time of the watching, which the loop alone would not take."""
    return record_function(WATCHING)


@dataclass
class Denormals:
    """The number of denormal values, in all and by layer."""

    values: int = 0
    denormal: int = 0
    by_layer: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        return self.denormal / self.values if self.values else 0.0

    def count(self, layer: str, tensor: Any) -> None:
        """Count the values of a CPU tensor; a GPU computes with denormals at full speed."""
        if not _can_be_slow(tensor):
            return
        with torch.no_grad():
            size = tensor.detach().abs()
            count = int(((size > 0) & (size < torch.finfo(size.dtype).tiny)).sum())
        self.values += size.numel()
        self.denormal += count
        self.by_layer[layer] += count


@dataclass
class ModelWatch:
    """Observations of the outermost calls of models, in order."""

    models: dict[int, nn.Module] = field(default_factory=dict)
    calls: Counter[int] = field(default_factory=Counter)
    grown: int = 0  # calls whose output can be differentiated
    # layers that were in training mode and depend on it
    training: dict[str, str] = field(default_factory=dict)
    outputs: Denormals = field(default_factory=Denormals)
    _open: list[tuple[ExitStack, bool]] = field(default_factory=list)

    def enter(self, model: nn.Module) -> None:
        """An outermost call of a model begins."""
        stack, is_call = ExitStack(), not (_is_in_backward() or is_traced())
        if is_call:
            with watching_time():
                self._note_call(model)
            count = self.calls[id(model)]
            stack.enter_context(record_function(MODEL))
            # calls 1, 2, 4, 8 …: late ones are covered and most cost nothing
            if count & (count - 1) == 0:
                stack.enter_context(watching(model, _ignore, self._count_output))
        self._open.append((stack, is_call))

    def leave(self, model: nn.Module, output: Any) -> None:
        """The call has returned or raised."""
        stack, is_call = self._open.pop()
        stack.close()
        if is_call:
            self.grown += any(
                isinstance(leaf, Tensor) and leaf.requires_grad
                for leaf in pytree.tree_leaves(output)
            )

    def weights(self) -> Denormals:
        """Denormal weights of all models that were called, as they are now."""
        denormals = Denormals()
        for model in self.models.values():
            for name, parameter in model.named_parameters():
                denormals.count(name, parameter)
        return denormals

    def _note_call(self, model: nn.Module) -> None:
        if id(model) not in self.models:
            self.training |= {
                name or "itself": type(layer).__name__ for name, layer in training_layers(model)
            }
        self.models[id(model)] = model
        self.calls[id(model)] += 1

    def _count_output(self, layer: str, output: Any) -> None:
        with watching_time():
            for leaf in pytree.tree_leaves(output):
                self.outputs.count(layer, leaf)


def training_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers in training mode whose output differs from eval mode."""
    return [
        (name, layer)
        for name, layer in model.named_modules()
        if layer.training and _depends_on_mode(layer)
    ]


def _depends_on_mode(layer: nn.Module) -> bool:
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


def is_traced() -> bool:
    """Whether a tracer or a mode such as FakeTensorMode records every operator; ours would be
    included.
    """
    return torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0


def _is_in_backward() -> bool:
    """Whether backward runs, which calls checkpointed layers again; these calls do not count."""
    return bool(torch._C._current_graph_task_id() != -1)


def _ignore(layer: str, args: Any, kwargs: Any) -> None:
    return

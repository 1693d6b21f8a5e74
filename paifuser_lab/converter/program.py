"""A model as exporters see it, from tensors to tensors, and as the program that torch.export
captures, guarded: what a file would silently fix to the example's values is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ..errors import ExportError, MeasureError, first_line
from ..measure import output_error
from ..model.silence import compilers_silenced
from ..model.tensors import tensors_in
from ..model.watch import describe, has_nan
from ..quantization.float_formats import autocast_as_casts
from ..workload import Inputs, running
from ..workload.checks import check_plain
from ..workload.eval_mode import is_equal
from ..workload.seeding import preserve_rng

ROOT = "model"  # the name of the exported model in FlatModel
REPEATABLE = 1e-5  # relative L2 between two calls: sums in another order of threads
OTHER_SCALE = -0.5  # of the second inputs, so that branches by sign and size go the other way
DATA_DEPENDENT = "data-dependent"


class FlatModel(nn.Module):
    """The model as a function from a list of tensors to a list of tensors: exporters fail on named,
    nested and constant inputs.
    """

    def __init__(self, model: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.model = model
        self.leaves, self.spec = pytree.tree_flatten((inputs.args, inputs.kwargs))

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        """The tensors in the model's output, in order."""
        remaining = iter(tensors)
        leaves = [next(remaining) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return tensors_in(self.model(*args, **kwargs))


def check_repeatable(name: str, function: FlatModel, tensors: list[Tensor]) -> None:
    """Raise where a model's output or buffers change from call to call: no file can repeat that."""
    device = tensors[0].device if tensors else torch.device("cpu")
    with preserve_rng(device), running(function.model):
        before = {key: value.detach().clone() for key, value in function.named_buffers()}
        first = _called(function, tensors)
        check_plain(name, first)
        changed = [
            key.removeprefix(f"{ROOT}.")
            for key, value in function.named_buffers()
            if key not in before or not is_equal(before[key], value)
        ]
        second = _called(function, tensors)
    if changed:
        raise ExportError(
            f"{name} cannot be exported: its forward changes buffer '{changed[0]}', which a file "
            "would not keep; return the value instead, and pass it in with the next call."
        )
    if not first:
        raise ExportError(f"{name} cannot be exported: its output holds no tensor; return one.")
    if has_nan(first):
        raise ExportError(
            f"{name} cannot be exported: its output for the example holds a NaN, with which no "
            "file's output can be compared; give other inputs, or mend its weights."
        )
    if not _agree(first, second):
        raise ExportError(
            f"{name} cannot be exported: it gives two outputs for the same inputs, as a model does "
            "that draws random numbers or counts its calls; make its forward depend on its inputs "
            "alone."
        )


def exported_program(
    name: str, function: FlatModel, tensors: list[Tensor], *, dynamic: bool = False
) -> torch.export.ExportedProgram:
    """What torch.export captures; raise ExportError where what runs depends on values."""
    shapes = {"tensors": batch_dimensions(tensors)} if dynamic else None
    if dynamic:
        tensors = doubled(tensors)
    with compilers_silenced(), running(function.model), autocast_as_casts():
        try:
            return torch.export.export(
                function, tuple(tensors), dynamic_shapes=shapes, strict=False
            )
        # the exporter raises whatever the model's code raises; the message is one line
        except Exception as error:
            raise refused(name, error, function, tensors, dynamic=dynamic) from error


def batch_dimensions(tensors: list[Tensor]) -> tuple[Any, ...]:
    """Dimension 0 as dynamic, of every tensor that has as many examples as the first one."""
    batch = batch_of(tensors)
    return tuple(
        {0: torch.export.Dim.DYNAMIC} if tensor.ndim and tensor.shape[0] == batch else None
        for tensor in tensors
    )


def batch_of(tensors: list[Tensor]) -> int:
    """The number of examples: dimension 0 of the first tensor that has one."""
    return next((int(tensor.shape[0]) for tensor in tensors if tensor.ndim), 0)


def doubled(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors with two examples where they have one: exporters take a size of 1 as fixed."""
    if batch_of(tensors) != 1:
        return tensors
    return [
        torch.cat([tensor, tensor]) if tensor.ndim and tensor.shape[0] == 1 else tensor
        for tensor in tensors
    ]


def other_inputs(function: FlatModel, tensors: list[Tensor]) -> tuple[list[Tensor], ...]:
    """Inputs of the same shapes with other values: the example's in another order, and these
    scaled and negated where the live model's output stays finite.
    """
    permuted = [_permuted(tensor, seed) for seed, tensor in enumerate(tensors)]
    negated = [
        tensor * OTHER_SCALE if tensor.is_floating_point() else tensor for tensor in permuted
    ]
    return tuple(other for other in (permuted, negated) if _is_finite(function, other))


def another_batch(tensors: list[Tensor]) -> list[Tensor]:
    """One example more than in the tensors, or in two, with values in another order."""
    batch = batch_of(tensors)
    longer = [
        torch.cat([tensor, tensor, tensor])[: 2 * batch + 1]
        if tensor.ndim and tensor.shape[0] == batch
        else tensor
        for tensor in tensors
    ]
    return [_permuted(tensor, 7 + seed) for seed, tensor in enumerate(longer)]


def refused(
    name: str, error: BaseException, function: FlatModel, tensors: list[Tensor], *, dynamic: bool
) -> ExportError:
    """The error of a failed capture: the layer, what is in the way, and what to do."""
    if isinstance(error, ExportError):
        return error
    where = describe(function.model, _failing_layer(function, tensors, dynamic=dynamic))
    if is_data_dependent(error):
        return ExportError(
            f"{name} cannot be exported: {where} chooses what it runs by the values of its "
            "tensors, and a file would always take the example's way; compute both and choose "
            "with torch.where."
        )
    if dynamic:
        return ExportError(
            f"{name} cannot be exported for any batch size: {where}: {reason(error)}; leave "
            "`dynamic` out, for the example's batch alone."
        )
    return ExportError(f"{name} cannot be exported: {where}: {reason(error)}.")


def is_data_dependent(error: BaseException) -> bool:
    """Whether a capture failed since Python code reads the values of a tensor."""
    return any(
        type(cause).__name__ == "GuardOnDataDependentSymNode" or DATA_DEPENDENT in str(cause)
        for cause in causes(error)
    )


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what caused it, outermost first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def describe_layer(function: FlatModel, operator: str, tensors: list[Tensor]) -> str:
    """The layer that calls an operator, as messages name it."""
    with compilers_silenced(), running(function.model):
        try:
            program = torch.export.export(function, tuple(tensors), strict=False)
        except Exception:  # the layer cannot be told
            return describe(function.model, "")
    wanted = operator.replace("::", ".").removeprefix("torch.ops.")
    for node in program.graph.nodes:
        if str(node.target).removesuffix(".default").startswith(wanted.removesuffix(".default")):
            return describe(function.model, layer_of(node))
    return describe(function.model, "")


def layer_of(node: fx.Node) -> str:
    """The path in the model of the layer that a FlatModel's operator was captured in."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    return path.removeprefix("L['self'].").removeprefix(ROOT).removeprefix(".")


def reason(error: BaseException) -> str:
    """What an error was raised from in the end."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {first_line(error).rstrip('.')}"


def _failing_layer(function: FlatModel, tensors: list[Tensor], *, dynamic: bool) -> str:
    """The innermost layer being captured when torch.export fails; '' where unknown."""
    shapes = {"tensors": batch_dimensions(tensors)} if dynamic else None
    with compilers_silenced(), running(function.model), _entered(function.model) as layers:
        try:
            torch.export.export(function, tuple(tensors), dynamic_shapes=shapes, strict=False)
        except Exception:
            return layers[-1] if layers else ""
    return ""


@contextmanager
def _entered(model: nn.Module) -> Iterator[list[str]]:
    """The layers whose call has begun and not ended, by hooks, which a capture runs as they are."""
    layers: list[str] = []
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: layers.append(name)))
        handles.append(module.register_forward_hook(lambda *_: _left(layers)))
    try:
        yield layers
    finally:
        for handle in handles:
            handle.remove()


def _left(layers: list[str]) -> None:
    layers.pop()


def _called(function: FlatModel, tensors: list[Tensor]) -> list[Tensor]:
    return [leaf.detach().clone() for leaf in function(*(tensor.clone() for tensor in tensors))]


def _agree(first: list[Tensor], second: list[Tensor]) -> bool:
    try:
        return output_error(first, second)[0] <= REPEATABLE
    except MeasureError:  # other shapes
        return False


def _permuted(tensor: Tensor, seed: int) -> Tensor:
    """The values of a tensor in another order: they stay in the range that the model expects."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(tensor.numel(), generator=generator).to(tensor.device)
    return tensor.detach().reshape(-1)[order].reshape(tensor.shape)


def _is_finite(function: FlatModel, tensors: list[Tensor]) -> bool:
    """Whether the live model takes these tensors, and outputs no NaN."""
    try:
        with running(function.model):
            return not has_nan(_called(function, tensors))
    except Exception:  # the model's own code refuses such values
        return False

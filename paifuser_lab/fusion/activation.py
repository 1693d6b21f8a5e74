"""Activations that can be fused with a layer: traced calls, torch functions, oneDNN arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ..model.dataflow import BlockTracer
from ..model.watch import TRACING

Unary = Callable[[Tensor], Tensor]
# The fused call, of an input and the residual that is added to the layer's output.
Bound = Callable[[Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Activation:
    """Its torch function, its oneDNN arguments (name, scalars, algorithm), and one in place."""

    compose: Unary
    onednn: tuple[str, tuple[float, ...], str]
    over: Unary | None = None

    @property
    def in_place(self) -> Unary:
        """The function that may write over its input, where there is one."""
        return self.over or self.compose


NONE = "none"
ACTIVATIONS: dict[str, Activation] = {
    NONE: Activation(lambda x: x, ("none", (), "")),
    "relu": Activation(F.relu, ("relu", (), ""), F.relu_),
    "relu6": Activation(F.relu6, ("hardtanh", (0.0, 6.0), ""), lambda x: F.relu6(x, inplace=True)),
    "silu": Activation(F.silu, ("swish", (), ""), lambda x: F.silu(x, inplace=True)),
    "gelu": Activation(F.gelu, ("gelu", (), "none")),
    "gelu by tanh": Activation(lambda x: F.gelu(x, approximate="tanh"), ("gelu", (), "tanh")),
    "hardswish": Activation(
        F.hardswish, ("hardswish", (), ""), lambda x: F.hardswish(x, inplace=True)
    ),
    "hardsigmoid": Activation(
        F.hardsigmoid, ("hardsigmoid", (), ""), lambda x: F.hardsigmoid(x, inplace=True)
    ),
    "sigmoid": Activation(torch.sigmoid, ("sigmoid", (), ""), torch.sigmoid_),
    "tanh": Activation(torch.tanh, ("tanh", (), ""), torch.tanh_),
}
MODULES: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
    nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid",
    nn.Sigmoid: "sigmoid",
    nn.Tanh: "tanh",
}
FUNCTIONS: dict[Any, str] = {
    F.relu: "relu",
    F.relu_: "relu",
    torch.relu: "relu",
    torch.relu_: "relu",
    F.relu6: "relu6",
    F.silu: "silu",
    F.hardswish: "hardswish",
    F.hardsigmoid: "hardsigmoid",
    F.sigmoid: "sigmoid",
    torch.sigmoid: "sigmoid",
    torch.sigmoid_: "sigmoid",
    F.tanh: "tanh",
    torch.tanh: "tanh",
    torch.tanh_: "tanh",
}
METHODS = {f"{name}{end}": name for name in ("relu", "sigmoid", "tanh") for end in ("", "_")}
GELUS = {"none": "gelu", "tanh": "gelu by tanh"}
CLAMPS = (torch.clamp, torch.clamp_, F.hardtanh, "clamp", "clamp_")
RANGES: dict[Any, str] = {(0, None): "relu", (0, 6): "relu6"}


def activation_of(node: fx.Node, root: nn.Module) -> str | None:
    """The activation that a node of a block's graph calls; None if it calls no known one."""
    if node.op == "call_module":
        return _of_module(root.get_submodule(str(node.target)))
    if node.op not in ("call_function", "call_method"):
        return None
    if node.target in CLAMPS:
        return _of_clamp(node)
    if node.target is F.gelu:
        return (
            GELUS.get(str(node.kwargs.get("approximate", "none"))) if len(node.args) == 1 else None
        )
    known = dict[Any, str](METHODS) if node.op == "call_method" else FUNCTIONS
    return known.get(node.target)


def _of_module(module: nn.Module) -> str | None:
    if type(module) is nn.GELU:
        return GELUS.get(module.approximate)
    return MODULES.get(type(module)) or _of_wrapper(module)


def _of_wrapper(module: nn.Module) -> str | None:
    """The activation of a user's module that only calls one, as transformers' GELUActivation."""
    if module._modules or module._parameters or module._buffers or module._forward_hooks:
        return None
    try:
        with TRACING:
            x, *rest, _ = BlockTracer().trace(module).nodes
    except Exception:  # whatever the module's code raises: then it is no known activation
        return None
    if (
        x.op != "placeholder"
        or len(rest) != 1
        or rest[0].all_input_nodes != [x]
        or rest[0].op == "call_module"
    ):
        return None
    return activation_of(rest[0], module)


def _of_clamp(node: fx.Node) -> str | None:
    names = ("min_val", "max_val") if node.target is F.hardtanh else ("min", "max")
    args = [*node.args[1:], *[None] * 2][:2]
    bounds = tuple(node.kwargs.get(name, arg) for name, arg in zip(names, args, strict=True))
    return None if any(isinstance(x, fx.Node) for x in bounds) else RANGES.get(bounds)


SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")

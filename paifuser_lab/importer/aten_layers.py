"""The layers of torch.nn that operators of a captured program are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

WEIGHTS = ("weight", "bias", "running_mean", "running_var")
WINDOW = ("kernel_size", "stride", "padding", "dilation", "output_size")
SWITCHES = ("ceil_mode", "count_include_pad")
CONVOLUTION = ("stride", "padding", "output_padding", "groups", "dilation")
Rule = Callable[[int, dict[str, Any]], nn.Module | None]


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """The arguments by the names of the operator's schema, defaults included."""
    schema: Any = getattr(node.target, "_schema", None)
    if schema is None:
        return dict(node.kwargs)
    names = [argument.name for argument in schema.arguments]
    defaults = {argument.name: argument.default_value for argument in schema.arguments}
    return defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def name_of(node: fx.Node) -> str:
    """The operator's name, without its overload."""
    return str(getattr(node.target, "__name__", node.target)).partition(".")[0]


def input_of(node: fx.Node) -> Any:
    """What a layer is given: the first argument that is no weight."""
    return node.args[1] if name_of(node) == "embedding" else node.args[0]


def layer_of(node: fx.Node, weights: Mapping[fx.Node, Tensor]) -> nn.Module | None:
    """The layer that an operator is, with its weights; None where it is none."""
    name = name_of(node)
    rule = LAYERS.get(name.removesuffix("_"))
    x = input_of(node) if rule is not None else None
    if rule is None or not isinstance(x, fx.Node) or x in weights:
        return None
    arguments = {key: value for key, value in arguments_of(node).items() if value is not x}
    leaves = pytree.tree_leaves(arguments)
    if any(isinstance(leaf, fx.Node) and leaf not in weights for leaf in leaves):
        return None
    given = {
        key: weights[value] if isinstance(value, fx.Node) else value
        for key, value in arguments.items()
    }
    with torch.device("meta"):
        layer = rule(x.meta["val"].ndim, given)
    if layer is None or (name.endswith("_") and not hasattr(layer, "inplace")):
        return None
    if name.endswith("_"):
        layer.inplace = True  # type: ignore[assignment]
    for part in WEIGHTS:
        tensor = given.get(part)
        if tensor is not None:
            is_plain = part in layer._parameters and not isinstance(tensor, nn.Parameter)
            setattr(layer, part, nn.Parameter(tensor, requires_grad=False) if is_plain else tensor)
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        layer.num_batches_tracked = torch.zeros((), dtype=torch.int64)
    return layer.eval()


def _convolution(kind: Any, *, is_transposed: bool = False) -> Rule:
    def convolution(_: int, given: dict[str, Any]) -> nn.Module:
        outputs, inputs, *kernel = given["weight"].shape
        inputs *= given["groups"]
        channels = (outputs, inputs) if is_transposed else (inputs, outputs)
        options = {
            name: tuple(value) * (len(kernel) if len(value) == 1 else 1)
            if isinstance(value, list | tuple)
            else value
            for name, value in given.items()
            if name in CONVOLUTION
        }
        layer: nn.Module = kind(*channels, tuple(kernel), bias=given["bias"] is not None, **options)
        return layer

    return convolution


def _linear(_: int, given: dict[str, Any]) -> nn.Module | None:
    if given["weight"].ndim != 2:
        return None
    outputs, inputs = given["weight"].shape
    return nn.Linear(inputs, outputs, bias=given["bias"] is not None)


def _batch_norm(rank: int, given: dict[str, Any]) -> nn.Module | None:
    kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    if rank not in kinds or any(given[part] is None for part in WEIGHTS):
        return None
    return kinds[rank](len(given["weight"]), eps=given["eps"])


def _layer_norm(_: int, given: dict[str, Any]) -> nn.Module | None:
    if given["weight"] is None:
        return None
    shape = list(given["normalized_shape"])
    return nn.LayerNorm(shape, eps=given["eps"], bias=given["bias"] is not None)


def _group_norm(_: int, given: dict[str, Any]) -> nn.Module | None:
    if given["weight"] is None or given["bias"] is None:
        return None
    return nn.GroupNorm(given["num_groups"], len(given["weight"]), eps=given["eps"])


def _embedding(_: int, given: dict[str, Any]) -> nn.Module:
    rows, width = given["weight"].shape
    return nn.Embedding(rows, width)


def _hardtanh(_: int, given: dict[str, Any]) -> nn.Module:
    low, high = given["min_val"], given["max_val"]
    return nn.ReLU6() if (low, high) == (0, 6) else nn.Hardtanh(low, high)


def _activation(kind: Any, *names: str) -> Rule:
    return lambda _, given: kind(*(given[name] for name in names))


def _pool(kind: Any) -> Rule:
    def pool(_: int, given: dict[str, Any]) -> nn.Module | None:
        if given.get("divisor_override") is not None:
            return None
        options = {name: given[name] for name in SWITCHES if name in given}
        for name in WINDOW:
            if name in given:
                value = given[name]
                sizes = tuple(value) if isinstance(value, list | tuple) else (value,)
                # an empty list stands for the default
                options[name] = sizes[0] if len(sizes) == 1 else sizes or None
        layer: nn.Module = kind(**options)
        return layer

    return pool


LAYERS: dict[str, Rule] = {
    "linear": _linear, "batch_norm": _batch_norm, "layer_norm": _layer_norm,
    "group_norm": _group_norm, "embedding": _embedding, "hardtanh": _hardtanh,
    "relu": _activation(nn.ReLU), "relu6": _activation(nn.ReLU6), "silu": _activation(nn.SiLU),
    "gelu": _activation(nn.GELU, "approximate"), "mish": _activation(nn.Mish),
    "sigmoid": _activation(nn.Sigmoid), "tanh": _activation(nn.Tanh),
    "hardswish": _activation(nn.Hardswish), "hardsigmoid": _activation(nn.Hardsigmoid),
    "leaky_relu": _activation(nn.LeakyReLU, "negative_slope"),
}  # fmt: skip
for _rank in (1, 2, 3):
    for _name, _kind in (("max", "Max"), ("avg", "Avg"), ("adaptive_avg", "AdaptiveAvg")):
        LAYERS[f"{_name}_pool{_rank}d"] = _pool(getattr(nn, f"{_kind}Pool{_rank}d"))
    LAYERS[f"conv{_rank}d"] = _convolution(getattr(nn, f"Conv{_rank}d"))
    LAYERS[f"conv_transpose{_rank}d"] = _convolution(
        getattr(nn, f"ConvTranspose{_rank}d"), is_transposed=True
    )

"""The effect of a step on a layer: time the layer alone, as it is and changed, in turn.

A layer's class and options, not its name, decide its speed, so only one of equal layers is timed.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from operator import methodcaller
from statistics import median
from typing import Any

import torch
from torch import nn

from ..errors import first_line
from ..measure import timed_ms
from ..model.formats import FLOATS, Range
from ..model.weights import float_dtype
from ..quantization import QuantizedLayer, obstacle, quantized_layer
from ..records import Alternative, Hardware
from ..workload import Options
from .operators import Operators

logger = logging.getLogger(__name__)

SECONDS = 3.0
ROUNDS = 5
MAX_SHARE = 0.95  # of the time of the layers that could be timed: the rest is too small to matter
MIN_RATE_RATIO = 1.3  # a format is tried if the hardware computes this much faster in it

Change = Callable[[Any], Any]  # applied to a module or a tensor


def try_alternatives(
    model: nn.Module,
    operators: Operators,
    own_ms: dict[str, float],
    machine: Hardware,
    device: torch.device,
) -> dict[str, tuple[Alternative, ...]]:
    """Time the steps that could help on the costliest layers, for a few seconds at most; those
    without weights run on `device`.
    """
    if isinstance(model, torch.jit.ScriptModule):  # its layers are compiled and do not run alone
        return {}
    groups = _equal_layers(model, operators)
    spent = {key: sum(own_ms.get(layer, 0.0) for layer in layers) for key, layers in groups.items()}
    alternatives: dict[str, tuple[Alternative, ...]] = {}
    until, covered = time.perf_counter() + SECONDS, 0.0
    for key in sorted(groups, key=lambda key: -spent[key]):
        if time.perf_counter() > until or covered > MAX_SHARE * sum(spent.values()):
            break
        covered += spent[key]
        layers = groups[key]
        module, shape = model.get_submodule(layers[0]), operators.input_shapes[layers[0]][0]
        alternatives |= dict.fromkeys(layers, tuple(_tried(module, shape, machine, device)))
    return alternatives


def _tried(
    module: nn.Module, shape: tuple[int, ...], machine: Hardware, device: torch.device
) -> Iterator[Alternative]:
    """The result of each step on a layer; none for a layer that does not run alone."""
    device = next((weight.device for weight in module.parameters()), device)
    for step, change in _trials(machine, module, is_image=len(shape) == 4):
        try:
            here_ms, there_ms = _times(module, shape, change, device)
            yield Alternative(step=step, here_ms=here_ms, there_ms=there_ms)
        except Exception as error:
            logger.info(
                "%s was not tried alone with %s: %s",
                type(module).__name__,
                step,
                first_line(error),
            )


def _trials(
    machine: Hardware, module: nn.Module, *, is_image: bool
) -> Iterator[tuple[Options, Change]]:
    """Steps that could help a layer, each with its change of the layer and of the layer's input."""
    if is_image:
        yield {"layout": {}}, methodcaller("to", memory_format=torch.channels_last)
    if float_dtype(module) != torch.float32:
        return
    if (half := half_format(machine)) is not None:
        yield {"precision": {"default": half}}, methodcaller("to", FLOATS[half])
    if is_faster_in(machine, "int8") and obstacle(module, "int8") is None:
        yield {"precision": {"default": "int8"}}, _in_int8


def half_format(machine: Hardware) -> str | None:
    """The 16-bit format that is much faster here than fp32, if there is one."""
    return next((name for name in ("bf16", "fp16") if is_faster_in(machine, name)), None)


def is_faster_in(machine: Hardware, name: str) -> bool:
    """Whether the hardware computes much faster in a format than in fp32."""
    return (machine.target.rate(name) or 0.0) > MIN_RATE_RATIO * machine.target.fp32_gflops


def _in_int8(subject: Any) -> Any:
    """A layer in int8 for inputs from 0 to 1; it quantizes its input itself, so inputs stay."""
    is_layer = isinstance(subject, nn.Module)
    return quantized_layer(subject, "int8", Range(0.0, 1.0)) if is_layer else subject


def _equal_layers(model: nn.Module, operators: Operators) -> dict[str, list[str]]:
    """Layers that a change of layout or dtype can affect, grouped by kind, options and input."""
    groups: dict[str, list[str]] = defaultdict(list)
    for layer, shapes in operators.input_shapes.items():
        module = model.get_submodule(layer)
        # a quantized layer's format is chosen, and its operators have their own layout
        if len(shapes) != 1 or isinstance(module, QuantizedLayer):
            continue
        is_image = len(shapes[0]) == 4 and layer not in operators.channels_last
        is_leaf = not any(module.children())
        is_spatial = is_image and is_leaf and _is_spatial(operators.of_layer(layer))
        if is_spatial or isinstance(module, nn.Linear):
            groups[f"{module} {shapes} {float_dtype(module)}"].append(layer)
    return groups


def _is_spatial(operators: list[str]) -> bool:
    return any(
        part in name
        for name in operators
        for part in ("conv", "pool", "batch_norm", "group_norm", "upsample")
    )


def _times(
    module: nn.Module, shape: tuple[int, ...], change: Change, device: torch.device
) -> tuple[float, float]:
    """Median times of the layer as it is and changed, call after call in turn."""
    here = copy.deepcopy(module).eval()
    x = torch.rand(shape, device=device, dtype=float_dtype(module))
    there, y = change(copy.deepcopy(here)), change(x)
    taken: dict[bool, list[float]] = {False: [], True: []}
    with torch.no_grad():
        for _ in range(ROUNDS + 1):
            for is_changed, call in ((False, lambda: here(x)), (True, lambda: there(y))):
                taken[is_changed].append(timed_ms(call, device))
    return median(taken[False][1:]), median(taken[True][1:])

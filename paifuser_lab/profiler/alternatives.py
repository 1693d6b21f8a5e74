"""What a step would do to a layer: the layer alone, on inputs of its shape, as it is and changed,
timed in turn.

A layer's class and options, not its name, decide its speed, so that of equal layers one is tried.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import methodcaller
from statistics import median
from typing import Any

import torch
from torch import nn

from ..errors import first_line
from ..formats import Range
from ..measure import timed_ms
from ..quantization import QuantizedLayer, obstacle, quantized_layer
from ..records import Alternative, Hardware
from .operators import Operators

logger = logging.getLogger(__name__)

SECONDS = 3.0
ROUNDS = 5
SHARE = 0.95  # of the time of the layers that could be tried: the rest is too small to matter
WORTH = 1.3  # a dtype is tried where the hardware computes this much faster in it

Change = Callable[[Any], Any]  # of a module or a tensor


@dataclass(frozen=True)
class Trial:
    """A step, and what it does to one layer and to the layer's input."""

    step: dict[str, dict[str, Any]]
    change: Change


def try_alternatives(
    model: nn.Module, seen: Operators, own_ms: dict[str, float], machine: Hardware
) -> dict[str, tuple[Alternative, ...]]:
    """Try the steps that could help on the layers that take most time, for a few seconds at
    most.
    """
    if isinstance(model, torch.jit.ScriptModule):  # its layers are compiled and do not run alone
        return {}
    groups = _equal_layers(model, seen)
    spent = {key: sum(own_ms.get(layer, 0.0) for layer in layers) for key, layers in groups.items()}
    found: dict[str, tuple[Alternative, ...]] = {}
    until, covered = time.perf_counter() + SECONDS, 0.0
    for key in sorted(groups, key=lambda one: -spent[one]):
        if time.perf_counter() > until or covered > SHARE * sum(spent.values()):
            break
        covered += spent[key]
        layers = groups[key]
        tried = tuple(_tried(model.get_submodule(layers[0]), seen.given[layers[0]][0], machine))
        found |= dict.fromkeys(layers, tried)
    return found


def _tried(module: nn.Module, shape: tuple[int, ...], machine: Hardware) -> Iterator[Alternative]:
    """What each step does to a layer; nothing is known of one that does not run alone, for want of
    another argument perhaps.
    """
    for trial in _trials(machine, module, is_image=len(shape) == 4):
        try:
            yield _try(module, shape, trial)
        except Exception as error:
            logger.info(
                "%s was not tried alone with %s: %s",
                type(module).__name__,
                trial.step,
                first_line(error),
            )


def _trials(machine: Hardware, module: nn.Module, *, is_image: bool) -> Iterator[Trial]:
    """What could help a layer that is in fp32 or, already in 16 bits, only another layout."""
    target, now = machine.target, _dtype(module)
    halves = (
        ("bf16", torch.bfloat16, target.bf16_gflops),
        ("fp16", torch.float16, target.fp16_gflops),
    )
    faster = [
        (name, dtype)
        for name, dtype, rate in halves
        if rate and rate > WORTH * target.fp32_gflops and now == torch.float32
    ]
    if is_image:
        yield Trial({"layout": {}}, methodcaller("to", memory_format=torch.channels_last))
    yield from (
        Trial({"precision": {"default": name}}, methodcaller("to", dtype))
        for name, dtype in faster[:1]
    )
    is_worth = (target.int8_gops or 0.0) > WORTH * target.fp32_gflops and now == torch.float32
    if is_worth and obstacle(module, "int8") is None:
        yield Trial({"precision": {"default": "int8"}}, _in_int8)


def _in_int8(one: Any) -> Any:
    """A layer in int8, for inputs from 0 to 1; it rounds them itself."""
    return quantized_layer(one, "int8", Range(0.0, 1.0)) if isinstance(one, nn.Module) else one


def _equal_layers(model: nn.Module, seen: Operators) -> dict[str, list[str]]:
    """The layers that a change of layout or of dtype can matter to, those of equal kind,
    options and input together.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for layer, shapes in seen.given.items():
        module = model.get_submodule(layer)
        if isinstance(
            module, QuantizedLayer
        ):  # its format is chosen, and its operators have an order of their own
            continue
        is_image = len(shapes) == 1 and len(shapes[0]) == 4 and layer not in seen.channels_last
        is_spatial = is_image and not any(module.children()) and _is_spatial(seen.of_layer(layer))
        if is_spatial or (len(shapes) == 1 and isinstance(module, nn.Linear)):
            groups[f"{module} {shapes} {_dtype(module)}"].append(layer)
    return groups


def _is_spatial(operators: list[str]) -> bool:
    return any(
        part in name
        for name in operators
        for part in ("conv", "pool", "batch_norm", "group_norm", "upsample")
    )


def _try(module: nn.Module, shape: tuple[int, ...], trial: Trial) -> Alternative:
    """Median times of the layer as it is and changed, call after call in turn."""
    device = next((weight.device for weight in module.parameters()), torch.device("cpu"))
    here, x = copy.deepcopy(module).eval(), torch.rand(shape, device=device, dtype=_dtype(module))
    there, y = trial.change(copy.deepcopy(here)), trial.change(x)
    taken: dict[bool, list[float]] = {False: [], True: []}
    with torch.no_grad():
        for _ in range(ROUNDS + 1):
            for is_changed, call in ((False, lambda: here(x)), (True, lambda: there(y))):
                taken[is_changed].append(timed_ms(call, device))
    return Alternative(
        step=trial.step, here_ms=median(taken[False][1:]), there_ms=median(taken[True][1:])
    )


def _dtype(module: nn.Module) -> torch.dtype:
    return next(
        (weight.dtype for weight in module.parameters() if weight.is_floating_point()),
        torch.float32,
    )

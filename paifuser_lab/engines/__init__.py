"""What can answer calls in a model's stead: the model itself, Inductor, ONNX Runtime, OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from torch import nn

from ..workload import Inputs
from .engine import Engine

__all__ = ["Engine", "available_engines", "build_engine", "engine_names"]


def _eager(module: nn.Module, inputs: Inputs, count: int, *, freeze: bool) -> Engine:
    return Engine(module, count)


def _inductor(module: nn.Module, inputs: Inputs, count: int, *, freeze: bool) -> Engine:
    from .inductor import Inductor

    return Inductor(module, inputs, count, freeze=freeze)


def _onnxruntime(module: nn.Module, inputs: Inputs, count: int, *, freeze: bool) -> Engine:
    from .onnxruntime import OnnxRuntime

    return OnnxRuntime(module, inputs, count)


def _openvino(module: nn.Module, inputs: Inputs, count: int, *, freeze: bool) -> Engine:
    from .openvino import OpenVino

    return OpenVino(module, inputs, count)


ENGINES: dict[str, tuple[Callable[..., Engine], str]] = {
    "eager": (_eager, "torch"),
    "inductor": (_inductor, "torch"),
    "onnxruntime": (_onnxruntime, "onnxruntime"),
    "openvino": (_openvino, "openvino"),
}


def engine_names() -> tuple[str, ...]:
    """Every engine there is."""
    return tuple(ENGINES)


def available_engines() -> tuple[str, ...]:
    """The engines whose package is installed here."""
    return tuple(name for name, (_, package) in ENGINES.items() if find_spec(package) is not None)


def build_engine(name: str, module: nn.Module, inputs: Inputs, count: int, *, freeze: bool = False) -> Engine:
    """Make an engine for a model and the inputs it is first called with."""
    return ENGINES[name][0](module, inputs, count, freeze=freeze)

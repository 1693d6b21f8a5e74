"""Engines that run a model in place of eager torch. A new engine is one file and one line here.

`threads` chooses the number of threads that a workload is measured with.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import nn

from ..workload import Inputs
from .engine import Enclosed, Engine
from .nodes import EngineNode, NodeRecorder

__all__ = [
    "Enclosed",
    "Engine",
    "EngineNode",
    "NodeRecorder",
    "available_engines",
    "build_engine",
    "engine_names",
]

# name in a recipe → the engine's class, and the package that it needs
ENGINES = {
    "eager": (".engine:Engine", "torch"),
    "replay": (".replay:Replay", "torch"),
    "inductor": (".inductor:Inductor", "torch"),
    "onnxruntime": (".onnxruntime:OnnxRuntime", "onnxruntime"),
    "openvino": (".openvino:OpenVino", "openvino"),
}


def engine_names() -> tuple[str, ...]:
    """The names of all engines."""
    return tuple(ENGINES)


def available_engines() -> tuple[str, ...]:
    """The engines whose package is installed here."""
    return tuple(name for name, (_, package) in ENGINES.items() if find_spec(package) is not None)


def build_engine(
    name: str, module: nn.Module, inputs: Inputs, count: int, **options: Any
) -> Engine:
    """Build an engine for a model and example inputs, running with `count` threads."""
    file, _, kind = ENGINES[name][0].partition(":")
    engine: Engine = getattr(import_module(file, __name__), kind)(module, inputs, count, **options)
    return engine

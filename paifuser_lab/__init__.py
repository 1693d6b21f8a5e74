"""PAIFuser Lab: see where a PyTorch model spends its time, change it, measure the effect at once,
undo it, replay it.

    import paifuser_lab as lab

    work = lab.load("resnet18")           # or lab.Workload(model, inputs)
    recipe = lab.Recipe(["fold", {"backend": {"name": "onnxruntime"}}])
    variant = lab.apply(work, recipe)     # a changed copy; variant.model is called like work.model
    lab.compare(work, variant)            # timed in turn against the baseline
    variant.save("mine")
    lab.load("mine")                      # the same model, loaded from that folder
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# otherwise torch's profiler, which measures memory, writes to the terminal at each call
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
# ONNX Runtime otherwise reports to its maker which models it runs
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from .errors import PaifuserError
from .machine import hardware
from .records import Comparison, Hardware, Importance, Measurement, Profile, Record, Sensitivity
from .variant import Variant, apply
from .variant.comparison import compare, compare_settings
from .variant.history import history
from .variant.load import models
from .variant.open import load
from .variant.recipe import Recipe
from .workload import Workload

if TYPE_CHECKING:
    from .accelerate.features import (
        disable,
        disable_adaptive_lr,
        disable_data_parallelism,
        disable_graph_optimization,
        disable_memory_pool,
        disable_memory_reuse,
        disable_model_quantization,
        disable_operator_fusion,
        enable,
        enable_adaptive_lr,
        enable_data_parallelism,
        enable_graph_optimization,
        enable_memory_pool,
        enable_memory_reuse,
        enable_model_quantization,
        enable_operator_fusion,
        status,
    )
    from .attention import attention_cost
    from .converter import ONNXConverter, export, exporters
    from .deployment import deploy
    from .fusion import fusions
    from .memory import fits
    from .memory.pools import memory_pool
    from .memory.snapshots import memory_snapshot
    from .parallel.train import train
    from .planner import plan
    from .planner.searching import search
    from .profiler import profile
    from .profiler.compared import explain
    from .pruning.targets import staircase
    from .saliency import importance, sensitivity
    from .training.find_rate import find_rate
    from .variant.generation import compare_generation
    from .variant.quantize import quantize_model
    from .variant.recipe import gradually
    from .variant.speculation import speculate
    from .views import figure
    from .views.report import report
    from .widgets import TrainingMonitor, Workbench, show

__version__ = "0.2.0"

__all__ = [
    "Comparison",
    "Hardware",
    "Importance",
    "Measurement",
    "ONNXConverter",
    "PaifuserError",
    "Profile",
    "Recipe",
    "Record",
    "Sensitivity",
    "TrainingMonitor",
    "Variant",
    "Workbench",
    "Workload",
    "apply",
    "attention_cost",
    "compare",
    "compare_generation",
    "compare_settings",
    "deploy",
    "disable",
    "disable_adaptive_lr",
    "disable_data_parallelism",
    "disable_graph_optimization",
    "disable_memory_pool",
    "disable_memory_reuse",
    "disable_model_quantization",
    "disable_operator_fusion",
    "enable",
    "enable_adaptive_lr",
    "enable_data_parallelism",
    "enable_graph_optimization",
    "enable_memory_pool",
    "enable_memory_reuse",
    "enable_model_quantization",
    "enable_operator_fusion",
    "explain",
    "export",
    "exporters",
    "figure",
    "find_rate",
    "fits",
    "fusions",
    "gradually",
    "hardware",
    "history",
    "importance",
    "load",
    "memory_pool",
    "memory_snapshot",
    "models",
    "plan",
    "profile",
    "quantize_model",
    "report",
    "search",
    "sensitivity",
    "show",
    "speculate",
    "staircase",
    "status",
    "train",
]

_LAZY = {
    **{name: "accelerate.features" for name in __all__ if name.startswith(("enable", "disable"))},
    "attention_cost": "attention",
    "compare_generation": "variant.generation",
    "deploy": "deployment",
    "explain": "profiler.compared",
    "export": "converter",
    "exporters": "converter",
    "figure": "views",
    "find_rate": "training.find_rate",
    "fits": "memory",
    "fusions": "fusion",
    "gradually": "variant.recipe",
    "importance": "saliency",
    "memory_pool": "memory.pools",
    "memory_snapshot": "memory.snapshots",
    "plan": "planner",
    "report": "views.report",
    "search": "planner.searching",
    "profile": "profiler",
    "quantize_model": "variant.quantize",
    "sensitivity": "saliency",
    "ONNXConverter": "converter",
    "TrainingMonitor": "widgets",
    "Workbench": "widgets",
    "show": "widgets",
    "speculate": "variant.speculation",
    "staircase": "pruning.targets",
    "status": "accelerate.features",
    "train": "parallel.train",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'paifuser_lab' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f".{_LAZY[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

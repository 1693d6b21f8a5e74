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

from .comparison import compare
from .errors import PaifuserError
from .machine import hardware
from .recipe import Recipe
from .records import Comparison, Hardware, Importance, Measurement, Profile, Record, Sensitivity
from .variant import Variant, apply
from .variant.open import load
from .workload import Workload
from .workload.load import models

if TYPE_CHECKING:
    from .attention import attention_cost
    from .figures import figure
    from .fusion import fusions
    from .memory import fits
    from .memory.pools import memory_pool
    from .planner import plan
    from .profiler import profile
    from .pruning.targets import staircase
    from .recipe.rounds import gradually
    from .saliency import importance, sensitivity
    from .variant.quantize import quantize_model
    from .widgets import Workbench, show

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Hardware",
    "Importance",
    "Measurement",
    "PaifuserError",
    "Profile",
    "Recipe",
    "Record",
    "Sensitivity",
    "Variant",
    "Workbench",
    "Workload",
    "apply",
    "attention_cost",
    "compare",
    "figure",
    "fits",
    "fusions",
    "gradually",
    "hardware",
    "importance",
    "load",
    "memory_pool",
    "models",
    "plan",
    "profile",
    "quantize_model",
    "sensitivity",
    "show",
    "staircase",
]

_LAZY = {
    "attention_cost": "attention",
    "figure": "figures",
    "fits": "memory",
    "fusions": "fusion",
    "gradually": "recipe.rounds",
    "importance": "saliency",
    "memory_pool": "memory.pools",
    "plan": "planner",
    "profile": "profiler",
    "quantize_model": "variant.quantize",
    "sensitivity": "saliency",
    "Workbench": "widgets",
    "show": "widgets",
    "staircase": "pruning.targets",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'paifuser_lab' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f".{_LAZY[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

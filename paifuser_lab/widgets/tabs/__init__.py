"""The sections of the workbench, in the order of its tabs. Each file declares one `Section`. To add
one: a file here, its name below, and its folder of ES modules in `widgets/`.
"""

from importlib import import_module

from ..section import register

BUILT_IN = (
    "layers",
    "sensitivity",
    "allocation",
    "importance",
    "coupling",
    "fusion",
    "attention",
    "memory",
    "memory_fit",
    "memory_pool",
    "memory_plan",
    "memory_snapshot",
    "roofline",
    "call_timeline",
    "comparison",
    "results",
    "curve",
    "side_by_side",
    "explanation",
    "hardware",
    "faster",
    "training",
    "acceleration",
    "exports",
    "engine_settings",
    "stream",
    "graph",
    "generation",
)

for _name in BUILT_IN:
    register(import_module(f".{_name}", __name__).SECTION)

"""What was measured: frozen, typed results that save, load, draw and travel. No torch in here.

A record is a pydantic model; `save` and `load` go through JSON with the record's name and version in it. One file a subject.
"""

from __future__ import annotations

from .allocation import Achieved, Agreement, Allocation, AllocationPoint
from .batch_sweep import BatchRow, BatchSweep
from .checklist import Check, Checklist
from .comparison import Comparison, Measurement, StepReport
from .coupling import ChannelGroup, Coupling, Member
from .explanation import Basis, Explanation, Reason
from .hardware import Accelerator, Ceiling, Hardware
from .importance import Importance, LayerImportance
from .latency_table import ConversionLatency, LatencyTable, LayerLatency
from .limit import Limit
from .memory import Held, MemoryTimeline
from .profile import Alternative, Kernel, LayerProfile, OperatorProfile, Point, Profile, Roofline
from .record import Record
from .sensitivity import Curvature, Estimate, LayerSensitivity, Method, Sensitivity
from .side_by_side import LayerPair, SideBySide
from .text import counted, readable_bytes, readable_count
from .trace import TracedCopy, TracedKernel, TracedLayer, TracedOperator, TraceSummary

__all__ = [
    "Accelerator",
    "Achieved",
    "Agreement",
    "Allocation",
    "AllocationPoint",
    "Alternative",
    "Basis",
    "BatchRow",
    "BatchSweep",
    "Ceiling",
    "ChannelGroup",
    "Check",
    "Checklist",
    "Comparison",
    "ConversionLatency",
    "Coupling",
    "Curvature",
    "Estimate",
    "Explanation",
    "Hardware",
    "Held",
    "Importance",
    "Kernel",
    "LatencyTable",
    "LayerImportance",
    "LayerLatency",
    "LayerPair",
    "LayerProfile",
    "LayerSensitivity",
    "Limit",
    "Measurement",
    "Member",
    "MemoryTimeline",
    "Method",
    "OperatorProfile",
    "Point",
    "Profile",
    "Reason",
    "Record",
    "Roofline",
    "Sensitivity",
    "SideBySide",
    "StepReport",
    "TraceSummary",
    "TracedCopy",
    "TracedKernel",
    "TracedLayer",
    "TracedOperator",
    "counted",
    "readable_bytes",
    "readable_count",
]

"""What was measured: frozen, typed results that save, load, draw and travel. No torch in here.

A record is a pydantic model; `save` and `load` go through JSON with the record's name and version
in it. One file a subject.
"""

from __future__ import annotations

from .allocation import Achieved, Agreement, Allocation, AllocationPoint
from .attention_cost import AttentionCost, AttentionKind, AttentionLayer
from .batch_sweep import BatchRow, BatchSweep
from .checklist import Check, Checklist
from .comparison import Comparison, Limit, Measurement, StepReport
from .coupling import ChannelGroup, Coupling, Member
from .cut_cost import CutCost, CutLayer, CutWeights, Foretold, Length
from .explanation import Basis, Explanation, Reason
from .fusion_map import Fusion, FusionMap
from .hardware import Accelerator, Ceiling, Hardware
from .importance import Importance, LayerImportance
from .latency_table import ConversionLatency, LatencyTable, LayerLatency
from .layer_profile import Alternative, Kernel, LayerProfile, OperatorProfile
from .memory import Held, MemoryTimeline
from .profile import Point, Profile, Roofline
from .record import Record
from .saved_model import Manifest, Origin, SavedModel, SavedStep, Sketch
from .sensitivity import Curvature, Estimate, LayerSensitivity, Method, Sensitivity
from .side_by_side import LayerPair, SideBySide
from .staircase import Staircase, StaircaseTable, WholeLatency
from .sweep import Sweep, SweepRun, Value
from .text import counted, readable_bytes, readable_count, readable_share
from .trace import TracedCopy, TracedKernel, TracedLayer, TracedOperator, TraceSummary
from .trade_off import Bargain, TradeOff

__all__ = [
    "Accelerator",
    "Achieved",
    "Agreement",
    "Allocation",
    "AllocationPoint",
    "Alternative",
    "AttentionCost",
    "AttentionKind",
    "AttentionLayer",
    "Bargain",
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
    "CutCost",
    "CutLayer",
    "CutWeights",
    "Estimate",
    "Explanation",
    "Foretold",
    "Fusion",
    "FusionMap",
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
    "Length",
    "Limit",
    "Manifest",
    "Measurement",
    "Member",
    "MemoryTimeline",
    "Method",
    "OperatorProfile",
    "Origin",
    "Point",
    "Profile",
    "Reason",
    "Record",
    "Roofline",
    "SavedModel",
    "SavedStep",
    "Sensitivity",
    "SideBySide",
    "Sketch",
    "Staircase",
    "StaircaseTable",
    "StepReport",
    "Sweep",
    "SweepRun",
    "TraceSummary",
    "TracedCopy",
    "TracedKernel",
    "TracedLayer",
    "TracedOperator",
    "TradeOff",
    "Value",
    "WholeLatency",
    "counted",
    "readable_bytes",
    "readable_count",
    "readable_share",
]

"""Records: frozen, typed results of measurements that can be saved, loaded and drawn. Independent
of torch.

A record is a pydantic model; `save` and `load` use JSON with the record's name and version in it.
One module per subject:

record           the base classes: frozen, saved and loaded as JSON, read as a table
text             readable numbers, text tables and HTML tables, shared by all
hardware         what a machine can do: processor, accelerators, measured ceilings
quality          how quiet the machine was, and the verdict that this allows
profile          a model's time, memory and bytes by layer, as text and HTML; its roofline
profile_tree     the layers of a profile as a tree, each with its operators and kernels
explanation      why a layer is not faster, the performance checklist, two profiles side by side
trace            the summary of a trace of torch's profiler
memory           the memory that one call holds at each moment; its buffers in one arena
memory_pool      what a memory pool holds and keeps, and the page faults that it spares
memory_snapshot  a snapshot of memory: timeline, segments, replay, why memory ran out
predicted_peak   the predicted peak of a call or training step by category; whether it fits
batching         latency, throughput and memory by batch size; dynamic batching
comparison       a baseline and its variants, timed in turn; metric against latency and size
results          everything tried in a session: a row per recipe, two of them compared
candidates       what a search for a faster model tried, ranked, each with its reason
sweep            the runs of a parameter sweep
allocation       a format for each layer under a budget; latencies of single layers
sensitivity      the error of each layer in each format; a score for each channel
channels         which channels are pruned together, and what fewer of them cost
fusion_map       which layers run fused, and why others do not
attention_cost   error and latency of sparse attention
acceleration     the switches of an accelerated training loop; a function and its faster form
training_run     a training: formats and checkpoints as planned, losses and gradients by step
parallel         a training on several processes: plan, ranks, pipeline, divided blocks
saved_model      the manifest of a saved variant; how a picture becomes a model's input
export           what an export wrote, what each target does here, a deploy folder
stream           what a stream did: speed, latency, workers, what went wrong
"""

from __future__ import annotations

from .acceleration import (
    AccelerationStatus,
    FasterFunctionReport,
    SwitchState,
    SwitchStatus,
)
from .allocation import (
    Achieved,
    Agreement,
    Allocation,
    AllocationPoint,
    ConversionLatency,
    LatencyTable,
    LayerLatency,
)
from .attention_cost import AttentionCost, AttentionKind, AttentionLayer
from .batching import BatchingCurve, BatchingPoint, BatchRow, BatchSweep
from .candidates import Candidate, Candidates, CandidateStatus, SearchGoal
from .channels import (
    ChannelGroup,
    Coupling,
    CutCost,
    CutLayer,
    CutWeights,
    Foretold,
    Length,
    Member,
    Staircase,
    StaircaseTable,
    WholeLatency,
)
from .comparison import Bargain, Comparison, Limit, Measurement, StepReport, TradeOff
from .explanation import Basis, Check, Checklist, Explanation, LayerPair, Reason, SideBySide
from .export import DeployedFile, Deployment, ExporterRow, Exporters, ExportReport, LayerDifference
from .fusion_map import Fusion, FusionMap
from .hardware import Accelerator, Ceiling, Hardware
from .memory import Held, MemoryPlan, MemoryTimeline, PackedBuffer, PackingMethod
from .memory_pool import MemoryPoolUse, PoolCalls
from .memory_snapshot import (
    LayerMemory,
    MemorySnapshot,
    OutOfMemory,
    Remedy,
    Replay,
    ReplayRow,
    SiteMemory,
    SnapshotMap,
)
from .parallel import (
    Link,
    ParallelOption,
    ParallelPlan,
    ParallelReport,
    PipelineSchedule,
    PipelineSlot,
    PipelineStageLayers,
    TensorBlock,
    TensorPlan,
)
from .predicted_peak import Fit, FitRemedy, PeakBytes, PredictedPeak, StepOptions
from .profile import Point, Profile, Roofline
from .profile_tree import ENGINE_ROW, Alternative, Kernel, LayerProfile, OperatorProfile
from .quality import BusyProcess, Quality, Verdict, verdict
from .record import Record
from .results import ResultPair, ResultRow, Results
from .saved_model import ImagePreprocessing, Manifest, Origin, SavedModel, SavedStep, Sketch
from .sensitivity import (
    Curvature,
    Estimate,
    Importance,
    LayerImportance,
    LayerSensitivity,
    Method,
    Sensitivity,
)
from .stream import Latency, SetAside, StreamEvent, StreamNode, StreamReport
from .sweep import Sweep, SweepRun, Value
from .text import counted, readable_bytes, readable_count, readable_share
from .trace import TracedCopy, TracedKernel, TracedLayer, TracedOperator, TraceSummary
from .training_run import (
    CheckpointedBlock,
    CheckpointPlan,
    GradientRange,
    LayerTrainingFormat,
    RateCurve,
    TrainingEvent,
    TrainingFormats,
    TrainingRun,
    TrainingStepTime,
)

__all__ = [
    "ENGINE_ROW",
    "AccelerationStatus",
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
    "BatchingCurve",
    "BatchingPoint",
    "BusyProcess",
    "Candidate",
    "CandidateStatus",
    "Candidates",
    "Ceiling",
    "ChannelGroup",
    "Check",
    "Checklist",
    "CheckpointPlan",
    "CheckpointedBlock",
    "Comparison",
    "ConversionLatency",
    "Coupling",
    "Curvature",
    "CutCost",
    "CutLayer",
    "CutWeights",
    "DeployedFile",
    "Deployment",
    "Estimate",
    "Explanation",
    "ExportReport",
    "ExporterRow",
    "Exporters",
    "FasterFunctionReport",
    "Fit",
    "FitRemedy",
    "Foretold",
    "Fusion",
    "FusionMap",
    "GradientRange",
    "Hardware",
    "Held",
    "ImagePreprocessing",
    "Importance",
    "Kernel",
    "Latency",
    "LatencyTable",
    "LayerDifference",
    "LayerImportance",
    "LayerLatency",
    "LayerMemory",
    "LayerPair",
    "LayerProfile",
    "LayerSensitivity",
    "LayerTrainingFormat",
    "Length",
    "Limit",
    "Link",
    "Manifest",
    "Measurement",
    "Member",
    "MemoryPlan",
    "MemoryPoolUse",
    "MemorySnapshot",
    "MemoryTimeline",
    "Method",
    "OperatorProfile",
    "Origin",
    "OutOfMemory",
    "PackedBuffer",
    "PackingMethod",
    "ParallelOption",
    "ParallelPlan",
    "ParallelReport",
    "PeakBytes",
    "PipelineSchedule",
    "PipelineSlot",
    "PipelineStageLayers",
    "Point",
    "PoolCalls",
    "PredictedPeak",
    "Profile",
    "Quality",
    "RateCurve",
    "Reason",
    "Record",
    "Remedy",
    "Replay",
    "ReplayRow",
    "ResultPair",
    "ResultRow",
    "Results",
    "Roofline",
    "SavedModel",
    "SavedStep",
    "SearchGoal",
    "Sensitivity",
    "SetAside",
    "SideBySide",
    "SiteMemory",
    "Sketch",
    "SnapshotMap",
    "Staircase",
    "StaircaseTable",
    "StepOptions",
    "StepReport",
    "StreamEvent",
    "StreamNode",
    "StreamReport",
    "Sweep",
    "SweepRun",
    "SwitchState",
    "SwitchStatus",
    "TensorBlock",
    "TensorPlan",
    "TraceSummary",
    "TracedCopy",
    "TracedKernel",
    "TracedLayer",
    "TracedOperator",
    "TradeOff",
    "TrainingEvent",
    "TrainingFormats",
    "TrainingRun",
    "TrainingStepTime",
    "Value",
    "Verdict",
    "WholeLatency",
    "counted",
    "readable_bytes",
    "readable_count",
    "readable_share",
    "verdict",
]

"""Records: frozen, typed results of measurements that can be saved, loaded and drawn. Independent
of torch.

A record is a pydantic model; `save` and `load` use JSON with the record's name and version in it.
One module per subject:

record           the base class: frozen, saved and loaded as JSON
table            the base class of records that are read as a table
text             readable numbers, text tables and HTML tables, shared by all
image_preprocessing  how a picture becomes a model's input; the names of its classes
workload_name    which workload a record is about: its name, and within a process its key
hardware         what a machine can do: processor, accelerators, measured ceilings
profile          a model's time, memory and bytes by layer; its roofline
layer_profile    one layer of a profile, its operators and kernels
profile_tree     the layers of a profile as a tree: children, parents, walks
profile_text     a profile as a text table
profile_html     a profile as a folding HTML tree
candidates       what a search for a faster model tried, ranked, each with its reason
explanation      why a layer is not faster: reasons, steps that would help, savings
side_by_side     two profiles of one model, matched layer by layer
memory           the memory that one call holds at each moment, by layer
memory_snapshot  a snapshot of memory: timeline, segment maps, who held the peak
replay           recorded requests under other allocator settings; why memory ran out
memory_plan      buffers packed into one arena, against what torch held
memory_pool      what a memory pool holds and keeps, and the page faults that it spares
predicted_peak   the predicted peak of a call or training step by category; whether it fits
training_plan    a format for each layer of a training; blocks to checkpoint
training_run     a training step by step: losses, rates, gradients; the curve of a rate finder
parallel_report  what a rank of a parallel training sent, waited for and computed
trace            the summary of a trace of torch's profiler
batch_sweep      latency, throughput and memory by batch size
checklist        the performance checklist: what passed, what failed, the remedy
comparison       a baseline and its variants, timed in turn; the limit of their loss of quality
quality          how quiet the machine was, and the verdict that this allows
results          everything tried in a session: a row per recipe, two of them compared
trade_off        metric against latency and size of each variant
sensitivity      the error of each layer in each format: predicted and measured
importance       a score for each channel of each layer
allocation       a format for each layer under a budget, and the Pareto frontier
latency_table    latencies of single layers in each format, kept between runs
coupling         which channels of which layers are pruned together
cut_cost         parameters, FLOPs and latency predicted for fewer channels
staircase        latency by number of channels, on one machine
fusion_map       which layers run fused, and why others do not
attention_cost   error and latency of sparse attention
sweep            the runs of a parameter sweep
saved_model      the manifest of a saved variant
parallel_plan    how fast each way to train on several processes would be
pipeline_schedule  which layers a pipeline's stages have, and when they compute
tensor_plan      which blocks of a model are divided among processes
export           what an export wrote, its parity and latency; what each target does here
deployment       a deploy folder: its targets, files and hashes; the first differing layer
acceleration     the switches of an accelerated training loop; a function and its faster form
batching_curve   latency against throughput of dynamic batching
stream           what a stream did: speed, latency, workers, what went wrong
"""

from __future__ import annotations

from .acceleration import (
    AccelerationStatus,
    FasterFunctionReport,
    SwitchState,
    SwitchStatus,
)
from .allocation import Achieved, Agreement, Allocation, AllocationPoint
from .attention_cost import AttentionCost, AttentionKind, AttentionLayer
from .batch_sweep import BatchRow, BatchSweep
from .batching_curve import BatchingCurve, BatchingPoint
from .candidates import Candidate, Candidates, CandidateStatus, SearchGoal
from .checklist import Check, Checklist
from .comparison import Comparison, Limit, Measurement, StepReport
from .coupling import ChannelGroup, Coupling, Member
from .cut_cost import CutCost, CutLayer, CutWeights, Foretold, Length
from .deployment import DeployedFile, Deployment, LayerDifference
from .explanation import Basis, Explanation, Reason
from .export import ExporterRow, Exporters, ExportReport
from .fusion_map import Fusion, FusionMap
from .hardware import Accelerator, Ceiling, Hardware
from .image_preprocessing import ImagePreprocessing
from .importance import Importance, LayerImportance
from .latency_table import ConversionLatency, LatencyTable, LayerLatency
from .layer_profile import ENGINE_ROW, Alternative, Kernel, LayerProfile, OperatorProfile
from .memory import Held, MemoryTimeline
from .memory_plan import MemoryPlan, PackedBuffer, PackingMethod
from .memory_pool import MemoryPoolUse, PoolCalls
from .memory_snapshot import LayerMemory, MemorySnapshot, SiteMemory, SnapshotMap
from .parallel_plan import Link, ParallelOption, ParallelPlan
from .parallel_report import ParallelReport
from .pipeline_schedule import PipelineSchedule, PipelineSlot, PipelineStageLayers
from .predicted_peak import Fit, FitRemedy, PeakBytes, PredictedPeak, StepOptions
from .profile import Point, Profile, Roofline
from .quality import BusyProcess, Quality, Verdict, verdict
from .record import Record
from .replay import OutOfMemory, Remedy, Replay, ReplayRow
from .results import ResultPair, ResultRow, Results
from .saved_model import Manifest, Origin, SavedModel, SavedStep, Sketch
from .sensitivity import Curvature, Estimate, LayerSensitivity, Method, Sensitivity
from .side_by_side import LayerPair, SideBySide
from .staircase import Staircase, StaircaseTable, WholeLatency
from .stream import Latency, SetAside, StreamEvent, StreamNode, StreamReport
from .sweep import Sweep, SweepRun, Value
from .tensor_plan import TensorBlock, TensorPlan
from .text import counted, readable_bytes, readable_count, readable_share
from .trace import TracedCopy, TracedKernel, TracedLayer, TracedOperator, TraceSummary
from .trade_off import Bargain, TradeOff
from .training_plan import (
    CheckpointedBlock,
    CheckpointPlan,
    LayerTrainingFormat,
    TrainingFormats,
    TrainingStepTime,
)
from .training_run import GradientRange, RateCurve, TrainingEvent, TrainingRun

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

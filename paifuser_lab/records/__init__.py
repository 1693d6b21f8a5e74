"""Records: frozen, typed results of measurements that can be saved, loaded and drawn. Independent
of torch.

A record is a pydantic model; `save` and `load` use JSON with the record's name and version in it.
One module per subject:

record           the base classes: frozen, saved and loaded as JSON, read as a table
overlay          figures of layers as node data for Model Explorer
table            a table of texts, for a terminal, a notebook and the page
text             readable numbers, text tables and HTML tables, shared by all
hardware         what a machine can do: processor, accelerators, measured ceilings
quality          how quiet the machine was, and the verdict that this allows
profile          a model's time, memory and bytes by layer, as text and HTML; its roofline
profile_tree     the layers of a profile as a tree, each with its operators and kernels
call_timeline    one call along time: its layers and operators, thread by thread
explanation      why a layer is not faster, the performance checklist, two profiles side by side
trace            the summary of a trace of torch's profiler
memory           the memory that one call holds at each moment; its buffers in one arena
memory_pool      what a memory pool holds and keeps, and the page faults that it spares
memory_snapshot  a snapshot of memory: timeline, segments, replay, why memory ran out
predicted_peak   the predicted peak of a call or training step by category; whether it fits
batching         latency, throughput and memory by batch size; dynamic batching
comparison       a baseline and its variants, timed in turn; metric against latency and size
results          everything tried in a session, two rows compared; the runs of a parameter sweep
candidates       what a search for a faster model tried, ranked, each with its reason
allocation       a format for each layer under a budget; latencies of single layers
sensitivity      the error of each layer in each format; a score for each channel
channels         which channels are pruned together, and what fewer of them cost
generation       text that a model and its variants generate, in one runtime or several
speculation      a draft's tokens that a model accepts, and the speed-up
model_graph      operators and tensors of one call, with blocks folded
fusion_map       which layers run fused, and why others do not
attention_cost   error and latency of sparse attention
acceleration     the switches of an accelerated training loop; a function and its faster form
training_run     a training: formats and checkpoints as planned, losses and gradients by step
parallel         a training on several processes: plan, ranks, pipeline, divided blocks
saved_model      the manifest of a saved variant; how a picture becomes a model's input
export           what an export wrote, what each target does here, a deploy folder
stream           what a stream did: speed, latency, workers, what went wrong
"""

from .acceleration import AccelerationStatus as AccelerationStatus
from .acceleration import FasterFunctionReport as FasterFunctionReport
from .acceleration import SwitchState as SwitchState
from .acceleration import SwitchStatus as SwitchStatus
from .allocation import Achieved as Achieved
from .allocation import Agreement as Agreement
from .allocation import Allocation as Allocation
from .allocation import AllocationPoint as AllocationPoint
from .allocation import ConversionLatency as ConversionLatency
from .allocation import LatencyTable as LatencyTable
from .allocation import LayerLatency as LayerLatency
from .attention_cost import AttentionCost as AttentionCost
from .attention_cost import AttentionKind as AttentionKind
from .attention_cost import AttentionLayer as AttentionLayer
from .batching import BatchingCurve as BatchingCurve
from .batching import BatchingPoint as BatchingPoint
from .batching import BatchRow as BatchRow
from .batching import BatchSweep as BatchSweep
from .call_timeline import CallTimeline as CallTimeline
from .candidates import Candidate as Candidate
from .candidates import Candidates as Candidates
from .candidates import CandidateStatus as CandidateStatus
from .candidates import SearchGoal as SearchGoal
from .channels import ChannelGroup as ChannelGroup
from .channels import Coupling as Coupling
from .channels import CutCost as CutCost
from .channels import CutLayer as CutLayer
from .channels import CutWeights as CutWeights
from .channels import Foretold as Foretold
from .channels import Length as Length
from .channels import Member as Member
from .channels import Staircase as Staircase
from .channels import StaircaseTable as StaircaseTable
from .channels import WholeLatency as WholeLatency
from .comparison import Bargain as Bargain
from .comparison import Comparison as Comparison
from .comparison import Limit as Limit
from .comparison import Measurement as Measurement
from .comparison import StepReport as StepReport
from .comparison import TradeOff as TradeOff
from .explanation import Basis as Basis
from .explanation import Check as Check
from .explanation import Checklist as Checklist
from .explanation import Explanation as Explanation
from .explanation import LayerPair as LayerPair
from .explanation import Reason as Reason
from .explanation import SideBySide as SideBySide
from .export import DeployedFile as DeployedFile
from .export import Deployment as Deployment
from .export import ExporterRow as ExporterRow
from .export import Exporters as Exporters
from .export import ExportReport as ExportReport
from .export import LayerDifference as LayerDifference
from .fusion_map import Fusion as Fusion
from .fusion_map import FusionMap as FusionMap
from .generation import GenerationComparison as GenerationComparison
from .generation import GenerationRow as GenerationRow
from .generation import Phase as Phase
from .hardware import Accelerator as Accelerator
from .hardware import Ceiling as Ceiling
from .hardware import Hardware as Hardware
from .memory import Held as Held
from .memory import MemoryPlan as MemoryPlan
from .memory import MemoryTimeline as MemoryTimeline
from .memory import PackedBuffer as PackedBuffer
from .memory import PackingMethod as PackingMethod
from .memory_pool import MemoryPoolUse as MemoryPoolUse
from .memory_pool import PoolCalls as PoolCalls
from .memory_snapshot import LayerMemory as LayerMemory
from .memory_snapshot import MemorySnapshot as MemorySnapshot
from .memory_snapshot import OutOfMemory as OutOfMemory
from .memory_snapshot import Remedy as Remedy
from .memory_snapshot import Replay as Replay
from .memory_snapshot import ReplayRow as ReplayRow
from .memory_snapshot import SiteMemory as SiteMemory
from .memory_snapshot import SnapshotMap as SnapshotMap
from .model_graph import GraphEdge as GraphEdge
from .model_graph import GraphNode as GraphNode
from .model_graph import GraphOperator as GraphOperator
from .model_graph import GraphTensor as GraphTensor
from .model_graph import ModelGraph as ModelGraph
from .parallel import Link as Link
from .parallel import ParallelOption as ParallelOption
from .parallel import ParallelPlan as ParallelPlan
from .parallel import ParallelReport as ParallelReport
from .parallel import PipelineSchedule as PipelineSchedule
from .parallel import PipelineSlot as PipelineSlot
from .parallel import PipelineStageLayers as PipelineStageLayers
from .parallel import TensorBlock as TensorBlock
from .parallel import TensorPlan as TensorPlan
from .predicted_peak import Fit as Fit
from .predicted_peak import FitRemedy as FitRemedy
from .predicted_peak import PeakBytes as PeakBytes
from .predicted_peak import PredictedPeak as PredictedPeak
from .predicted_peak import StepOptions as StepOptions
from .profile import Point as Point
from .profile import Profile as Profile
from .profile import Roofline as Roofline
from .profile_tree import ENGINE_ROW as ENGINE_ROW
from .profile_tree import Alternative as Alternative
from .profile_tree import Kernel as Kernel
from .profile_tree import LayerProfile as LayerProfile
from .profile_tree import OperatorProfile as OperatorProfile
from .quality import BusyProcess as BusyProcess
from .quality import Quality as Quality
from .quality import Verdict as Verdict
from .quality import verdict as verdict
from .record import Record as Record
from .results import ResultPair as ResultPair
from .results import ResultRow as ResultRow
from .results import Results as Results
from .results import Sweep as Sweep
from .results import SweepRun as SweepRun
from .results import Value as Value
from .saved_model import ImagePreprocessing as ImagePreprocessing
from .saved_model import Manifest as Manifest
from .saved_model import Origin as Origin
from .saved_model import SavedModel as SavedModel
from .saved_model import SavedStep as SavedStep
from .saved_model import Sketch as Sketch
from .sensitivity import Curvature as Curvature
from .sensitivity import Estimate as Estimate
from .sensitivity import Importance as Importance
from .sensitivity import LayerImportance as LayerImportance
from .sensitivity import LayerSensitivity as LayerSensitivity
from .sensitivity import Method as Method
from .sensitivity import Sensitivity as Sensitivity
from .speculation import Speculation as Speculation
from .speculation import SpeculationRow as SpeculationRow
from .stream import Latency as Latency
from .stream import SetAside as SetAside
from .stream import StreamEvent as StreamEvent
from .stream import StreamNode as StreamNode
from .stream import StreamReport as StreamReport
from .text import counted as counted
from .text import readable_bytes as readable_bytes
from .text import readable_count as readable_count
from .text import readable_ms as readable_ms
from .text import readable_share as readable_share
from .trace import TracedCopy as TracedCopy
from .trace import TracedKernel as TracedKernel
from .trace import TracedLayer as TracedLayer
from .trace import TracedOperator as TracedOperator
from .trace import TraceSummary as TraceSummary
from .training_run import CheckpointedBlock as CheckpointedBlock
from .training_run import CheckpointPlan as CheckpointPlan
from .training_run import GradientRange as GradientRange
from .training_run import LayerTrainingFormat as LayerTrainingFormat
from .training_run import RateCurve as RateCurve
from .training_run import TrainingEvent as TrainingEvent
from .training_run import TrainingFormats as TrainingFormats
from .training_run import TrainingRun as TrainingRun
from .training_run import TrainingStepTime as TrainingStepTime

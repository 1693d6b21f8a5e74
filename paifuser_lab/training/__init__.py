"""Training that can be interrupted at any step and resumed: one loop for distillation,
quantization-aware training and other objectives.
"""

from ..workload.data import Batch, Batches
from .loop import train
from .plan import Training
from .result import Trained
from .resume import CheckpointFile
from .run import Objective

__all__ = ["Batch", "Batches", "CheckpointFile", "Objective", "Trained", "Training", "train"]

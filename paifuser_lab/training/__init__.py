"""Training that can be stopped at any moment and goes on from there: one loop for distillation,
quantization-aware training or anything else.
"""

from ..workload.data import Batch, Batches
from .loop import train
from .plan import Training
from .result import Trained
from .resume import Kept
from .run import Objective

__all__ = ["Batch", "Batches", "Kept", "Objective", "Trained", "Training", "train"]

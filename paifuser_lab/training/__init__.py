"""Training that can be stopped at any moment and goes on from there: one loop for distillation, quantization-aware training or anything else."""

from .batches import Batch, Batches
from .kept import Kept
from .loop import train
from .plan import Training
from .run import Objective
from .trained import Trained

__all__ = ["Batch", "Batches", "Kept", "Objective", "Trained", "Training", "train"]

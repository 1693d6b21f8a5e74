"""Training that can be interrupted at any step and resumed: one loop for `lab.train`, distillation,
quantization-aware training and other objectives.

workloads          `lab.train`: a workload's model on its own data, with a record of every step
plan               the options
rates              learning rates: schedules, and reactions to the losses
find_rate          the loss while the rate rises, and the rate to train with
precision          formats by layer, and when a training leaves fp32
rounding           weights in bf16: stochastic rounding, Kahan summation
checkpointing      activations that are computed again in the backward pass
loop               the loop on a bare model
run                one training in progress
hooks              the objective and the caller's functions
course             the losses so far, what follows from them, and the result
history            what is recorded of each step
learner            the model with its optimizer and loss scale
observe            gradients' ranges, and the layer where a NaN began
resume             checkpoint files
fingerprints       what identifies a training of a recipe
tensorboard        a record as TensorBoard's logs
strided_pointwise  a workaround for oneDNN
distillation       losses between the original's outputs and the model's own
low_rank           additions of low rank to linear layers, trained in place of weights
"""

from ..workload.data import Batch, Batches
from .course import Trained
from .hooks import Objective
from .loop import train
from .plan import Training, TrainPlan
from .resume import CheckpointFile

__all__ = [
    "Batch",
    "Batches",
    "CheckpointFile",
    "Objective",
    "TrainPlan",
    "Trained",
    "Training",
    "train",
]

"""Plans of a training, for `lab.train`: a format for each layer within a budget of loss, and the
blocks to checkpoint within a memory limit.

    plan = plan_training_formats(work)
    lab.train(work, precision=plan.default, formats=plan.formats)
    lab.train(work, checkpointed=plan_checkpoints(work, "2 GB").layers)

formats      the formats, by predicted rise of the loss, gradient ranges and measured time
measured     gradients' sizes and times of layers; whole steps timed in turn
checkpoints  the blocks, by measured bytes and time, as an integer program
"""

from __future__ import annotations

from .checkpoints import plan_checkpoints
from .formats import plan_training_formats

__all__ = ["plan_checkpoints", "plan_training_formats"]

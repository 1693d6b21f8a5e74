"""How much each layer matters: what a number format of it would cost, predicted from the loss's
curvature, and measured; and how much each of its output channels does.

seen = lab.sensitivity(work)                                  # a row a layer, a column a format:
the predicted rise of the loss lab.sensitivity(work, methods=("quadratic", "ablation"))      # and
what was really measured, and how well the orders agree lab.sensitivity(work, resume=seen,
error=0.05)                # more certain, from where it was lab.importance(work, method="taylor")
# a value an output channel, with its error

    looking.py      the record, from what is asked for (asking.py, data.py, layers.py)
    judging.py      samples until the means are known (tally.py)
    methods/        the ways of judging, a file each
    curvature.py    slope and Hessian products; probes.py, ways.py: traces; lanczos.py: eigenvalues
    channels/       output channels, a way of judging a file
    subject.py      layers, batches, what rounding changes; stage.py: how a layer is changed for a
    moment
"""

from __future__ import annotations

from .channels import importance
from .estimate_layers import sensitivity

__all__ = ["importance", "sensitivity"]

"""How much each layer and each channel matters: what lower precision of a layer would cost, and how
important each of its output channels is.

* `lab.sensitivity(work)`: a row for each layer, a column for each format: the predicted rise of the
  loss from the loss's curvature; `methods=("quadratic", "ablation")` measures it as well, and says
  how well the two orders agree; `resume=record, error=0.05` continues a record until the
  standard error is that small.
* `lab.importance(work, method="taylor")`: a value for each output channel, with its standard error.
  The step `prune` cuts by the same values.

estimate_layers.py    the record of `sensitivity` (request.py, select_layers.py)
estimation.py         samples until the means are known well enough (running_mean.py)
methods/              the estimators of layers, a file each
curvature.py          gradients and Hessian products; probes.py, trace_estimators.py: traces;
                      lanczos.py: eigenvalues
estimate_channels.py  the record of `importance`; channel_run.py: an estimator over batches
channels/             the estimators of channels, a file each
subject.py            layers, batches, and what rounding changes; perturb.py: a layer changed for
                      the time of a run
"""

from __future__ import annotations

from .estimate_channels import importance
from .estimate_layers import sensitivity

__all__ = ["importance", "sensitivity"]

"""How much each layer and each channel matters: the predicted cost of lower precision in a layer,
and the importance of each of its output channels.

* `lab.sensitivity(work)`: a row for each layer, a column for each format: the predicted rise of the
  loss from the loss's curvature; `methods=("quadratic", "ablation")` also measures it, and reports
  how well the two orders agree; `resume=record, error=0.05` continues a record until the
  standard error is that small.
* `lab.importance(work, method="taylor")`: a value for each output channel, with its standard error.
  The step `prune` cuts by the same values.

estimate_layers.py    the record of `sensitivity`, and the rank correlation of each method with the
                      measured order
estimation.py         sampling until the means are known to the requested error
methods/              the estimators of layers
curvature.py          gradients and Hessian products; probes.py: traces
estimate_channels.py  the record of `importance`; channel_run.py: an estimator over batches
channels/             the estimators of channels
select_layers.py      the layers to estimate
subject.py            layers, batches, and temporary changes of a layer, such as rounding
"""

from .estimate_channels import importance
from .estimate_layers import sensitivity

__all__ = ["importance", "sensitivity"]

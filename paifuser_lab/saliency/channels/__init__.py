"""How much each output channel of each layer matters: the ways of judging by name. A new one is a
file here and a line in the registry.

finding.py      the record, from what is asked for; means over batches with their errors (means.py)
width.py        which dimension of a weight is its output channels, and what belongs to a channel
taylor.py       |g·w| added up over a channel; taylor2.py: with the curvature; fisher.py: its
square, example by example magnitude.py    the weights' length; batch_norm.py: the scale of the
batch-norm that follows activation.py   the mean size of what comes out; chance.py: the control
"""

from __future__ import annotations

from .estimate_channels import importance

__all__ = ["importance"]

"""Estimators of how much each output channel of a layer matters, by name: what `lab.importance`
shows and what the step `prune` cuts by.

taylor.py        |Σ g·w| of a channel: first order; taylor2.py: with the curvature
fisher.py        half its square, example by example
magnitude.py     the L2 norm of a channel's weights; batch_norm.py: the scale of the next batch-norm
activation.py    the mean absolute output of a channel; random_scores.py: the control
estimator.py     the base class of estimators
output_channels.py  which dimension of a weight is its output channels

A new estimator is one file here with a subclass of `ChannelEstimator` and one line in `_ALL` below;
the importance tab then shows it, and `prune: {importance: …}` accepts it.
"""

from __future__ import annotations

from .activation import Activation
from .batch_norm import BatchNormScale
from .estimator import ChannelEstimator
from .fisher import ChannelFisher
from .magnitude import Magnitude
from .random_scores import RandomScores
from .taylor import Taylor
from .taylor2 import Taylor2

__all__ = ["CHANNEL_ESTIMATORS", "ChannelEstimator"]

_ALL: tuple[type[ChannelEstimator], ...] = (
    Taylor,
    Taylor2,
    Magnitude,
    BatchNormScale,
    ChannelFisher,
    Activation,
    RandomScores,
)
CHANNEL_ESTIMATORS: dict[str, type[ChannelEstimator]] = {
    estimator.name: estimator for estimator in _ALL
}

"""Estimators of how much each output channel of a layer matters, by name: what `lab.importance`
shows and what the step `prune` cuts by.

gradients.py     |Σ g·w| of a channel: first order; with the curvature; half its square, example by
                 example
without_data.py  the L2 norm of a channel's weights, the scale of the next batch-norm, the control
activation.py    the mean absolute output of a channel
estimator.py     the base class of estimators
output_channels.py  which dimension of a weight is its output channels

A new estimator is a subclass of `ChannelEstimator` in a file here and one line in `_ALL` below; the
importance tab then shows it, and `prune: {importance: …}` accepts it.
"""

from __future__ import annotations

from .activation import Activation
from .estimator import ChannelEstimator
from .gradients import ChannelFisher, Taylor, Taylor2
from .without_data import BatchNormScale, Magnitude, RandomScores

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

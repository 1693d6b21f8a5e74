"""Which widths a model is to have so that so much of its parameters, FLOPs or latency is left.

families.py    layers that take the same at the same widths, and a call of one with any number of
channels measuring.py   their staircases: from the cache, or measured now steadiness.py  timings
that can be compared with each other whole.py       what a whole model takes, as it was, as it is,
and narrow latency.py     what a model takes by the widths of its groups, from staircases and three
runs of the whole target.py      the widths for a share of the original telling.py     what was
predicted beside what was achieved showing.py     a layer's staircase, to be looked at
"""

from __future__ import annotations

from .prediction import told
from .staircase_view import staircase, stairs
from .target import Aim, Aimed, Goal, Ways, aimed, fewest_units

__all__ = ["Aim", "Aimed", "Goal", "Ways", "aimed", "fewest_units", "staircase", "stairs", "told"]

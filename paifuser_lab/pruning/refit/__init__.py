"""What makes up for what was taken from a model: the layers that are left answer again as before,
as nearly as they can.

It takes neither labels nor gradients.

doing.py          which repairs there are, and doing them one after the other; one that gains
nothing is undone samples.py        the examples that a repair learns from, and those that it is
judged by least_squares.py  new weights for the layers that lost inputs, or are given others lost.py
which layers those are, and what they answered before sums.py           what least squares need of
the examples, and the weights that follow; pure arithmetic norms.py          the statistics of
batch-norms, measured again scene.py          the model before and after the cut, and what a repair
may know
"""

from __future__ import annotations

from ...workload.data import samples_of
from .shrunk_layers import lost_layers, products
from .techniques import REPAIRS, Repair, chosen_repairs, mend

__all__ = ["REPAIRS", "Repair", "chosen_repairs", "lost_layers", "mend", "products", "samples_of"]

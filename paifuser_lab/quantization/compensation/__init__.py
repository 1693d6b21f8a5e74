"""What makes up for the error of rounding: each technique works on the scene before layers are put
in place, and says what it did.

doing.py       which techniques there are, and doing them one after the other
equalise.py    channels of neighbouring layers rescaled to the same range
smooth.py      outliers moved from what a layer norm gives into the weights that read it
rounding.py    weights rounded so that the layer's answer changes least
curvature.py   how much a layer's answer changes with its weights, and the rounding that follows
multiplied.py  what a layer multiplies its weights by
bias.py        the mean error of each output channel taken out
scene.py       the float model, the layers to be, and what techniques may change of both
reading.py     what layers are given and answer on the calibration data
readers.py     which layers alone read what a layer makes
"""

from __future__ import annotations

from .context import Scene
from .techniques import TECHNIQUES, Technique, compensate

__all__ = ["TECHNIQUES", "Scene", "Technique", "compensate"]

"""The ways of judging, by name. A new one is a file here and a line in the registry.

quadratic.py    g·δ + ½ δᵀHδ along the real change; also of the weights, the inputs, or the bend
alone trace.py        mean curvature times the length of the change fisher.py       squared
gradients in the curvature's place spectrum.py     eigenvalues of each layer's curvature, and their
density: no scores, but in the record ablation.py     the loss really measured: what the others are
held against divergence.py   how far probabilities move; output.py: how far the answer moves:
without labels
"""

from __future__ import annotations

from .ablation import Ablation
from .divergence import Divergence
from .estimator import Judge
from .fisher import Fisher, SampledFisher
from .output import Output
from .quadratic import Quadratic, QuadraticCurvature, QuadraticInputs, QuadraticWeights
from .spectrum import Density, Eigenvalues
from .trace import Trace

__all__ = ["JUDGES", "Judge"]

_ALL: tuple[type[Judge], ...] = (
    Quadratic,
    QuadraticWeights,
    QuadraticInputs,
    QuadraticCurvature,
    Trace,
    Fisher,
    SampledFisher,
    Eigenvalues,
    Density,
    Ablation,
    Divergence,
    Output,
)
JUDGES: dict[str, type[Judge]] = {judge.name: judge for judge in _ALL}

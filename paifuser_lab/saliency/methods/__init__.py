"""Estimators of what a format costs a layer, by name. A new estimator is a subclass in a file here
and a line in the registry.

quadratic.py  g·δ + ½ δᵀHδ along the actual change; also of the curvature alone
trace.py      mean curvature times the squared norm of the change
fisher.py     squared gradients in place of the curvature
spectrum.py   eigenvalues of each layer's curvature, and their density: recorded, not scored
measured.py   the loss: the reference for the others; without labels the output's error, and the KL
              divergence of the probabilities
"""

from __future__ import annotations

from .estimator import Estimator
from .fisher import Fisher
from .measured import Ablation, Divergence, Output
from .quadratic import Quadratic, QuadraticCurvature
from .spectrum import Density, Eigenvalues
from .trace import Trace

__all__ = ["ESTIMATORS", "Estimator"]

_ALL: tuple[type[Estimator], ...] = (
    Quadratic,
    QuadraticCurvature,
    Trace,
    Fisher,
    Eigenvalues,
    Density,
    Ablation,
    Divergence,
    Output,
)
ESTIMATORS: dict[str, type[Estimator]] = {estimator.name: estimator for estimator in _ALL}

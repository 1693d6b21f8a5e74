"""Estimators of what a format costs a layer, by name. A new estimator is a file here and a line in
the registry.

quadratic.py   g·δ + ½ δᵀHδ along the actual change; also of the curvature alone
trace.py       mean curvature times the squared norm of the change
fisher.py      squared gradients in place of the curvature
spectrum.py    eigenvalues of each layer's curvature, and their density: recorded, not scored
ablation.py    the loss, measured: the reference for the others
divergence.py  KL divergence of the probabilities; output.py: error of the output, without labels
"""

from __future__ import annotations

from .ablation import Ablation
from .divergence import Divergence
from .estimator import Estimator
from .fisher import Fisher
from .output import Output
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

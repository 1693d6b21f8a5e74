"""Refit a model after a cut: fit the remaining layers to the outputs of before the cut.

Needs neither labels nor gradients.

techniques.py     the refits by name, applied in turn; one that gains nothing is undone
least_squares.py  new weights for the layers that lost inputs, from sums over rows
shrunk_layers.py  which layers those are, their outputs before the cut, and what a refit may use
"""

from .shrunk_layers import products, shrunk_layers
from .techniques import Repair, refit_model, repairs_for

__all__ = [
    "Repair",
    "products",
    "refit_model",
    "repairs_for",
    "shrunk_layers",
]

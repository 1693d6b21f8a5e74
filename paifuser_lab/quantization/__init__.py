"""Layers whose weights, and where they compute in int8 also what they are given, are whole numbers:
built one at a time, in eager mode.

tensor.py         values that stay in int8 between layers
int8.py           convolution and linear on oneDNN's operators
saturation.py     the same where a processor adds int8 products in 16 bits
on_gpu.py         the same in this project's CUDA kernels
fp8.py            linear layers that multiply in floating point of eight bits
weights_only.py   few bits at rest, plain arithmetic
int4_linear.py    four bits in torch's packed operator, for few rows
onnx_int4.py      four bits in an ONNX file
int4_notes.py     which layers of four bits do which
calibration.py    the range of what a layer is given
neighbours.py     which layer hands its answer on in int8
sums/             sums and concatenations of what is in int8
building.py       which formats a layer can have, and the layer that has one
compensation/     what makes up for the error of rounding
choosing.py       the layers that can, of those that are wanted
learning/         layers that are rounded while they learn
remembering.py    the same layers in a fresh model, without data
"""

from __future__ import annotations

from .calibration import How, calibrate
from .compensation import Technique
from .conversion import counting
from .factory import obstacle, quantized_layer
from .layers.int4_notes import int4_notes
from .layers.int8 import Int8Layer, Outlet
from .layers.layer import QuantizedLayer
from .layers.saturation import saturates
from .layers.tensor import Int8Tensor
from .layers.weights_only import stored_for_onnx
from .neighbours import outlets
from .place_layers import Calibration, place, place_weights, reasons_against, seen
from .remembered import norms_of, place_again, remembered_of
from .select import nothing_to_round, possible, possible_unseen

__all__ = [
    "Calibration",
    "How",
    "Int8Layer",
    "Int8Tensor",
    "Outlet",
    "QuantizedLayer",
    "Technique",
    "calibrate",
    "counting",
    "int4_notes",
    "norms_of",
    "nothing_to_round",
    "obstacle",
    "outlets",
    "place",
    "place_again",
    "place_weights",
    "possible",
    "possible_unseen",
    "quantized_layer",
    "reasons_against",
    "remembered_of",
    "saturates",
    "seen",
    "stored_for_onnx",
]

"""Layers in lower precision that run in eager mode: built, calibrated, compensated, trained.

float_formats  parts of a model in bf16 or fp16, cast at their boundary; autocast
calibration    the range of each layer's input
conversion     float values to uint8 and back, and the count of such conversions
factory        which formats a layer supports, and the layer in a format
layers/        the quantized layers: int8, fp8, int8-weights, int4-weights
neighbours     which layers pass their output on in int8
residuals      sums and concatenations in int8
compensation/  techniques that reduce the error of rounding
quantize       the layers that can be quantized, and quantized layers put into a model
qat/           quantization-aware training
onnx_file      an ONNX file that runs as it is, by ONNX Runtime's own tool
remembered     the same layers restored in a new model, without data
"""

from __future__ import annotations

from .calibration import How, calibrate
from .compensation import Technique
from .conversion import count_conversions
from .factory import obstacle, quantized_layer
from .layers.int4_notes import int4_notes
from .layers.int8 import Int8Layer, Requantization
from .layers.layer import QuantizedLayer
from .layers.tensor import Int8Tensor
from .layers.weights_only import stored_for_onnx
from .neighbours import handovers, requantizations
from .quantize import (
    Calibration,
    Sums,
    no_layer_message,
    obstacles_of,
    quantize_layers,
    quantize_weights,
    supported_formats,
    supported_without_data,
    trace_graph,
)
from .remembered import norms_of, reduce_ranges, remembered_of, restore_layers, roundings_of

__all__ = [
    "Calibration",
    "How",
    "Int8Layer",
    "Int8Tensor",
    "QuantizedLayer",
    "Requantization",
    "Sums",
    "Technique",
    "calibrate",
    "count_conversions",
    "handovers",
    "int4_notes",
    "no_layer_message",
    "norms_of",
    "obstacle",
    "obstacles_of",
    "quantize_layers",
    "quantize_weights",
    "quantized_layer",
    "reduce_ranges",
    "remembered_of",
    "requantizations",
    "restore_layers",
    "roundings_of",
    "stored_for_onnx",
    "supported_formats",
    "supported_without_data",
    "trace_graph",
]

"""The layers in lower precision: each computes in eager mode as the runtimes do, and exposes its
weights as data.

layer         the base class: integer weights, scales, bias
tensor        a tensor that stays in int8 between layers
int8          convolution and linear layers on oneDNN's operators
on_gpu        the same in this project's CUDA kernels, or by torch's integer product
fp8           linear layers that multiply in fp8
weights_only  weights in lower precision, float arithmetic
int4          int4 weights: in torch's packed operator, in an ONNX file, two per byte
int4_notes    notes on which int4 layers use which of these
"""

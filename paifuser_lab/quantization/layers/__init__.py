"""The layers in lower precision: each computes live as the runtimes do, and gives its weights as
data.

layer         what all of them share: integer weights, scales, bias
tensor        a tensor that stays in int8 between layers
int8          convolution and linear on oneDNN's operators
saturation    the same where a processor adds int8 products in 16 bits
on_gpu        the same in this project's CUDA kernels, or by torch's integer product
fp8           linear layers that multiply in fp8
weights_only  weights in lower precision, float arithmetic
int4          int4 weights: in torch's packed operator, in an ONNX file, two a byte
int4_notes    which int4 layers run on which of these
"""

"""All kernels; a new one is a line here, beside its CUDA source, Python file and test."""

from __future__ import annotations

from . import (
    block_sparse_attention,
    depthwise,
    depthwise_int8,
    pointwise,
    pointwise_int8,
    window_attention,
)
from .operators import register

KERNELS = {
    kernel.name: kernel
    for kernel in (
        block_sparse_attention.KERNEL,
        depthwise.KERNEL,
        depthwise_int8.KERNEL,
        pointwise.KERNEL,
        pointwise_int8.KERNEL,
        window_attention.KERNEL,
    )
}

for _kernel in KERNELS.values():
    register(_kernel)

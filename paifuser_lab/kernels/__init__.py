"""CUDA kernels as torch operators; on a CPU, and for inputs that a kernel declines, torch computes.

One file per kernel: what is fused, its lower bound in time, the same computation composed in torch,
and how it is launched. The CUDA source is `kernels/<the same name>.cu`. Importing this package
registers each of `KERNELS` as an operator `torch.ops.paifuser.<name>`.

window_attention        Swin's window attention in one pass
depthwise               depthwise convolution with bias, activation and residual
pointwise               linear layer or 1×1 convolution, likewise
depthwise_int8          depthwise convolution on int8
pointwise_int8          linear layer or 1×1 convolution on int8
block_sparse_attention  attention to listed blocks of keys

kernel                  `Kernel`: schema, tile, launch and the checks that all kernels share
operators               registers a kernel with torch: fake tensors, gradients, fallback
quantized               the int8 kernels' quantization parameters, arguments and rounding
activation              the activations that a kernel can apply
block_choice            which blocks of keys are attended to, and the resulting error
block_gather            attention to listed blocks, composed of torch operators
tiles                   the tile sizes that a source takes, and which were measured to be best
tuning                  the search for the best tile
runners                 which runner launches on a type of device: CuPy on a GPU
driver                  the CUDA version that the driver runs, and the packages for it
compile                 an entry compiled for an architecture, and its machine code cached
nvrtc                   NVIDIA's run-time compiler
disassembly             the instructions in machine code, and how often a warp runs them
"""

from . import (
    block_sparse_attention,
    depthwise,
    depthwise_int8,
    pointwise,
    pointwise_int8,
    window_attention,
)
from .block_choice import choose_blocks, errors_by_density
from .block_sparse_attention import attend_to_blocks
from .depthwise import convolve_depthwise
from .depthwise_int8 import convolve_depthwise_int8
from .operators import register
from .pointwise import convolve_pointwise, project
from .pointwise_int8 import project_int8
from .quantized import QuantParams
from .window_attention import attend_windows

__all__ = [
    "KERNELS",
    "QuantParams",
    "attend_to_blocks",
    "attend_windows",
    "choose_blocks",
    "convolve_depthwise",
    "convolve_depthwise_int8",
    "convolve_pointwise",
    "errors_by_density",
    "project",
    "project_int8",
]

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

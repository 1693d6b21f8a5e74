"""CUDA kernels as operators of torch; on a CPU, and where a kernel does not take what it is given,
torch does their work.

registry          every kernel; importing it makes them operators `torch.ops.paifuser.*`
window_attention  Swin's attention in one pass          } each: what is fused, its floor, the same
composed in torch, depthwise         depthwise convolution with what follows }     and how it is
launched; the source is kernels/<the same>.cu pointwise         linear layer or 1×1 convolution,
likewise } depthwise_int8, pointwise_int8  the same two on whole numbers of eight bits steps
what those whole numbers stand for block_sparse_attention  attention to listed blocks of keys  }
choosing          which blocks of keys those are, and what error that makes activation        what
may follow a sum kernel            what a kernel is to the rest tiles             in which ways a
kernel's work can be cut cutting           which of them a launch takes tuned             which of
them was measured to be best on a device tuning            how that is found operators         an
operator of torch: fake tensors, gradients by recomputing, the fallback said once launch
what is handed to a kernel, and who runs it driver            which CUDA the driver knows, and what
is to be installed for it cupy_runner       CuPy on a GPU: torch's stream, torch's memory cubins
machine code kept between runs, checked before it is believed compile           a source and the
headers that it includes, for an architecture nvrtc             NVIDIA's run-time compiler resources
registers, spills, and the time that instructions alone take
"""

from .block_choice import choose_blocks, errors_by_density
from .block_sparse_attention import attend_to_blocks
from .depthwise import convolve_depthwise
from .depthwise_int8 import convolve_depthwise_int8
from .pointwise import convolve_pointwise, project
from .pointwise_int8 import project_int8
from .registry import KERNELS
from .steps import Steps
from .window_attention import attend_windows

__all__ = [
    "KERNELS",
    "Steps",
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

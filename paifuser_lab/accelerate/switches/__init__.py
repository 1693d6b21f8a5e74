"""The switches of an accelerated training loop, a file each.

base                what they have in common; the parts of a loop; what leaves a model's call
precision           bf16 or fp16 by autocast, in fp16 with scaled gradients
channels_last       images in channels-last
fused_optimizer     the update as one kernel
memory_pool         freed memory kept for the next request
checkpointing       activations computed again, where the peak is above a limit
memory_reuse        activation layers that write into their input, where that is proven exact
threads             one thread, or one a core
compiled            Inductor, aside in a thread
adaptive_lr         a learning rate that reacts to the losses
model_quantization  weights trained as int8 will hold them
data_parallelism    gradients or weights averaged over several processes

A new switch is a subclass of `Switch` in a file of its own and a line in `SWITCHES`, in the order
in which calls are wrapped, the innermost first; `lab.enable()` has an option for each that it turns
on. It says by itself which feature turns it on, when it can be offered, how it prepares while the
loop runs, and whether it recovers from a failed call.
"""

from __future__ import annotations

from .adaptive_lr import AdaptiveRate
from .base import Parts, Switch
from .channels_last import ChannelsLast
from .checkpointing import Checkpointing
from .compiled import Compiled
from .data_parallelism import DataParallelism
from .fused_optimizer import FusedOptimizer
from .memory_pool import MemoryPool
from .memory_reuse import MemoryReuse
from .model_quantization import ModelQuantization
from .precision import Precision
from .threads import Threads

SWITCHES: dict[str, type[Switch]] = {
    kind.name: kind
    for kind in (
        Compiled,
        ModelQuantization,
        Precision,
        ChannelsLast,
        FusedOptimizer,
        MemoryPool,
        MemoryReuse,
        Checkpointing,
        Threads,
        AdaptiveRate,
        DataParallelism,
    )
}

__all__ = ["SWITCHES", "Parts", "Switch"]

"""Several processes that train one model: started, kept equal, counted and restarted; or a model
divided among them. Built on torch.distributed; gloo on a CPU, NCCL on GPUs.

launch           `run`: a function in several processes of this machine, from a notebook or a script
worker           what each of these processes executes
group            this process as one of several: under `run`, under torchrun, or alone
ray_cluster      a function in several processes of a Ray cluster
torchrun         a script in several processes, here or on Kubernetes, started again when one dies
strategy         `DataParallel`: a training loop in several processes, with its loop as it is
averaging        weights averaged every so many steps, or gradients in each
exchange         means over ranks, compressed and counted
train            `lab.train`, in one process or in several
sharded          weights, gradients and optimizer state divided, by torch's FSDP2
loaders          each example once, in as many steps on each rank; examples in shared memory
checkpoints      saved by all ranks, verified before it is read
tensor           `tensor_parallel`: attention and MLP blocks, or one linear layer, divided
tensor_blocks    which linear layers of a model form such blocks
pipelines        `pipeline`: each process has a stage of the layers
chain            a model as parts that run one after another, and what each costs
schedules        the split into stages; GPipe and 1F1B, simulated
plans            `plan`: which strategy would be fastest here, over the measured link
simulation       steps on many processes, simulated
simulated_link   exchanges delayed as by a slower link
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import Checkpoints as Checkpoints
    from .group import Group as Group
    from .group import join as join
    from .group import tell as tell
    from .launch import run as run
    from .pipelines import pipeline as pipeline
    from .plans import plan as plan
    from .ray_cluster import run_on_ray as run_on_ray
    from .strategy import DataParallel as DataParallel
    from .tensor import ColumnParallelLinear as ColumnParallelLinear
    from .tensor import RowParallelLinear as RowParallelLinear
    from .tensor import tensor_parallel as tensor_parallel
    from .tensor import tensor_plan as tensor_plan
    from .torchrun import train_job as train_job

_LAZY = {  # torch's FSDP takes a second to import, which a worker may not need
    "Checkpoints": "checkpoints",
    "ColumnParallelLinear": "tensor",
    "DataParallel": "strategy",
    "Group": "group",
    "RowParallelLinear": "tensor",
    "join": "group",
    "pipeline": "pipelines",
    "plan": "plans",
    "run": "launch",
    "run_on_ray": "ray_cluster",
    "tell": "group",
    "tensor_parallel": "tensor",
    "tensor_plan": "tensor",
    "train_job": "torchrun",
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'paifuser_lab.parallel' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f".{_LAZY[name]}", __name__), name)

"""Several processes that train one model: started, kept equal, counted and restarted; or a model
divided among them. Built on torch.distributed; gloo on a CPU, NCCL on GPUs.

launch           `run`: a function in several processes of this machine, from a notebook or a script
worker           what each of these processes executes
group            this process as one of several: under `run`, under torchrun, or alone
ray_cluster      a function in several processes of a Ray cluster
kubeflow         the manifest of a script under torchrun on Kubernetes, checked offline
torchrun         a script in several processes, started again when one dies
strategy         `DataParallel`: a training loop in several processes, with its loop as it is
agreement        what all ranks have to agree on before the first step
exchange         means over ranks, compressed and counted
local_steps      weights averaged every so many steps
every_step       gradients averaged in each step, by torch's DistributedDataParallel
gradients        gradients averaged for loops that are not wrapped, such as that of `lab.train`
train            `lab.train`, in one process or in several
sharded          weights, gradients and optimizer state divided, by torch's FSDP2
sampler          each example once, in as many steps on each rank
checkpoints      saved by all ranks, verified before it is read
manifest         the hashes of a checkpoint's files, and a reader that executes nothing
shared_examples  a data set in memory that all ranks read
tensor           `tensor_parallel`: attention and MLP blocks divided among processes
tensor_blocks    which linear layers of a model form such blocks
tensor_layers    linear layers of which each process has columns or rows
pipelines        `pipeline`: each process has a stage of the layers
chain            a model as parts that run one after another, and what each costs
partition        the split into stages whose slowest is quickest
schedules        GPipe and 1F1B, simulated
plans            `plan`: which strategy would be fastest here
link             the link between processes, measured
simulation       steps on many processes, simulated
simulated_link   exchanges counted, and delayed as a slower link would
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import Checkpoints
    from .group import Group, join, tell
    from .kubeflow import train_job
    from .launch import run
    from .pipelines import pipeline
    from .plans import plan
    from .ray_cluster import run_on_ray
    from .strategy import DataParallel
    from .tensor import tensor_parallel, tensor_plan
    from .tensor_layers import ColumnParallelLinear, RowParallelLinear

__all__ = [
    "Checkpoints",
    "ColumnParallelLinear",
    "DataParallel",
    "Group",
    "RowParallelLinear",
    "join",
    "pipeline",
    "plan",
    "run",
    "run_on_ray",
    "tell",
    "tensor_parallel",
    "tensor_plan",
    "train_job",
]

_LAZY = {  # torch's FSDP takes a second to import, which a worker may not need
    "Checkpoints": "checkpoints",
    "ColumnParallelLinear": "tensor_layers",
    "DataParallel": "strategy",
    "Group": "group",
    "RowParallelLinear": "tensor_layers",
    "join": "group",
    "pipeline": "pipelines",
    "plan": "plans",
    "run": "launch",
    "run_on_ray": "ray_cluster",
    "tell": "group",
    "tensor_parallel": "tensor",
    "tensor_plan": "tensor",
    "train_job": "kubeflow",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'paifuser_lab.parallel' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f".{_LAZY[name]}", __name__), name)

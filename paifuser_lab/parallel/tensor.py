"""Tensor parallelism: every attention and MLP block of a model divided among processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ..errors import ParallelError
from ..model.copying import copied
from ..records import TensorBlock, TensorPlan
from ..workload import Inputs, Workload
from .tensor_blocks import Block, Division, apply_integers, blocks_of, divide
from .tensor_layers import ColumnParallelLinear, RowParallelLinear


def tensor_plan(work: Workload, processes: int) -> TensorPlan:
    """Which blocks of a workload's model are divided among so many processes, and why others stay
    whole. Nothing is changed, and no process is started.
    """
    return _divisions(work.model, work.inputs, processes, work.name)[0]


def tensor_parallel(work: Workload, mesh: DeviceMesh | None = None) -> TensorParallel:
    """Divide the blocks of a workload's model, in place, among the processes of a mesh.

    Each process calls it alike, gives every batch to the model as a whole, and steps its optimizer
    over the model's parameters; outputs and gradients are those of the whole model.
    """
    if not dist.is_initialized():
        raise ParallelError(
            "tensor_parallel needs several processes; call it in a function that parallel.run "
            "starts."
        )
    mesh = mesh or init_device_mesh(work.device.type, (dist.get_world_size(),))
    plan, divisions = _divisions(work.model, work.inputs, mesh.size(), work.name)
    if not divisions:
        raise ParallelError(
            f"{work.name} has no block that can be divided among {mesh.size()} processes: "
            f"{plan.reason}."
        )
    for division in divisions:
        _divide(work.model, division, mesh)
    return TensorParallel(work.model, plan, divisions)


class TensorParallel:
    """A model whose blocks are divided: `whole_model` puts them together again."""

    def __init__(self, model: nn.Module, plan: TensorPlan, divisions: list[Division]) -> None:
        self.model, self.plan = model, plan
        self._divisions = divisions

    def whole_model(self) -> nn.Module:
        """A copy of the model with whole layers; every process takes part and gets it."""
        whole = {
            name: self.model.get_submodule(name).whole()  # type: ignore[operator]
            for division in self._divisions
            for name in division.block.layers
        }
        kept = {name: self.model.get_submodule(name) for name in whole}
        try:
            for name, layer in whole.items():
                self.model.set_submodule(name, layer)
            model = copied(self.model)
        finally:
            for name, layer in kept.items():
                self.model.set_submodule(name, layer)
        for division in self._divisions:
            for layer_name, name in division.attributes:
                module = model.get_submodule(layer_name)
                world = self.plan.processes
                setattr(module, name, getattr(module, name) * world)
        return model.train(self.model.training)


def _divisions(
    model: nn.Module, inputs: Inputs, world: int, name: str
) -> tuple[TensorPlan, list[Division]]:
    if world < 1:
        raise ParallelError(f"processes={world} is not possible; give 1 or more.")
    rows, divisions = [], []
    blocks = blocks_of(model, inputs)
    for block, division in zip(blocks, divide(model, inputs, blocks, world), strict=True):
        if isinstance(division, Division):
            divisions.append(division)
        rows.append(
            TensorBlock(
                kind=block.kind,
                layers=block.layers,
                parameters=sum(_size(model, layer) for layer in block.layers),
                exchanged_bytes=_exchanged(model, block),
                reason="" if isinstance(division, Division) else division,
            )
        )
    total = sum(weight.numel() for weight in model.parameters())
    plan = TensorPlan(workload=name, processes=world, parameters=total, blocks=tuple(rows))
    return plan, divisions


def _size(model: nn.Module, layer: str) -> int:
    return sum(weight.numel() for weight in model.get_submodule(layer).parameters())


def _exchanged(model: nn.Module, block: Block) -> tuple[int, ...]:
    """The bytes of each sum: the outputs of the rows, and the gradient of each columns' input."""
    row = model.get_submodule(block.row)
    assert isinstance(row, nn.Linear)
    each = block.positions * row.weight.element_size()
    inputs = [model.get_submodule(name).in_features for name in block.columns]
    return (each * row.out_features, *(each * int(width) for width in inputs))  # type: ignore[arg-type]


def _divide(model: nn.Module, division: Division, mesh: DeviceMesh) -> None:
    block = division.block
    apply_integers(model, division)
    with torch.no_grad():
        for name in block.columns:
            linear = model.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            model.set_submodule(name, ColumnParallelLinear(linear, mesh, parts=division.parts))
        row = model.get_submodule(block.row)
        assert isinstance(row, nn.Linear)
        model.set_submodule(block.row, RowParallelLinear(row, mesh))

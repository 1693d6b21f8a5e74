"""Tensor parallelism: every attention and MLP block of a model divided among processes.

Of a linear layer each process has columns of outputs, or rows of inputs. Columns followed by rows
exchange once forward and once backward (Megatron-LM, Shoeybi et al., 2019). Weights are DTensors,
which exchange, and which distributed checkpoints and FSDP2 understand. torch's own styles divide a
weight in one piece; query, key and value in one weight, as here, each have to be divided.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from ..arguments import check_count
from ..errors import ParallelError
from ..model.copying import copied
from ..model.weights import parameter_count
from ..records import TensorBlock, TensorPlan
from ..workload import Inputs, Workload
from .exchange import make_equal
from .tensor_blocks import Block, Division, apply_integers, blocks_of, divide, in_rank_order


def tensor_plan(work: Workload, processes: int) -> TensorPlan:
    """Which blocks of a workload's model are divided among so many processes, and why others stay
    whole. Nothing is changed, and no process is started.
    """
    return _divisions(work.model, work.inputs, processes, work.name)[0]


def tensor_parallel(work: Workload) -> TensorParallel:
    """Divide the blocks of a workload's model, in place, among all processes.

    Each process calls it alike, gives every batch to the model as a whole, and steps its optimizer
    over the model's parameters; outputs and gradients are those of the whole model. Weights and
    torch's random numbers become those of rank 0.
    """
    if not dist.is_initialized():
        raise ParallelError(
            "tensor_parallel needs several processes; call it in a function that parallel.run "
            "starts."
        )
    mesh = init_device_mesh(work.device.type, (dist.get_world_size(),))
    make_equal(work.model)
    plan, divisions = _divisions(work.model, work.inputs, mesh.size(), work.name)
    if not divisions:
        raise ParallelError(
            f"{work.name} has no block that can be divided among {mesh.size()} processes: "
            f"{plan.reason}."
        )
    for division in divisions:
        _divide(work.model, division, mesh)
    _share_random_state(work.device)
    return TensorParallel(work.model, plan, divisions)


class TensorParallel:
    """A model whose blocks are divided: `clip_gradients` shortens the gradient of the whole,
    `whole_model` puts the blocks together again.
    """

    def __init__(self, model: nn.Module, plan: TensorPlan, divisions: list[Division]) -> None:
        self.model, self.plan = model, plan
        self._divisions = divisions

    @torch.no_grad()
    def clip_gradients(self, max_norm: float) -> float:
        """Shorten the gradient of the whole model, in place, if its norm is above this one; returns
        what it was. Every process takes part.
        """
        gradients = [w.grad for w in self.model.parameters() if w.grad is not None]
        # each process has another part of every DTensor, and the whole of the others
        parts = [each.to_local() for each in gradients if isinstance(each, DTensor)]
        whole = [each for each in gradients if not isinstance(each, DTensor)]
        square = nn.utils.get_total_norm(parts).float().square()
        dist.all_reduce(square)
        norm = math.hypot(float(square.sqrt()), float(nn.utils.get_total_norm(whole)))
        factor = max_norm / (norm + 1e-6)  # as torch's clip_grad_norm_
        if factor < 1:
            for each in (*parts, *whole):
                each.mul_(factor)
        return norm

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
    check_count("processes", world, error=ParallelError)
    rows, divisions = [], []
    blocks = blocks_of(model, inputs)
    for block, division in zip(blocks, divide(model, inputs, blocks, world), strict=True):
        if isinstance(division, Division):
            divisions.append(division)
        rows.append(
            TensorBlock(
                kind=block.kind,
                layers=block.layers,
                parameters=sum(
                    parameter_count(model.get_submodule(layer)) for layer in block.layers
                ),
                exchanged_bytes=_exchanged(model, block),
                reason="" if isinstance(division, Division) else division,
            )
        )
    total = parameter_count(model)
    plan = TensorPlan(workload=name, processes=world, parameters=total, blocks=tuple(rows))
    return plan, divisions


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


def _share_random_state(device: torch.device) -> None:
    """Let every rank draw the random numbers of rank 0: what is not divided is equal on all."""
    is_gpu = device.type == "cuda"
    states: list[Any] = [torch.get_rng_state()]
    states += [torch.cuda.get_rng_state(device)] if is_gpu else []
    dist.broadcast_object_list(states, 0)
    torch.set_rng_state(states[0])
    if is_gpu:
        torch.cuda.set_rng_state(states[1], device)


class _Parallel(nn.Module):
    """What both kinds share: a mesh, and the weight, of which this process has its part."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, linear: nn.Linear, mesh: DeviceMesh | None) -> None:
        super().__init__()
        if not dist.is_initialized():
            raise ParallelError(
                f"{type(self).__name__} needs several processes; make it in a function that "
                "parallel.run starts."
            )
        self.mesh = mesh or init_device_mesh(linear.weight.device.type, (dist.get_world_size(),))
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def _split(self, whole: Tensor, dim: int) -> nn.Parameter:
        """A tensor that every process has, as a parameter of which each keeps its part."""
        return nn.Parameter(
            distribute_tensor(whole.detach(), self.mesh, [Shard(dim)], src_data_rank=None)
        )

    def _check_width(self, what: str, width: int, parts: int = 1) -> None:
        if width % (parts * self.mesh.size()):
            each = f"{parts} parts of {width // parts}" if parts > 1 else str(width)
            raise ParallelError(
                f"{type(self).__name__}: {each} {what} cannot be divided among "
                f"{self.mesh.size()} processes; make the width a multiple of "
                f"{parts * self.mesh.size()}, or leave the layer whole."
            )

    def extra_repr(self) -> str:
        """The whole widths, how they are divided, and the number of processes."""
        placements = getattr(self.weight, "placements", ())
        return f"{self.in_features}, {self.out_features} as {placements} of {self.mesh.size()}"


class ColumnParallelLinear(_Parallel):
    """A linear layer of which each process computes a part of the outputs, from the whole input.

    `parts` is how many projections lie one after another in its weight, 3 for query, key and value
    in one; each process gets its share of each.
    """

    def __init__(
        self, linear: nn.Linear, mesh: DeviceMesh | None = None, *, parts: int = 1
    ) -> None:
        super().__init__(linear, mesh)
        self._check_width("outputs", linear.out_features, parts)
        self.parts = parts
        self.weight = self._own_rows(linear.weight)
        self.bias = None if linear.bias is None else self._own_rows(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """This process's outputs."""
        whole = DTensor.from_local(x, self.mesh, [Replicate()], run_check=False)
        output = F.linear(whole, self.weight, self.bias)
        assert isinstance(output, DTensor)
        return output.to_local()

    def whole(self) -> nn.Linear:
        """The linear layer with the weights of all processes."""
        bias = None if self.bias is None else self._whole_rows(self.bias)
        return _linear(self._whole_rows(self.weight), bias)

    def _own_rows(self, rows: Tensor) -> nn.Parameter:
        return self._split(in_rank_order(rows, self.parts, self.mesh.size()), 0)

    def _whole_rows(self, rows: nn.Parameter) -> Tensor:
        return in_rank_order(_full(rows), self.mesh.size(), self.parts)


class RowParallelLinear(_Parallel):
    """A linear layer of which each process has a part of the inputs, as a column-parallel layer
    gave it; the outputs are added up.
    """

    def __init__(self, linear: nn.Linear, mesh: DeviceMesh | None = None) -> None:
        super().__init__(linear, mesh)
        self._check_width("inputs", linear.in_features)
        self.weight = self._split(linear.weight, 1)
        # The bias is added once, after the sum: every process has the whole.
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """The whole output, on every process."""
        part = DTensor.from_local(x, self.mesh, [Shard(x.ndim - 1)], run_check=False)
        output = F.linear(part, self.weight)
        assert isinstance(output, DTensor)
        total = output.full_tensor()
        return total if self.bias is None else total + self.bias

    def whole(self) -> nn.Linear:
        """The linear layer with the weights of all processes."""
        return _linear(_full(self.weight), self.bias)


def _full(parameter: nn.Parameter) -> Tensor:
    """The whole of a split parameter; every process takes part."""
    assert isinstance(parameter, DTensor)
    return parameter.full_tensor()


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone())
    return linear

"""Linear layers of which each process has a part: columns of outputs, or rows of inputs.

A column-parallel layer followed by a row-parallel one exchanges once forward and once backward
(Megatron-LM, Shoeybi et al., 2019). Weights are DTensors, which distributed checkpoints and FSDP2
understand; built on torch.distributed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from ..errors import ParallelError


class _SumGradients(torch.autograd.Function):
    """The input as it is; its gradient is the sum over processes."""

    @staticmethod
    def forward(context: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class _SumOutputs(torch.autograd.Function):
    """The sum over processes; the gradient is as it is."""

    @staticmethod
    def forward(context: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _GatherOutputs(torch.autograd.Function):
    """The columns of all processes; the gradient is that of the own columns."""

    @staticmethod
    def forward(context: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.rank, context.width = dist.get_rank(group), x.shape[-1]
        columns = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(columns, x.contiguous(), group=group)
        return torch.cat(columns, -1)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.narrow(-1, context.rank * context.width, context.width), None


def own_rows(weight: Tensor, rank: int, world: int, parts: int = 1) -> Tensor:
    """A process's rows of a weight, from each of `parts` that lie one after another."""
    share = weight.shape[0] // (parts * world)
    rows = weight.reshape(parts, world, share, *weight.shape[1:])
    return rows[:, rank].flatten(0, 1)


class _Parallel(nn.Module):
    """What both kinds share: a mesh, and weights as DTensors."""

    def __init__(self, linear: nn.Linear, mesh: DeviceMesh | None) -> None:
        super().__init__()
        if not dist.is_initialized():
            raise ParallelError(
                f"{type(self).__name__} needs several processes; make it in a function that "
                "parallel.run starts."
            )
        self.mesh = mesh or init_device_mesh(linear.weight.device.type, (dist.get_world_size(),))
        self.world, self.rank = self.mesh.size(), self.mesh.get_local_rank()
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def _split(self, tensor: Tensor, dim: int) -> nn.Parameter:
        """A process's part of a tensor, as a parameter that knows the whole."""
        part = DTensor.from_local(tensor.clone(), self.mesh, [Shard(dim)], run_check=False)
        return nn.Parameter(part)

    def _check_width(self, what: str, width: int, parts: int = 1) -> None:
        if width % (parts * self.world):
            each = f"{parts} parts of {width // parts}" if parts > 1 else str(width)
            raise ParallelError(
                f"{type(self).__name__}: {each} {what} cannot be divided among {self.world} "
                f"processes; make the width a multiple of {parts * self.world}, or leave the layer "
                "whole."
            )


class ColumnParallelLinear(_Parallel):
    """A linear layer of which each process computes a part of the outputs, from the whole input.

    `parts` is how many projections lie one after another in its weight, 3 for query, key and value
    in one; each process gets its share of each. With `gather_output` the outputs of all processes
    are gathered.
    """

    def __init__(
        self,
        linear: nn.Linear,
        mesh: DeviceMesh | None = None,
        *,
        parts: int = 1,
        gather_output: bool = False,
    ) -> None:
        super().__init__(linear, mesh)
        self._check_width("outputs", linear.out_features, parts)
        if gather_output and parts > 1:
            raise ParallelError(
                "gather_output would mix the parts of the processes; use parts=1 with it."
            )
        self.parts, self.gather_output = parts, gather_output
        with torch.no_grad():
            self.weight = self._split(own_rows(linear.weight, self.rank, self.world, parts), 0)
            self.bias = (
                None
                if linear.bias is None
                else self._split(own_rows(linear.bias, self.rank, self.world, parts), 0)
            )

    def forward(self, x: Tensor) -> Tensor:
        """This process's outputs, or with `gather_output` all."""
        group = self.mesh.get_group()
        bias = None if self.bias is None else _local(self.bias)
        output = F.linear(_applied(_SumGradients, x, group), _local(self.weight), bias)
        return _applied(_GatherOutputs, output, group) if self.gather_output else output

    def whole(self) -> nn.Linear:
        """The linear layer with the weights of all processes."""
        weight, bias = _full(self.weight), None if self.bias is None else _full(self.bias)
        return _linear(self._in_order(weight), None if bias is None else self._in_order(bias))

    def _in_order(self, rows: Tensor) -> Tensor:
        share = rows.shape[0] // (self.parts * self.world)
        ranks = rows.reshape(self.world, self.parts, share, *rows.shape[1:])
        return ranks.transpose(0, 1).flatten(0, 2)

    def extra_repr(self) -> str:
        """The whole widths and the number of processes."""
        return f"{self.in_features}, {self.out_features} in {self.world} columns"


class RowParallelLinear(_Parallel):
    """A linear layer of which each process has a part of the inputs; the outputs are added up.

    The input is what a column-parallel layer gave, or with `input_is_split=False` the whole.
    """

    def __init__(
        self, linear: nn.Linear, mesh: DeviceMesh | None = None, *, input_is_split: bool = True
    ) -> None:
        super().__init__(linear, mesh)
        self._check_width("inputs", linear.in_features)
        self.input_is_split = input_is_split
        with torch.no_grad():
            part = linear.weight.chunk(self.world, 1)[self.rank].contiguous()
            self.weight = self._split(part, 1)
            # The bias is added once, after the sum: every process has the whole.
            self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """The whole output, on every process."""
        group = self.mesh.get_group()
        if not self.input_is_split:
            x = _applied(_SumGradients, x, group).chunk(self.world, -1)[self.rank]
        output = _applied(_SumOutputs, F.linear(x, _local(self.weight)), group)
        return output if self.bias is None else output + self.bias

    def whole(self) -> nn.Linear:
        """The linear layer with the weights of all processes."""
        bias = None if self.bias is None else self.bias.detach().clone()
        return _linear(_full(self.weight), bias)

    def extra_repr(self) -> str:
        """The whole widths and the number of processes."""
        return f"{self.in_features} in {self.world} rows, {self.out_features}"


def _applied(
    function: type[torch.autograd.Function], x: Tensor, group: dist.ProcessGroup
) -> Tensor:
    output = function.apply(x, group)  # type: ignore[no-untyped-call]
    assert isinstance(output, Tensor)
    return output


def _local(parameter: nn.Parameter) -> Tensor:
    assert isinstance(parameter, DTensor)
    return parameter.to_local()


def _full(parameter: nn.Parameter) -> Tensor:
    """The whole of a split parameter; every process takes part."""
    assert isinstance(parameter, DTensor)
    whole = parameter.redistribute(placements=[Replicate()]).to_local()
    return whole.detach().clone()


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(
        weight.shape[1],
        weight.shape[0],
        bias=bias is not None,
        device=weight.device,
        dtype=weight.dtype,
    )
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return linear

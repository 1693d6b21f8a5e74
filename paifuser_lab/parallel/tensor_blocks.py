"""Which linear layers can be divided among processes: blocks found in a run and tried here."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ..measure import output_error
from ..model.copying import copied
from ..model.graph import Graph, Operation, observe
from ..model.watch import watching
from ..workload import Inputs

EXACT = 1e-4  # the relative L2 error up to which the parts add up to the whole
BARRIERS = ("norm", "convolution", "embedding")  # in a name: they mix what would be divided
Call = tuple[Any, Any]  # arguments, keyword arguments
Attributes = dict[tuple[str, str], int]  # module and name of an integer → its value in a part


@dataclass(frozen=True)
class Block:
    """Linear layers that are divided together: columns of the first, rows of the last."""

    kind: str  # attention or mlp
    columns: tuple[str, ...]
    row: str
    positions: int  # for which the layers compute: examples times tokens
    operators: tuple[Operation, ...] = field(repr=False)

    @property
    def layers(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.columns, self.row)

    @property
    def owner(self) -> str:
        """The innermost module that has all of them."""
        names = [name.split(".")[:-1] for name in self.layers]
        shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*names, strict=False))
        return ".".join(parts[0] for parts in shared)


@dataclass(frozen=True)
class Division:
    """How a block is divided: the projections in one weight, and integers such as the heads."""

    block: Block
    parts: int = 1
    attributes: Attributes = field(default_factory=dict)


def blocks_of(model: nn.Module, inputs: Inputs) -> list[Block]:
    """Attention and MLP blocks: linear layers from which operators lead to another one alone."""
    model = copied(model).train()
    own_inputs = inputs.clone()
    graph = observe(model, lambda: own_inputs(model))
    linears: dict[str, nn.Module] = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and graph.entries[name] == 1
    }
    makers = {
        tensor: operation
        for operation in reversed(graph.operations)
        for tensor in operation.makes
        if tensor not in operation.reads
    }
    taken: set[str] = set()
    blocks = []
    for row in linears:
        block = _block(row, linears, graph, makers)
        if block is not None and not taken & set(block.layers):
            taken |= set(block.layers)
            blocks.append(block)
    return blocks


def _block(
    row: str, linears: dict[str, nn.Module], graph: Graph, makers: dict[int, Operation]
) -> Block | None:
    """The block that ends in this layer, if what it reads comes from linear layers alone."""
    weights = set(graph.weights.values())
    between: list[Operation] = []
    columns: list[str] = []
    waiting = [
        tensor
        for operation in graph.of_layer(row)
        for tensor in operation.reads
        if tensor not in weights and (tensor not in makers or makers[tensor].layer != row)
    ]
    seen = set(waiting)
    while waiting:
        operation = makers.get(waiting.pop())
        if operation is None:
            continue  # an input or a constant, such as a mask
        if operation.layer in linears:
            columns += [operation.layer] if operation.layer not in columns else []
            continue
        if any(barrier in operation.name for barrier in BARRIERS):
            return None
        between.append(operation)
        for tensor in operation.reads:
            if tensor not in weights and tensor not in seen:
                seen.add(tensor)
                waiting.append(tensor)
    columns.sort(key=list(linears).index)
    if not columns or row in columns or not _is_closed(columns, row, between, graph):
        return None
    kind = "attention" if any(map(_is_attention, between)) else "mlp"
    output = graph.layer_outputs[row][0]
    shape = next(
        operation.shapes[operation.makes.index(output)]
        for operation in graph.operations
        if output in operation.makes
    )
    return Block(kind, tuple(columns), row, prod(shape[:-1]), tuple(between))


def _is_closed(columns: list[str], row: str, between: list[Operation], graph: Graph) -> bool:
    """Whether nothing else reads what the columns or the operators after them give."""
    inside = {id(operation) for operation in between}
    made = {graph.layer_outputs[name][0] for name in columns}
    made |= {tensor for operation in between for tensor in operation.makes}
    if made & graph.outputs:
        return False
    return all(
        id(reader) in inside or reader.layer in (*columns, row)
        for tensor in made
        for reader in graph.readers.get(tensor, ())
    )


def divide(
    model: nn.Module, inputs: Inputs, blocks: list[Block], world: int
) -> list[Division | str]:
    """How each block is divided among so many processes; why not, if no way gives its output.

    Each process's part of a block runs here, on the inputs that the block has in the model; their
    sum has to be the whole's output.
    """
    model = copied(model).train(False)
    modules: dict[str, Any] = dict(model.named_modules())
    calls = _calls(model, inputs, {block.owner for block in blocks})
    return [_divided(model, modules, block, calls[block.owner], world) for block in blocks]


def _divided(
    model: nn.Module, modules: dict[str, Any], block: Block, call: Call, world: int
) -> Division | str:
    if problem := _tied(model, block):
        return problem
    heads, inner = _heads(block), modules[block.row].in_features
    if inner % world:
        return f"{inner} inputs of '{block.row}' cannot be divided by {world}"
    if heads is not None and heads % world:
        return f"{heads} heads of '{block.owner or 'the model'}' cannot be divided by {world}"
    owner = modules[block.owner]
    expected = _row_output(owner, call, modules[block.row])
    for division in _divisions(modules, block, heads, inner, world):
        total = _sum_of_parts(owner, division, call, world)
        if (
            total is not None
            and total.shape == expected.shape
            and output_error(expected, total)[0] <= EXACT
        ):
            return division
    return (
        f"the parts of {', '.join(map(repr, block.columns))} do not add up to the whole: the "
        "forward function computes with widths that cannot be divided"
    )


def _tied(model: nn.Module, block: Block) -> str:
    """A sentence if a weight of the block is shared with another layer."""
    names: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), []).append(name)
    for shared in names.values():
        layers = {name.rpartition(".")[0] for name in shared}
        if len(shared) > 1 and layers & set(block.layers):
            return (
                f"the weight {' = '.join(map(repr, shared))} is tied, and dividing would untie it"
            )
    return ""


def _heads(block: Block) -> int | None:
    """The heads of attention, from the shapes that it computes with."""
    core = next(filter(_is_attention, block.operators), None)
    shape = core.shapes[0] if core is not None and core.shapes else ()
    return shape[1] if len(shape) == 4 else None


def _is_attention(operation: Operation) -> bool:
    return "softmax" in operation.name or "dot_product" in operation.name


def _divisions(
    modules: dict[str, Any], block: Block, heads: int | None, inner: int, world: int
) -> Iterator[Division]:
    """Ways to divide a block: projections in its columns, and integers that are heads or widths."""
    outputs = modules[block.columns[0]].out_features
    projections = {1} | ({outputs // inner} if outputs % inner == 0 else set())
    choices: list[set[int]] = [set()]
    if heads is not None:
        choices = [{heads}, {heads, inner}, {inner}, set()]
    for parts in sorted(projections, reverse=True):
        if all(modules[name].out_features % (parts * world) == 0 for name in block.columns):
            for values in choices:
                yield Division(block, parts, _integers(modules, block, values, world))


def _integers(modules: dict[str, Any], block: Block, values: set[int], world: int) -> Attributes:
    """The integers with these values in the modules between the block's layers, divided."""
    layers = {block.owner, *(operation.layer for operation in block.operators)}
    return {
        (layer, name): value // world
        for layer in layers
        if layer not in block.layers
        and (not block.owner or f"{layer}.".startswith(f"{block.owner}."))
        for name, value in vars(modules[layer]).items()
        if type(value) is int and value in values and value % world == 0
    }


def _calls(model: nn.Module, inputs: Inputs, layers: set[str]) -> dict[str, Call]:
    """The arguments with which the model first calls each of these layers."""
    calls: dict[str, Call] = {}

    def enter(name: str, args: Any, kwargs: Any) -> None:
        if name in layers and name not in calls:
            calls[name] = copy.deepcopy((args, kwargs))

    with torch.no_grad(), watching(model, enter, lambda name, output: None):
        inputs.clone()(model)
    return calls


class _Reached(Exception):
    """The last layer of a block has run: what follows it is not needed."""


def _row_output(owner: nn.Module, call: Call, row: nn.Module) -> Tensor:
    """What the block's last layer gives when its owner is called."""
    outputs: list[Tensor] = []

    def stop(module: nn.Module, args: Any, output: Tensor) -> None:
        outputs.append(output)
        raise _Reached

    hook = row.register_forward_hook(stop)
    try:
        with torch.no_grad():
            args, kwargs = copy.deepcopy(call)
            owner(*args, **kwargs)
    except _Reached:
        pass
    finally:
        hook.remove()
    return outputs[0]


def _sum_of_parts(owner: nn.Module, division: Division, call: Call, world: int) -> Tensor | None:
    """What the processes' parts of a block give together; None if one cannot run."""
    block = division.block
    total: Tensor | None = None
    bias: Tensor | None = None
    for rank in range(world):
        part = copy.deepcopy(owner)
        apply_integers(part, division, inside=block.owner)
        for name in block.columns:
            _narrow(part.get_submodule(relative(name, block.owner)), rank, world, division.parts)
        row = part.get_submodule(relative(block.row, block.owner))
        assert isinstance(row, nn.Linear)
        bias, row.bias = row.bias, None  # type: ignore[assignment]
        row.weight = nn.Parameter(row.weight.chunk(world, 1)[rank])
        try:
            output = _row_output(part, call, row)
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            return None  # the forward function does not take these widths
        total = output if total is None else total + output
    return total if bias is None or total is None else total + bias


def _narrow(layer: nn.Module, rank: int, world: int, parts: int) -> None:
    for name in ("weight", "bias"):
        value = getattr(layer, name)
        if value is not None:
            rows = in_rank_order(value, parts, world).chunk(world)[rank]
            setattr(layer, name, nn.Parameter(rows))


def in_rank_order(rows: Tensor, outer: int, inner: int) -> Tensor:
    """Rows that lie as `outer` parts of `inner` shares each, as `inner` parts of `outer` shares: so
    that a process's shares of each projection lie together, and back.
    """
    shares = rows.detach().reshape(outer, inner, -1, *rows.shape[1:])
    return shares.transpose(0, 1).flatten(0, 2)


def relative(layer: str, owner: str) -> str:
    """A layer's name inside the module that has it."""
    return layer.removeprefix(f"{owner}." if owner else "") if layer != owner else ""


def apply_integers(model: nn.Module, division: Division, *, inside: str = "") -> None:
    """Set the integers that a divided block computes with; `model` is the module `inside`."""
    for (layer, name), value in division.attributes.items():
        setattr(model.get_submodule(relative(layer, inside)), name, value)

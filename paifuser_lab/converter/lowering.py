"""Captured programs in a precision, and their int8 roundings in the form that XNNPACK takes."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from ..model.silence import compilers_silenced
from .exportable import Exportable
from .program import batch_dimensions, doubled, layer_of
from .target import TargetOptions

aten, decomposed = torch.ops.aten, torch.ops.quantized_decomposed
INTO, OUT_OF = decomposed.quantize_per_tensor.default, decomposed.dequantize_per_tensor.default
WEIGHTS = decomposed.dequantize_per_channel.default
UNSIGNED, SIGNED, HALF = (0, 255, torch.uint8), (-128, 127, torch.int8), 128
DECOMPOSED = "quantized_decomposed"
BUILT_IN = frozenset(("aten", "prims", "prim", "higher_order", "quantized", "mkldnn", "inductor"))
PRODUCTS = (aten.conv1d.default, aten.conv2d.default, aten.linear.default)
CASTS = (aten.to.dtype, aten.to.dtype_layout, aten._to_copy.default)
CLAMPS = (
    aten.relu.default, aten.relu_.default, aten.relu6.default, aten.relu6_.default,
    aten.hardtanh.default, aten.hardtanh_.default,
)  # fmt: skip
# a value rounded before one of these is the same as rounded after it
ORDERED = (
    aten.max_pool2d.default, aten.view.default, aten.reshape.default, aten.flatten.using_ints,
    aten.permute.default, aten.transpose.int, aten.squeeze.dim, aten.unsqueeze.default,
    aten.dropout.default, aten.contiguous.default,
)  # fmt: skip


def program_of(exportable: Exportable, options: TargetOptions) -> ExportedProgram:
    """The program of a model in the requested precision; integers are in the model already."""
    precision = options.precision or exportable.precision
    if precision in ("fp16", "bf16") and exportable.precision == "fp32":
        exportable = exportable.in_format(precision)
    return exportable.program(dynamic=options.dynamic)


def rounds_to_int8(program: ExportedProgram) -> bool:
    """Whether the program rounds values between its operators to int8."""
    return any(node.target is INTO for node in program.graph.nodes)


def reading_notes(program: ExportedProgram) -> tuple[str, ...]:
    """What a process must register before it reads the program, beyond `import torch`."""
    modules = (each for each in program.graph_module.modules() if isinstance(each, GraphModule))
    calls = [node for module in modules for node in module.graph.nodes]
    others = [node for node in calls if _namespace(node) not in BUILT_IN]
    named = [node for node in others if _namespace(node) != DECOMPOSED]
    notes = []
    if len(named) < len(others):
        notes.append(
            "before it is read elsewhere, import torch.ao.quantization.fx._decomposed there"
        )
    if named:
        notes.append(f"it needs {operator_names(named)} registered where it is read")
    return tuple(notes)


def _namespace(node: Node) -> str:
    """The library of a node's operator; that of torch for what is no operator of a library."""
    return str(getattr(node.target, "namespace", "aten"))


def with_int8_products(
    program: ExportedProgram, tensors: list[Tensor], *, dynamic: bool
) -> tuple[ExportedProgram, list[str]]:
    """The same function in the form of which XNNPACK makes int8 operators, and the products that it
    computes in floats, since no rounding follows them.

    XNNPACK takes values from -128 to 127, and a product whose output is rounded at once.
    """
    module = _with_stored_constants(program)
    _use_signed_values(module.graph)
    in_floats = []
    for node, weight in _products_of(module.graph):
        users = list(node.users)
        last = users[0] if len(users) == 1 and users[0].target in CLAMPS else node
        rounding = _next_rounding(last)
        if rounding is None:
            _store(module, node, weight, _constant(module, weight))
            in_floats.append(layer_of(node))
        elif rounding not in last.users:
            _round_at_once(module.graph, last, rounding)
    return _captured(module, tensors, dynamic=dynamic), in_floats


def with_stored_constants(
    program: ExportedProgram, tensors: list[Tensor], *, dynamic: bool
) -> ExportedProgram:
    """The same function with scales, zero points and biases stored, not computed at each call."""
    return _captured(_with_stored_constants(program), tensors, dynamic=dynamic)


def _with_stored_constants(program: ExportedProgram) -> GraphModule:
    module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    _drop_casts(module.graph)
    for node, weight in _products_of(module.graph):
        _store_computed(module, weight, weight.all_input_nodes[1:])
        _store_computed(module, node, node.all_input_nodes[2:])
    return module


def _drop_casts(graph: Graph) -> None:
    """Remove casts of a value to the type that it has, and the checks of types around them."""
    for node in list(graph.nodes):
        if node.target is aten._assert_tensor_metadata.default:
            graph.erase_node(node)
        elif node.target in CASTS:
            source = node.args[0]
            if source.meta["val"].dtype == node.meta["val"].dtype:
                node.replace_all_uses_with(source)
                graph.erase_node(node)


def _captured(module: GraphModule, tensors: list[Tensor], *, dynamic: bool) -> ExportedProgram:
    module.graph.eliminate_dead_code()
    module.recompile()
    shapes = batch_dimensions(tensors) if dynamic else None
    example = tuple(doubled(tensors)) if dynamic else tuple(tensors)
    with compilers_silenced(), torch.no_grad():
        return torch.export.export(module, example, dynamic_shapes=shapes)


def _products_of(graph: Graph) -> list[tuple[Node, Node]]:
    """The products with integer weights, and the operator that makes floats of each weight."""
    products = [node for node in graph.nodes if node.target in PRODUCTS]
    return [(node, weight) for node in products if (weight := _weight_of(node)) is not None]


def _use_signed_values(graph: Graph) -> None:
    """Shift 0…255 to -128…127, zero point and all: the same values behind them."""
    for node in graph.nodes:
        if node.target in (INTO, OUT_OF) and tuple(node.args[3:6]) == UNSIGNED:
            source, scale, zero = node.args[:3]
            node.args = (source, scale, zero - HALF, *SIGNED)


def _weight_of(product: Node) -> Node | None:
    """The operator that makes floats of a product's integer weight, if it has one."""
    weight = product.args[1]
    return weight if isinstance(weight, Node) and weight.target is WEIGHTS else None


def _next_rounding(node: Node) -> Node | None:
    """The only rounding that a value reaches, through operators that keep the order of values."""
    users = list(node.users)
    if len(users) != 1:
        return None
    if users[0].target is INTO:
        return users[0]
    return _next_rounding(users[0]) if users[0].target in ORDERED else None


def _round_at_once(graph: Graph, node: Node, rounding: Node) -> None:
    """Round a value as a later operator will; rounding it again then changes nothing."""
    arguments = tuple(rounding.args[1:])
    with graph.inserting_after(node):
        into = graph.call_function(INTO, (node, *arguments))
    with graph.inserting_after(into):
        out_of = graph.call_function(OUT_OF, (into, *arguments))
    node.replace_all_uses_with(out_of, delete_user_cb=lambda user: user is not into)


def _store_computed(module: GraphModule, reader: Node, read: list[Node]) -> None:
    """Store what the program computes from what it holds, at each call anew."""
    for computed in read:
        if computed.op == "call_function":
            _store(module, reader, computed, _constant(module, computed))


def _store(module: GraphModule, reader: Node, computed: Node, value: Tensor) -> None:
    """Let a node read a stored tensor in place of what another one computes."""
    name = f"stored_for_{reader.name}_{computed.name}"
    module.register_buffer(name, value.detach().clone())
    with module.graph.inserting_before(reader):
        reader.replace_input_with(computed, module.graph.get_attr(name))


def _constant(module: GraphModule, arg: Any) -> Any:
    """The value of an argument: a constant, a tensor of the module, or one made of these."""
    if not isinstance(arg, Node):
        return arg
    if arg.op == "get_attr":
        return attrgetter(str(arg.target))(module)
    assert callable(arg.target), f"{arg} depends on an input"
    with torch.no_grad():
        return arg.target(*(_constant(module, one) for one in arg.args), **arg.kwargs)


def operator_names(nodes: list[Node]) -> str:
    """The operators of nodes, each once, in the order of the program."""
    names = (getattr(node.target, "__name__", str(node.target)) for node in nodes)
    return ", ".join(dict.fromkeys(name.removesuffix(".default") for name in names))

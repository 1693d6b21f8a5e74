"""Loads a program of torch.export as a torch module with example inputs.

The module calls the operators of the program in their order; those of layers are layers of
torch.nn, at the paths that they had in the model. `torch.export.load` unpickles what is in the
file, so that a file is loaded only where it is trusted (see `loading.trust`).
"""

from __future__ import annotations

import operator
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from ..errors import FileError, WorkloadError, first_line
from .aten_layers import arguments_of, input_of, layer_of, name_of
from .limits import Imported, checked_inputs, identifier, plausible, shown

PREFIX = "model."  # of every weight, where the program was captured of a module around the model
TRAINING = ("dropout_p", "train", "training")  # arguments that are 0 or False in inference
CHECKS = ("_assert", "sym_constrain_range")  # operators that compute nothing
NO_OPERATION = ("dropout", "feature_dropout", "alpha_dropout")  # in inference
# the classes of torch that call one operator
LAYER = re.compile(
    r"torch\.nn\.modules\.(activation|batchnorm|conv|dropout|linear|normalization|pooling|sparse)"
    r"\.(?!MultiheadAttention)"
)
# functions by which other tools of the lab know an operator
KNOWN_AS: dict[str, Callable[..., Any]] = {
    "add.Tensor": torch.add, "mul.Tensor": torch.mul, "sub.Tensor": torch.sub,
    "add_.Tensor": operator.iadd, "mul_.Tensor": operator.imul,
    "matmul.default": torch.matmul, "cat.default": torch.cat, "softmax.int": torch.softmax,
    "flatten.using_ints": torch.flatten, "view.default": torch.reshape,
    "_unsafe_view.default": torch.reshape, "reshape.default": torch.reshape,
    "scaled_dot_product_attention.default": F.scaled_dot_product_attention,
}  # fmt: skip


def load_pt2(
    path: str | Path,
    *,
    batch: int | None = None,
    seed: int = 0,
    inputs: Mapping[str, Tensor] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Imported:
    """Load a program of a trusted file.

    Inputs are made up from the shapes in the file unless given by name. Sizes that it leaves open
    stay open; without `batch` and `sizes` they are those with which it was captured.
    """
    path = Path(path)
    program = _program(path)
    read = _inputs_of(program)
    if not read:
        raise FileError(f"{path.name} reads no tensor; export a model that does.")
    if inputs is None:
        example = _example(program, _sizes(program, path.name, batch, sizes or {}), seed)
    else:
        example = checked_inputs(path.name, [node.name for node in read], inputs)
    try:
        module = _Module(program, path).build()
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise FileError(
            f"{path.name} has a part that is not understood ({type(error).__name__}: "
            f"{first_line(error)[:120]}); load its model from code instead."
        ) from error
    placeholders = [node.target for node in module.graph.nodes if node.op == "placeholder"]
    tensors = list(example.values())
    call = tensors[0] if len(tensors) == 1 else dict(zip(placeholders, tensors, strict=True))
    _check_call(module, path.name, tensors)
    notes = ("its operators are called as torch.export captured them",)
    return Imported(module, call, path.stem, notes, (path,))


def _program(path: Path) -> ExportedProgram:
    """The program; an error of torch becomes one sentence."""
    # a program may call the operators that this import registers
    import torch.ao.quantization.fx._decomposed

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        if any("/data/aotinductor/" in name for name in names):
            raise FileError(
                f"{path.name} is a package of compiled code, which is not loaded as a model; load "
                "the program that it was compiled from."
            )
        return torch.export.load(path)
    except FileError:
        raise
    except Exception as error:  # torch raises whatever a wrong file raises
        raise FileError(
            f"{path.name} is not a sound program of torch.export ({type(error).__name__}: "
            f"{first_line(error)[:200].rstrip('.')}); was it cut short, or saved by another "
            "version of torch?"
        ) from error


def _inputs_of(program: ExportedProgram) -> list[fx.Node]:
    """The nodes of the tensors that a caller gives."""
    placeholders = (node for node in program.graph.nodes if node.op == "placeholder")
    specs = program.graph_signature.input_specs
    return [
        node
        for node, spec in zip(placeholders, specs, strict=True)
        if spec.kind is InputKind.USER_INPUT and isinstance(node.meta.get("val"), Tensor)
    ]


def _sizes(
    program: ExportedProgram, file: str, batch: int | None, sizes: Mapping[str, int]
) -> dict[Any, int]:
    """The value of each symbol that the program leaves open: of the capture, unless chosen."""
    values: dict[Any, int] = {}
    batches, fixed = set(), set()
    for node in _inputs_of(program):
        for axis, size in enumerate(node.meta["val"].shape):
            if isinstance(size, int):
                fixed |= {size} if axis == 0 else set()
                continue
            factor, symbol = size.node.expr.as_coeff_Mul()
            if symbol.is_Symbol:
                values[symbol] = int(size.node.hint) // int(factor)
                batches |= {symbol} if axis == 0 and factor == 1 else set()
    named = {str(symbol): symbol for symbol in values}
    if unknown := sizes.keys() - named.keys():
        known = ", ".join(map(shown, named)) or "none"
        raise WorkloadError(f"{file} has no open size {shown(min(unknown))}; it has {known}.")
    if batch is not None and not batches and fixed != {batch}:
        raise WorkloadError(
            f"{file} is fixed to the sizes with which it was captured; leave batch out, or export "
            "it with an open batch."
        )
    values |= dict.fromkeys(batches, batch) if batch is not None else {}
    values |= {named[name]: size for name, size in sizes.items()}
    for symbol, value in values.items():
        limits = program.range_constraints.get(symbol)
        if limits is not None and not max(limits.lower, 1) <= value <= limits.upper:
            raise WorkloadError(
                f"{file} was captured for {shown(symbol)} from {limits.lower} to {limits.upper}, "
                f"and {value!r} was given."
            )
    return values


def _example(program: ExportedProgram, symbols: Mapping[Any, int], seed: int) -> dict[str, Tensor]:
    """Made-up inputs; indices are below those of the captured example."""
    generator = torch.Generator().manual_seed(seed)
    captured = [leaf for leaf in pytree.tree_leaves(program.example_inputs)
                if isinstance(leaf, Tensor)]  # fmt: skip
    example = {}
    for index, node in enumerate(_inputs_of(program)):
        meta = node.meta["val"]
        shape = tuple(_value(size, symbols) for size in meta.shape)
        rows = 2
        if index < len(captured) and captured[index].numel() and not meta.is_floating_point():
            rows = int(captured[index].max()) + 1
        example[node.name] = plausible(node.name, shape, meta.dtype, rows, generator)
    return example


def _value(size: Any, symbols: Mapping[Any, int]) -> int:
    """A size of an input: a number, or computed from symbols; of the capture, if others occur."""
    if isinstance(size, int):
        return size
    value = size.node.expr.subs(symbols)
    return int(value if value.is_number else size.node.hint)


def _check_call(module: fx.GraphModule, file: str, inputs: list[Tensor]) -> None:
    """Call the module once: it has to take the inputs, and to leave them and its buffers alone."""
    kept = {
        "an input": inputs,
        "a buffer or weight": list(module.state_dict(keep_vars=True).values()),
    }
    before = {what: [tensor._version for tensor in tensors] for what, tensors in kept.items()}
    try:
        with torch.no_grad():
            module(*inputs)
    except Exception as error:  # torch raises whatever an operator raises
        raise FileError(
            f"{file} fails for inputs of {', '.join(str(tuple(x.shape)) for x in inputs)} "
            f"({first_line(error)[:200].rstrip('.')}); give inputs of the sizes of its capture."
        ) from error
    for what, tensors in kept.items():
        if before[what] != [tensor._version for tensor in tensors]:
            raise FileError(
                f"{file} changes {what} when it is called, which a workload must not; return the "
                "value instead, and export it again."
            )


class _Module:
    """The module of a program, while it is built."""

    def __init__(self, program: ExportedProgram, path: Path) -> None:
        self.program, self.file = program, path.name
        self.class_name = identifier(path.stem)
        self.graph = fx.Graph()
        self.values: dict[fx.Node, Any] = {}  # by the program's nodes
        self.weights: dict[fx.Node, Tensor] = {}
        self.paths: dict[fx.Node, str] = {}  # of the weights
        self.parts: dict[str, Any] = {}  # layers, weights and buffers by path
        specs = program.graph_signature.input_specs
        names = [spec.target for spec in specs if spec.kind is InputKind.PARAMETER]
        self.prefix = PREFIX if names and all(name.startswith(PREFIX) for name in names) else ""

    def build(self) -> fx.GraphModule:
        """The module, in eval mode."""
        signature = self.program.graph_signature
        inputs = set(_inputs_of(self.program))
        specs = iter(signature.input_specs)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, next(specs), node in inputs)
            elif node.op == "get_attr":  # the branches of control flow
                self.parts[node.target] = getattr(self.program.graph_module, node.target)
                self.values[node] = self.graph.get_attr(node.target)
            elif node.op == "call_function" and not name_of(node).startswith(CHECKS):
                self.values[node] = self._call(node)
        for output in signature.output_specs:
            if output.kind is not OutputKind.USER_OUTPUT:
                raise FileError(
                    f"{self.file} changes its inputs or buffers ({shown(output.target)}), which a "
                    "call of a workload must not; return the value instead, and export it again."
                )
        self.graph.output(self._output())
        for node in list(self.graph.nodes):
            if node.op == "get_attr" and not node.users:
                self.graph.erase_node(node)
            elif node.op == "get_attr" and node.target.rpartition(".")[0] in self.parts:
                # a layer's own weight: under a second name, as a tied one, it outlives the layer
                name = node.target.replace(".", "_")
                self.parts[name], node.target = self.parts[node.target], name
        module = fx.GraphModule(self.parts, self.graph, class_name=self.class_name)
        module.graph.eliminate_dead_code()
        module.recompile()
        return module.eval()

    def _placeholder(self, node: fx.Node, spec: Any, is_input: bool) -> None:
        if is_input:
            self.values[node] = self.graph.placeholder(node.name)
        elif spec.target is not None:
            path = spec.target.removeprefix(self.prefix)
            held = self.program.state_dict if spec.target in self.program.state_dict else (
                self.program.constants
            )  # fmt: skip
            value = held[spec.target]
            if isinstance(value, Tensor):
                value = self.weights[node] = self._shared(value)
            self.paths[node] = path
            self.parts[path] = value
            self.values[node] = self.graph.get_attr(path)

    def _shared(self, tensor: Tensor) -> Tensor:
        """The one object of weights that are the same memory, so that tied ones stay tied."""
        for other in self.weights.values():
            if type(other) is type(tensor) and _memory(other) == _memory(tensor):
                return other
        return tensor

    def _call(self, node: fx.Node) -> Any:
        """The operator as a layer, or as the function that it is."""
        if any(arguments_of(node).get(option) for option in TRAINING):
            raise FileError(
                f"{self.file} is captured in training mode (its operator {shown(node.name)}); "
                "export it after eval()."
            )
        if name_of(node) in NO_OPERATION:
            return self.values[input_of(node)]
        # in place and read by nobody, a layer or += is taken for dead code; the operator is not
        if node.users and (layer := layer_of(node, self.weights)) is not None:
            return self.graph.call_module(self._add(node, layer), (self.values[input_of(node)],))
        known: Any = KNOWN_AS.get(getattr(node.target, "__name__", ""), node.target)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.values.__getitem__)
        is_binary = len(node.args) == 2 and not node.kwargs
        if known in (operator.iadd, operator.imul) and not (node.users and is_binary):
            known = node.target
        return self.graph.call_function(known, args, kwargs)

    def _add(self, node: fx.Node, layer: nn.Module) -> str:
        """Put a layer at its path in the model, else beside its weight; once if called twice."""
        stack = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())
        path, kind = (str(part) for part in stack[-1])
        path = path.partition("@")[0].removeprefix(self.prefix)  # "@1" is of a second call
        weights = [self.paths.get(value, "") for value in node.all_input_nodes]
        beside = next((name for name in weights if name.endswith("weight")), "")
        is_own = bool(path and LAYER.match(kind))
        if not is_own and beside:
            path = beside.removesuffix("weight").rstrip("._") or "layer"
        elif not is_own:
            path = f"{path}.{name_of(node).strip('_')}".lstrip(".")
        name, count = path, 1
        while name in self.parts and not (is_own and _is_same(self.parts[name], layer)):
            count += 1
            name = f"{path}_{count}"
        self.parts[name] = layer
        return name

    def _output(self) -> Any:
        """What the program returns, with dicts for mappings of any class."""
        (output,) = (node for node in self.program.graph.nodes if node.op == "output")
        leaves = fx.node.map_arg(output.args[0], self.values.__getitem__)
        spec = self.program.call_spec.out_spec
        result = pytree.tree_unflatten(list(leaves), spec) if spec is not None else leaves
        if isinstance(result, Mapping):
            return dict(result)
        if isinstance(result, fx.Node | list | tuple):
            return result
        raise FileError(
            f"{self.file} returns a {type(result).__name__}, which is not known here; return a "
            "tensor, a list or a dict, and export it again."
        )


def _memory(tensor: Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.dtype
    return (*storage, tensor.shape, tensor.stride())


def _is_same(one: Any, other: nn.Module) -> bool:
    """Whether two layers compute the same of the same weights."""
    return repr(one) == repr(other) and all(
        own is given for own, given in zip(one.parameters(), other.parameters(), strict=True)
    )

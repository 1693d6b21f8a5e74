"""Converts a program of torch.export to a torch module, operator by operator.

What a program writes in place is computed into a new tensor; where the old one is read again under
another name, the program is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from ...errors import FileError, first_line
from ..limits import NotConvertibleError, shown
from ..tree import Constant, Place, Size, Traced, Tree
from .archive import DTYPES
from .operators import CHECKS, KNOWN_AS, RANDOM, SIZES, Call, as_layer, named_operator
from .program import PREFIX, Program

MEMORY_FORMATS = {
    1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d,
    4: torch.preserve_format,
}  # fmt: skip
PLAIN = ("as_int", "as_float", "as_bool", "as_string", "as_ints", "as_floats", "as_bools")
POSITIONAL = 1  # the kind of an argument
# the classes of torch that call one operator
LAYER = re.compile(
    r"torch\.nn\.modules\.(activation|batchnorm|conv|dropout|linear|normalization|pooling|sparse)"
    r"\.(?!MultiheadAttention)"
)


def convert(program: Program, examples: Sequence[dict[str, Tensor]]) -> fx.GraphModule:
    """The program as a module; raises NotConvertibleError, which names the operator to blame.

    Examples of two sizes keep open what differs between them.
    """
    return _Conversion(program, examples).run()


class _Conversion:
    """The values of a program while its operators are converted in order."""

    def __init__(self, program: Program, examples: Sequence[dict[str, Tensor]]) -> None:
        self.program = program
        self.tree = Tree(len(examples))
        self.values: dict[str, Any] = {}
        self.overwritten: set[str] = set()  # names of tensors that changed in place
        self.weights_read: set[int] = set()  # memory of the weights that operators read
        for name, weight in program.weights.items():
            self.values[name] = Constant(
                weight.tensor, weight.name, is_buffer=not weight.is_parameter
            )
        for value in program.inputs:
            metas = [example[value.name].to("meta") for example in examples]
            self.values[value.name] = self.tree.input(value.name, metas)

    def run(self) -> fx.GraphModule:
        """Convert all operators, and return the module."""
        for node in self.program.nodes:
            name = f"{node['target']} {node.get('name') or ''}".strip()
            try:
                self._convert(node)
            except FileError:
                raise
            except NotConvertibleError as error:
                raise NotConvertibleError(f"at its operator {shown(name)}: {error}") from error
            except Exception as error:  # torch raises whatever an operator's check raises
                reason = f"{type(error).__name__}: {first_line(error)}"[:200].rstrip(".")
                raise NotConvertibleError(f"at its operator {shown(name)}: {reason}") from error
        self._check_memory()
        leaves = [self._argument(output) for output in self.program.outputs]
        output = pytree.tree_map(lambda index: leaves[index], self.program.structure)
        return self.tree.finish(output, self.program.path.stem)

    def _check_memory(self) -> None:
        """Refuse a program whose values that live at one time do not fit into the machine."""
        order = {node: index for index, node in enumerate(self.tree.graph.nodes)}
        lives: dict[int, tuple[int, int, int]] = {}  # memory → first and last operator, bytes
        for value in self.values.values():
            if isinstance(value, Traced):
                ends = [order[value.node], *(order[user] for user in value.node.users)]
                first, last, _ = lives.get(_memory(value), (ends[0], ends[0], 0))
                size = value.metas[0].untyped_storage().nbytes()
                lives[_memory(value)] = min(first, *ends), max(last, *ends), size
        change = [0] * (len(order) + 1)
        for first, last, size in lives.values():
            change[first] += size
            change[last + 1] -= size
        if (peak := max(accumulate(change))) > (limit := _memory_of_machine()):
            raise NotConvertibleError(
                f"since its values take {peak:,} bytes at one time, and this machine has {limit:,}"
            )

    def _convert(self, node: dict[str, Any]) -> None:
        target = node["target"]
        if target.removeprefix("torch.ops.").rpartition(".")[0] in CHECKS:
            return
        if target in SIZES:
            left, right = (self._size(entry["arg"]) for entry in node["inputs"])
            result: Any = self.tree.arithmetic(SIZES[target], left, right)
        elif target == "torch.ops.aten.sym_size.int":
            value, axis = (self._argument(entry["arg"]) for entry in node["inputs"])
            result = self._size_of(value, axis)
        else:
            result = self._called(node)
        self._store(node["outputs"], result)

    def _called(self, node: dict[str, Any]) -> Any:
        name, function, is_in_place = named_operator(node["target"])
        call = self._call(name, function, node)
        if any(call.arguments.get(option) for option in RANDOM):
            raise NotConvertibleError("it is captured in training mode; export it after eval()")
        result = as_layer(call)
        if result is None:
            positional, keywords = pytree.tree_map(
                self._lifted, (call.positional, call.keywords), is_leaf=_is_constant
            )
            known = KNOWN_AS.get(function.__name__, function)
            result = self.tree.call(known, *positional, **keywords)
        if is_in_place:
            self._overwrite(node["inputs"][0]["arg"]["as_tensor"]["name"], result)
        return result

    def _call(self, name: str, function: Any, node: dict[str, Any]) -> Call:
        """The call with its arguments in the order of the operator's schema."""
        given = {entry["name"]: self._argument(entry["arg"]) for entry in node["inputs"]}
        kinds = {entry["name"]: entry.get("kind") for entry in node["inputs"]}
        path = _path(self.program, node)
        if not hasattr(function, "_schema"):
            positional = [value for key, value in given.items() if kinds[key] == POSITIONAL]
            keywords = {key: value for key, value in given.items() if kinds[key] != POSITIONAL}
            return Call(name, function, positional, keywords, given, path, self.tree)
        schema = function._schema.arguments
        if unknown := given.keys() - {argument.name for argument in schema}:
            raise NotConvertibleError(f"it has no argument {shown(min(unknown))}")
        if "device" in (argument.name for argument in schema):
            given["device"] = Place()
        full = {
            argument.name: given.get(argument.name, argument.default_value) for argument in schema
        }
        by_place = [argument.name for argument in schema if not argument.kwarg_only]
        last = max((at for at, key in enumerate(by_place) if key in given), default=-1)
        positional = [full[key] for key in by_place[: last + 1]]
        keywords = {key: value for key, value in given.items() if key not in by_place}
        return Call(name, function, positional, keywords, full, path, self.tree)

    def _argument(self, argument: dict[str, Any]) -> Any:
        """An argument as the file writes it: a dict with its kind and its value."""
        kind, value = next(iter(argument.items()))
        if kind in PLAIN:
            return value
        if kind == "as_none":
            return None
        if kind == "as_tensor":
            return self._value(value["name"])
        if kind == "as_tensors":
            return [self._value(each["name"]) for each in value]
        if kind == "as_optional_tensors":
            return [self._argument(each) for each in value]
        if kind == "as_optional_tensor":
            return self._argument(value)
        if kind in ("as_sym_int", "as_sym_bool"):
            return self._symbol(value)
        if kind in ("as_sym_ints", "as_sym_bools"):
            return [self._symbol(each) for each in value]
        if kind == "as_scalar_type":
            return DTYPES[value]
        if kind == "as_memory_format":
            return MEMORY_FORMATS[value]
        if kind == "as_device":
            return Place()
        if kind == "as_layout":
            return torch.strided
        raise NotConvertibleError(f"its argument is of the kind {shown(kind)}, which is not read")

    def _symbol(self, symbol: dict[str, Any]) -> Any:
        """A size that an operator reads: a number where all examples have the same."""
        if "as_name" not in symbol:
            return next(iter(symbol.values()))
        value = self.values[symbol["as_name"]]
        return value if isinstance(value.value, fx.Node) else value.value

    def _size(self, argument: dict[str, Any]) -> Size:
        value = self._argument(argument)
        return value if isinstance(value, Size) else Size(value, (int(value),) * self.tree.examples)

    def _size_of(self, value: Any, axis: int) -> Size:
        if isinstance(value, Traced):
            return self.tree.size(value, axis)
        size = value.tensor.shape[axis]
        return Size(size, (size,) * self.tree.examples)

    def _value(self, name: str) -> Any:
        if name in self.overwritten:
            raise NotConvertibleError(f"{shown(name)} is changed in place and read again")
        if name not in self.values:
            raise NotConvertibleError(f"it reads {shown(name)}, which nothing makes")
        return self.values[name]

    def _lifted(self, value: Any) -> Any:
        """A weight as the module reads it at each call; a computed constant as it is."""
        if not isinstance(value, Constant) or not value.name:
            return value
        lifted = self.tree.lifted(value)
        self.weights_read.add(_memory(lifted))
        return lifted

    def _overwrite(self, name: str, result: Any) -> None:
        """Let a name mean what was written there; others of the same memory are read no more."""
        old = self._value(name)
        if old is result:
            return
        if not isinstance(old, Traced) or _memory(old) in self.weights_read:
            raise NotConvertibleError("it writes into a weight or a constant")
        memory = _memory(old)
        self.overwritten |= {
            key
            for key, value in self.values.items()
            if isinstance(value, Traced) and _memory(value) == memory
        }
        self.overwritten.discard(name)
        self.values[name] = result

    def _store(self, outputs: list[dict[str, Any]], result: Any) -> None:
        """Keep the results by the names that the file gives them, if they are what it says."""
        results = result if isinstance(result, list | tuple) else [result]
        names: list[Any] = []
        for output in outputs:
            value = next(iter(output.values()))
            each = value if isinstance(value, list) else [value]
            names += [entry if isinstance(entry, bool) else _name(entry) for entry in each]
        if len(names) > len(results):
            raise NotConvertibleError(f"it gives {len(results)} values, and {len(names)} are read")
        for name, value in zip(names, results, strict=False):
            if isinstance(name, str):
                self._check(name, value)
                self.values[name] = value
                self.overwritten.discard(name)

    def _check(self, name: str, value: Any) -> None:
        """Refuse a tensor of another shape or dtype than the file says."""
        meta = self.program.values.get(name)
        if meta is None or isinstance(value, Size):
            return
        tensor = value.tensor if isinstance(value, Constant) else value.metas[0]
        sizes = [size.get("as_int") for size in meta["sizes"]]
        fits = len(sizes) == tensor.ndim and all(
            size in (None, own) for size, own in zip(sizes, tensor.shape, strict=True)
        )
        if not fits or DTYPES.get(meta["dtype"]) != tensor.dtype:
            raise NotConvertibleError(
                f"it makes a tensor of {tensor.dtype} and the shape {tuple(tensor.shape)}, which "
                f"is not what the file says of {shown(name)}"
            )


def _name(entry: dict[str, Any]) -> Any:
    """The name of a result, as a tensor, a size or an entry of several kinds has it."""
    if "name" in entry:
        return entry["name"]
    if "as_name" in entry:
        return entry["as_name"]
    value = next(iter(entry.values()))
    return _name(value) if isinstance(value, dict) else None


def _memory_of_machine() -> int:
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 16 << 30  # Windows has no such call


def _memory(value: Traced) -> int:
    return int(value.metas[0].untyped_storage()._cdata)


def _is_constant(leaf: Any) -> bool:
    return isinstance(leaf, Constant | Traced | Size | Place)


def _path(program: Program, node: dict[str, Any]) -> str:
    """Where a layer goes: where it was in the model, else beside its weight."""
    stack = str(node["metadata"].get("nn_module_stack", "")).rpartition(";")[2].split(",")
    path, kind = (stack[1], stack[2]) if len(stack) == 3 else ("", "")
    if program.is_wrapped:
        path = path.removeprefix(PREFIX)
    if not path.isascii() or not path.replace(".", "").replace("_", "").isalnum():
        path = ""
    if path and LAYER.match(kind):
        return path
    for entry in node["inputs"]:
        name = entry["arg"].get("as_tensor", {}).get("name")
        weight = program.weights.get(name)
        if weight is not None and weight.name.endswith("weight"):
            return weight.name.removesuffix("weight").rstrip("._") or "layer"
    return path or str(node["target"].split(".")[-2].strip("_"))

"""The operators of torch that one call of a model runs, recorded, and compiled into a function that
runs them again without modules, hooks or Python code of the model between them.

Python code of the model runs only while it is recorded, so the operators must not depend on what
the tensors hold: a model is recorded for two different inputs, and both recordings must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from ..errors import PaifuserError, StepError, first_line
from ..measure import output_error
from ..model.watch import describe, watching
from ..workload import Inputs

READS_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
LEAVES_TORCH = ("numpy", "tolist", "data_ptr", "untyped_storage", "__array__", "__dlpack__")
READS = "reads what a tensor holds, so that another call may run other operators"
MAX_ERROR = 1e-5  # of the same operators on the same inputs: sums by several threads may differ
OTHER_SCALE = 0.9  # of the second inputs
INTEGER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")  # in a line of code


@dataclass(frozen=True)
class Operation:
    """An operator that was called: its line of code, its layer and the bytes of its tensors."""

    overload: OpOverload
    name: str  # such as aten.add.Tensor
    layer: str
    line: str
    tensors: tuple[str, ...]  # that it reads or makes, by name
    read_bytes: int
    written_bytes: int


@dataclass
class Tape:
    """The operators of a call in their order, and what they read beside inputs and each other."""

    count: int  # of input tensors
    operations: list[Operation] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    spec: Any = None
    has_length: bool = False  # whether the lines have a number n in them

    @classmethod
    def of(cls, model: nn.Module, inputs: Inputs) -> Tape:
        """Record a call, and check that other inputs of the same shapes run the same operators;
        raises StepError where they do not.
        """
        tape = _recorded(model, inputs)
        try:
            other = inputs.map(_changed)
            if not tape.equals(_recorded(model, other)):
                raise StepError("it runs other operators for other inputs of the same shapes.")
            tape._check_output(model, other)
        except PaifuserError:
            raise
        except Exception as error:  # of the model's own code
            raise StepError(
                f"it fails for other inputs of the same shapes ({first_line(error)})."
            ) from error
        return tape

    @classmethod
    def with_length(cls, at: Callable[[int], nn.Module], inputs: Inputs, length: int) -> Tape:
        """Record calls whose operators differ in a length alone, such as of what a cache holds: for
        this length and the next. Integers that grow with it become `n` plus a constant; the
        function of the tape takes n after the inputs, and is checked at a third length.
        """
        other = inputs.map(torch.zeros_like)
        tape = _recorded(at(length), inputs)._following(_recorded(at(length + 1), other), length)
        tape._check_output(at(length + 2), other, length + 2)
        return tape

    def _following(self, longer: Tape, length: int) -> Tape:
        """This tape of a call at a length, with n for what is larger by one in that of the next."""
        if len(self.operations) == len(longer.operations):
            pairs = zip(self.operations, longer.operations, strict=True)
            operations = [_grown(own, other, length) for own, other in pairs]
            tape = replace(self, operations=operations, has_length=True)
            if tape.equals(replace(longer, operations=operations)):  # constants and outputs
                return tape
        raise StepError("it runs other operators at another length.")

    def _check_output(self, model: nn.Module, other: Inputs, *length: int) -> None:
        """Raise unless a replay for other inputs has the model's output."""
        fresh = other.clone()
        with _Escapes(model):
            expected = fresh(model)
        error, _ = output_error(expected, self.compiled()(*other.clone().tensors, *length))
        if not error <= MAX_ERROR:  # nor NaN
            raise StepError("its output depends on more than torch's operators and its inputs.")

    def equals(self, other: Tape) -> bool:
        """Whether both run the same operators on the same constants."""
        return (
            [(one.overload, one.line) for one in self.operations]
            == [(one.overload, one.line) for one in other.operations]
            and (self.outputs, self.spec) == (other.outputs, other.spec)
            and len(self.constants) == len(other.constants)
            and all(map(_is_same, self.constants, other.constants))
        )

    def compiled(self, marks: list[float] | None = None) -> Callable[..., Any]:
        """A function of the input tensors; with `marks` it adds the time after each operator."""
        space: dict[str, Any] = {f"k{index}": value for index, value in enumerate(self.constants)}
        last = {name: index for index, one in enumerate(self.operations) for name in one.tensors}
        takes = [*(f"a{index}" for index in range(self.count)), *(["n"] if self.has_length else [])]
        lines = [f"def replay({', '.join(takes)}):"]
        if marks is not None:
            space |= {"mark": marks.append, "now": perf_counter}
            lines.append(" mark(now())")
        for index, one in enumerate(self.operations):
            space[f"f{index}"] = one.overload._op  # the operator itself, without its Python wrapper
            # memory is free for the next operator once nobody reads it
            over = [
                name for name in one.tensors if last[name] == index and name not in self.outputs
            ]
            lines.append(f" {one.line.replace('f(', f'f{index}(', 1)}")
            lines += [f" del {', '.join(over)}"] if over else []
            lines += [" mark(now())"] if marks is not None else []
        if self.spec.is_leaf():
            lines.append(f" return {self.outputs[0]}")
        else:
            space |= {"restore": pytree.tree_unflatten, "spec": self.spec}
            lines.append(f" return restore([{', '.join(self.outputs)}], spec)")
        exec("\n".join(lines), space)
        replay: Callable[..., Any] = space["replay"]
        return replay


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes each operator that is called on a tape."""

    def __init__(self, tape: Tape, model: nn.Module, inputs: Inputs) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape, self.model, self.layers = tape, model, [""]
        self.names = WeakTensorKeyDictionary()  # memory is freed while recording, as in other calls
        for index, tensor in enumerate(inputs.tensors):
            self.names[tensor] = f"a{index}"
        self.known: dict[int, str] = {}  # constants by identity; the tape keeps them alive
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, str(func)
        if not isinstance(func, OpOverload):
            raise StepError(f"{func} is no operator that can be called again.")
        if any(tag in func.tags for tag in READS_VALUES) and not _is_by_numbers(func, args):
            raise StepError(f"{describe(self.model, self.layers[-1])} {READS} ({name}).")
        if func is torch.ops.aten.lift_fresh.default:  # a tensor of Python numbers, new each call
            func, args = torch.ops.aten.clone.default, (args[0].clone(),)
        texts = [self.source(arg) for arg in args]
        texts += [f"{key}={self.source(value)}" for key, value in kwargs.items()]
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        output = func(*args, **kwargs)
        line = f"{self.target(output)} = f({', '.join(texts)})"
        made = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
        names = dict.fromkeys(self.names[x] for x in (*tensors, *made) if x in self.names)
        read, written = (sum(map(_bytes_of, part)) for part in (tensors, made))
        self.tape.operations.append(
            Operation(func, name, self.layers[-1], line, tuple(names), read, written)
        )
        return output

    def source(self, value: Any) -> str:
        """Code for an argument."""
        if isinstance(value, Tensor) and value in self.names:
            name: str = self.names[value]
            return name
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self.source, value))}]"
        if value is None or type(value) in (bool, int):
            return repr(value)
        if id(value) not in self.known:
            self.known[id(value)] = f"k{len(self.tape.constants)}"
            self.tape.constants.append(value)
        return self.known[id(value)]

    def target(self, output: Any) -> str:
        """Code that takes an operator's output; what is written in place keeps its name."""
        if isinstance(output, (list, tuple)):
            return f"[{', '.join(map(self.target, output))}]"
        if not isinstance(output, Tensor) or id(output) in self.known:
            return "_"
        if output not in self.names:
            self.count += 1
            self.names[output] = f"v{self.count}"
        name: str = self.names[output]
        return name


class _Escapes(TorchFunctionMode):
    """Raises where what a call computed is handed to code outside torch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in LEAVES_TORCH and id(args[0]) not in self.own:
            raise StepError(f"its forward {READS} (Tensor.{name}).")
        return func(*args, **(kwargs or {}))


def _recorded(model: nn.Module, inputs: Inputs) -> Tape:
    inputs = inputs.clone()
    tape = Tape(len(inputs.tensors))
    recorder = _Recorder(tape, model, inputs)

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        recorder.layers.append(layer)

    def leave(layer: str, output: Any) -> None:
        recorder.layers.pop()

    with watching(model, enter, leave), recorder:
        output = inputs(model)
    leaves, tape.spec = pytree.tree_flatten(output)
    tape.outputs = [recorder.source(leaf) for leaf in leaves]
    return tape


def _changed(tensor: Tensor) -> Tensor:
    """Another tensor like this one; integers stay within the same range."""
    moved = tensor.roll(1, -1) if tensor.dim() else tensor
    return (moved * OTHER_SCALE).to(tensor.dtype) if tensor.is_floating_point() else moved


def _grown(own: Operation, longer: Operation, length: int) -> Operation:
    """An operation with `n` in place of the integers that are larger by one in the other."""
    texts, others = (INTEGER.split(one.line) for one in (own, longer))
    if own.overload is not longer.overload or texts != others:
        raise StepError("it runs other operators at another length.")
    numbers = iter(INTEGER.findall(longer.line))

    def grown(match: re.Match[str]) -> str:
        number, larger = int(match[0]), int(next(numbers))
        return f"n{number - length:+d}" if larger > number else str(number)

    return replace(own, line=INTEGER.sub(grown, own.line))


def _is_same(one: Any, other: Any) -> bool:
    """Whether two constants are one object, or equal ones that each call makes anew."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return type(one) is type(other) and bool(one == other)
    return one is other or (
        one.layout is other.layout is torch.strided
        and one.dtype == other.dtype
        and torch.equal(one, other)
    )


def _is_by_numbers(func: OpOverload, args: Any) -> bool:
    """Whether it takes rows by their numbers: only a mask's output has a shape of its own."""
    indices = args[1] if func is torch.ops.aten.index.Tensor else [None]
    kinds = [index.dtype for index in indices if isinstance(index, Tensor)]
    return bool(kinds) and not {torch.bool, torch.uint8} & set(kinds)


def _bytes_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()

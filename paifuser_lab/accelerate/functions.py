"""Faster forms of plain functions: products fused with what follows them, or compiled by Inductor.

fused = lab.enable_operator_fusion(lambda x, y: torch.relu(x @ y.T + 0.5))
fused(x, y)          # one kernel
fused.report(x, y)   # its error, and both timed in turn; what is slower is not used
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from types import CellType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ..errors import AccelerationError, first_line
from ..fusion.consumers import Follower
from ..fusion.fallback import wants_gradient
from ..fusion.products import products_of
from ..measure import Candidate, output_error, ratio_of_rounds, rounds_in_turn
from ..model.silence import compilers_silenced
from ..model.watch import TRACING
from ..records import FasterFunctionReport

Kind = tuple[Any, ...]  # of a call's arguments
ROUNDS = 30
# operators that make or look at a tensor, and compute nothing
FREE = (
    "aten::empty", "aten::as_strided", "aten::t", "aten::view", "aten::transpose", "aten::detach",
    "aten::resolve", "aten::result_type", "aten::numpy_T", "aten::permute", "aten::lift",
    "aten::reshape", "aten::expand", "aten::unsafe_view", "aten::_reshape_alias", "aten::full",
    "aten::fill_", "aten::set_", "aten::alias", "aten::_unsafe_view",
)  # fmt: skip


class FasterFunction:
    """A function with a faster form, unused where `report` has measured it as slower."""

    def __init__(
        self,
        function: Callable[..., Any],
        faster: Callable[..., Any],
        backend: str,
        kernels_inside: Callable[[], int] = lambda: 0,
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function, self.faster, self.backend = function, faster, backend
        self._kernels_inside = kernels_inside
        self._slower: set[Kind] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._slower and kind_of(args, kwargs) in self._slower:
            return self.function(*args, **kwargs)
        return self.faster(*args, **kwargs)

    def report(self, *args: Any, seconds: float = 2.0, **kwargs: Any) -> FasterFunctionReport:
        """Compare both forms on these arguments: kernels, error, and time in turn. Where the faster
        form is slower, the function is computed as written for inputs of these shapes from now on.
        """
        with torch.no_grad():
            expected, actual = self.function(*args, **kwargs), self.faster(*args, **kwargs)
            error, largest = output_error(expected, actual)
            before = _kernels(lambda: self.function(*args, **kwargs))
            after = _kernels(lambda: self.faster(*args, **kwargs)) + self._kernels_inside()
        count, tensors = torch.get_num_threads(), _tensors_in(args, kwargs)
        device = tensors[0].device if tensors else torch.device("cpu")
        kind = kind_of(args, kwargs)
        self._slower.discard(kind)  # so that the call is that of the faster form
        candidates = [
            Candidate("before", lambda: self.function(*args, **kwargs), count, device),
            Candidate("after", lambda: self(*args, **kwargs), count, device),
        ]
        *_, samples = rounds_in_turn(candidates, rounds=ROUNDS, seconds=seconds)
        ratio, interval = ratio_of_rounds(samples["before"], samples["after"])
        report = FasterFunctionReport(
            name=_name(self.function),
            backend=self.backend,
            kernels_before=before,
            kernels_after=after,
            relative_error=error,
            largest_error=largest,
            before_ms=samples["before"].median_ms,
            after_ms=samples["after"].median_ms,
            ratio=ratio,
            interval=interval,
            threads=count,
        )
        if report.is_slower:
            self._slower.add(kind)
        return report


def fused_function(function: Callable[..., Any]) -> FasterFunction:
    """The function with its matrix products fused with what follows; without any, by Inductor."""
    _check_callable(function)
    held = _held_by(function)
    try:
        with TRACING:
            tracer = fx.Tracer()
            graph = tracer.trace(function)
    except Exception as error:
        raise AccelerationError(
            f"{_name(function)} cannot be traced ({first_line(error)[:120]}); give "
            "enable_graph_optimization a function that branches on its values."
        ) from error
    root = tracer.root  # with the tensors that the function takes from outside
    products = list(products_of(Follower(root, graph, ())))
    if not products:
        return compiled_function(function)
    nodes = {node.name: node for node in graph.nodes}
    for product in products:
        product.swallow(graph, nodes)
    module = fx.GraphModule(root, graph)
    outside = (*module.parameters(), *module.buffers())

    def fused(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and wants_gradient(*_tensors_in(args, kwargs), *outside):
            return function(*args, **kwargs)  # the fused product has no gradient
        if any(map(operator.is_not, _held_by(function), held)):
            return function(*args, **kwargs)  # the fused form has what was replaced
        return module.forward(*args, **kwargs)

    return FasterFunction(function, fused, "fused product")


def _held_by(function: Callable[..., Any]) -> list[Any]:
    """What the function's closure and the globals that it names hold now."""
    cells = getattr(function, "__closure__", None) or ()
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    known = getattr(function, "__globals__", {})
    return [*map(_content, cells), *map(known.get, names)]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def compiled_function(function: Callable[..., Any]) -> FasterFunction:
    """The function compiled by Inductor at its first call."""
    _check_callable(function)
    from torch._inductor import metrics

    compiled, made, known = torch.compile(function), [0], set[Kind]()

    def faster(*args: Any, **kwargs: Any) -> Any:
        kind = (torch.is_grad_enabled(), *kind_of(args, kwargs))
        if kind in known:  # silencing the compiler costs more than a small function
            return compiled(*args, **kwargs)
        before = metrics.generated_kernel_count
        with compilers_silenced():
            output = compiled(*args, **kwargs)
        made[0] = max(made[0], metrics.generated_kernel_count - before)
        known.add(kind)
        return output

    return FasterFunction(function, faster, "Inductor", lambda: made[0])


def kind_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kind:
    """What a call takes: shapes, formats, devices, and whether there are gradients."""
    is_recorded = torch.is_grad_enabled()
    return (
        tuple(kwargs),
        *(
            (leaf.shape, leaf.dtype, leaf.device, is_recorded and leaf.requires_grad)
            if isinstance(leaf, Tensor)
            else type(leaf)
            for leaf in _leaves_of(args, kwargs)
        ),
    )


def _leaves_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    """The arguments, and what is in those that are containers."""
    values = (*args, *kwargs.values())
    if all(isinstance(value, Tensor) for value in values):
        return values
    return pytree.tree_leaves(values)


def _tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    return [leaf for leaf in _leaves_of(args, kwargs) if isinstance(leaf, Tensor)]


def _check_callable(function: Any) -> None:
    if isinstance(function, nn.Module) or not callable(function):
        what = f"a {type(function).__name__}"
        raise AccelerationError(
            f"This takes a function of tensors, not {what}; a model is accelerated in its training "
            "loop by a call without arguments, or changed by a recipe."
        )


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", "the function"))


def _kernels(call: Callable[[], Any]) -> int:
    """The operators of a call that compute something."""
    call()
    with torch.autograd.profiler.profile() as profiled:
        call()
    events = profiled.function_events or []
    return sum(_kernels_in(event) for event in events if event.cpu_parent is None)


def _kernels_in(event: Any) -> int:
    """The innermost operators of an event that compute something."""
    inside = sum(map(_kernels_in, event.cpu_children))
    return inside or int("::" in event.name and not event.name.startswith(FREE))

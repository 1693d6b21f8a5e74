"""A block whose forward calls its fused layers, or sums in place. It stays the same object with the
same parts.

It runs the rewritten graph if it is called with the same form as in the example run, in eval mode,
unchanged since then, and without autograd, autocast, compilation or export; else its own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..errors import StepError
from .activation import NONE
from .call_trace import Form
from .consumers import Chain, traced
from .fallback import is_composed
from .layers import kind_of
from .products import Product
from .snapshot import Snapshot, is_unchanged, take_snapshot

MADE = ("_rewriting", "_rewritten", "_seen")  # the attributes that a rewritten block gains
ADDED = "fused_residual"  # the keyword for the residual that a block adds to its output


@dataclass(frozen=True)
class Joined:
    """A call of a layer, or of a block that ends in one, and the nodes fused with it, by name."""

    call: str
    swallowed: tuple[str, ...]
    residual: str = ""
    activation: str = NONE

    @classmethod
    def of(cls, chain: Chain) -> Joined:
        """The chain by the names of its nodes."""
        nodes = tuple(node.name for node in chain.swallowed)
        return cls(
            chain.call.name, nodes, chain.residual.name if chain.residual else "", chain.activation
        )


@dataclass(frozen=True)
class Rewriting:
    """How a block's forward is rewritten: the form of its call, the calls that are fused with what
    follows, the call that takes the residual added to the block's output, and the sums that write
    over one of their operands, with the number of that operand.
    """

    form: Form
    joined: tuple[Joined, ...] = ()
    takes: str = ""
    products: tuple[Product, ...] = ()
    sums: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Rewriting:
        """A rewriting from plain data."""
        joined = (
            Joined(call["call"], tuple(call["swallowed"]), call["residual"], call["activation"])
            for call in data["joined"]
        )
        products = tuple(Product.of_data(call) for call in data.get("products", ()))
        sums = tuple((str(name), int(operand)) for name, operand in data.get("sums", ()))
        return cls(Form.of_data(data["form"]), tuple(joined), data["takes"], products, sums)

    @property
    def calls(self) -> list[Joined | Product]:
        """Every call that is fused with what follows it."""
        return [*self.joined, *self.products]

    @property
    def data(self) -> dict[str, Any]:
        """The rewriting as plain data."""
        joined = [{**vars(call), "swallowed": list(call.swallowed)} for call in self.joined]
        products = {"products": [call.data for call in self.products]} if self.products else {}
        sums = {"sums": [list(pair) for pair in self.sums]} if self.sums else {}
        return {"form": self.form.data, "joined": joined, "takes": self.takes, **products, **sums}

    def with_sums(self, sums: Iterable[tuple[str, int]]) -> Rewriting:
        """The same with sums in place, except for those that are fused with a layer."""
        fused = {name for call in self.calls for name in (call.call, *call.swallowed)}
        return replace(self, sums=tuple(pair for pair in sums if pair[0] not in fused))


def rewritten(block: nn.Module, rewriting: Rewriting, graph: fx.Graph) -> Callable[..., Any]:
    """A block's rewritten forward: a function of the block, its tensors and the added residual."""
    nodes = {node.name: node for node in graph.nodes}
    needed = [name for call in rewriting.calls for name in (call.call, *call.swallowed)]
    needed += [
        *([rewriting.takes] if rewriting.takes else []),
        *(name for call in rewriting.products for name in call.needed),
        *(name for name, _ in rewriting.sums),
    ]
    if missing := [name for name in needed if name not in nodes]:
        raise StepError(f"its forward has no '{missing[0]}', which it had when it was fused")
    if rewriting.takes:
        _take(graph, nodes[rewriting.takes])
    for call in rewriting.joined:
        _swallow(block, graph, nodes, call)
    for product in rewriting.products:
        product.swallow(graph, nodes)
    for name, operand in rewriting.sums:
        nodes[name].op, nodes[name].target = "call_function", summed
        nodes[name].args = (*nodes[name].args, operand)
    graph.lint()
    code = graph.python_code("self")
    space = dict(code.globals)
    exec(code.src, space)
    forward: Callable[..., Any] = space["forward"]
    return forward


def _take(graph: fx.Graph, call: fx.Node) -> None:
    """Let a layer's call add the residual that the block is called with."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_after(placeholders[-1]):
        call.kwargs = {**call.kwargs, "residual": graph.placeholder(ADDED), "is_sure": True}


def _swallow(block: nn.Module, graph: fx.Graph, nodes: dict[str, fx.Node], joined: Joined) -> None:
    """Replace a call and the nodes fused with it by one call, at the position of the last."""
    call, swallowed = nodes[joined.call], [nodes[name] for name in joined.swallowed]
    is_layer = bool(kind_of(block.get_submodule(str(call.target))))
    extra: dict[str, Any] = (
        {("residual" if is_layer else ADDED): nodes[joined.residual]} if joined.residual else {}
    )
    extra |= {} if joined.activation == NONE else {"activation": joined.activation}
    extra |= {"is_sure": True} if is_layer else {}  # the block has checked before it runs this
    with graph.inserting_before(swallowed[-1]):
        fused = graph.call_module(str(call.target), call.args, call.kwargs | extra)
    swallowed[-1].replace_all_uses_with(fused)
    for node in (*reversed(swallowed), call):
        graph.erase_node(node)
    # A residual that is one of the fused nodes is now this call's output.
    nodes |= {joined.call: fused} | dict.fromkeys(joined.swallowed, fused)


def summed(first: Tensor, second: Tensor, operand: int) -> Tensor:
    """The sum, written over an operand where that has the result's shape and layout."""
    if (
        type(first) is type(second) is Tensor
        and first.shape == second.shape
        and first.stride() == second.stride()
        and (first.dtype, first.device) == (second.dtype, second.device)
    ):
        return second.add_(first) if operand else first.add_(second)
    return first + second


class Generated:
    """The code generated from a block's forward: shared by all copies, and not pickled."""

    def __init__(self, run: Callable[..., Any] | None = None) -> None:
        self.run = run

    def __deepcopy__(self, memo: Any) -> Generated:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Generated, ()


class FusedBlock(nn.Module):
    """The methods that a rewritten block's class gains."""

    class_apart: type[nn.Module]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The block's output, plus the residual that a block around it adds through this one."""
        added = kwargs.pop(ADDED, None)
        if self._is_unchanged():
            tensors = self.__dict__["_rewriting"].form.taken_from(args, kwargs)
            if tensors is not None:
                return self._run(tensors, added)
        output = super().forward(*args, **kwargs)
        return output if added is None else output + added

    def _is_unchanged(self) -> bool:
        """Whether the generated code is valid for this call."""
        if (
            self.training
            or torch.is_grad_enabled()
            or is_composed()
            or torch._C._is_any_autocast_enabled()
        ):
            return False
        return self.__dict__["_rewritten"].run is not None and is_unchanged(
            self, self.__dict__["_seen"]
        )

    def _run(self, tensors: list[Tensor], added: Tensor | None) -> Any:
        run, rewriting = self.__dict__["_rewritten"].run, self.__dict__["_rewriting"]
        if rewriting.takes:
            return run(self, *tensors, added)
        output = run(self, *tensors)
        return output if added is None else output + added

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _blank, (self.class_apart,), self.__getstate__()  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.__dict__["_rewritten"].run is None:
            self.__dict__["_rewritten"] = Generated(_regenerated(self))


def _regenerated(block: nn.Module) -> Callable[..., Any] | None:
    """Generate the code after unpickling; None if the block or its code has changed since."""
    rewriting: Rewriting = block.__dict__["_rewriting"]
    block.__dict__["_rewritten"] = Generated(_unfinished)  # for the copy that is traced
    try:
        with _eval_mode(block):
            return (
                rewritten(block, rewriting, traced(block, rewriting.form))
                if is_unchanged(block, block.__dict__["_seen"])
                else None
            )
    except StepError:
        return None


def _unfinished(*args: Any) -> Any:
    raise AssertionError("a block is not called while it is read")


@contextmanager
def _eval_mode(block: nn.Module) -> Iterator[None]:
    """Set a block and its parts to eval mode within this context."""
    before = [(module, module.training) for module in block.modules()]
    for module, _ in before:
        module.training = False
    try:
        yield
    finally:
        for module, flag in before:
            module.training = flag


_classes: dict[type[nn.Module], Any] = {}  # by the class of the block


def _fused_class(kind: type[nn.Module]) -> Any:
    if kind not in _classes:
        names = {
            "class_apart": kind,
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
        }
        _classes[kind] = type(kind.__name__, (FusedBlock, kind), names)
    return _classes[kind]


def _blank(kind: type[nn.Module]) -> nn.Module:
    block: nn.Module = _fused_class(kind).__new__(_fused_class(kind))
    return block


def rewrite(block: nn.Module, rewriting: Rewriting) -> None:
    """Rewrite a block's forward; raises StepError, and changes nothing, if its code differs."""
    unfuse_block(block)
    with _eval_mode(block):
        graph = traced(block, rewriting.form)
        seen = _snapshot(block, rewriting, graph)
        forward = rewritten(block, rewriting, graph)
    block.__dict__ |= {"_rewriting": rewriting, "_rewritten": Generated(forward), "_seen": seen}
    block.__class__ = _fused_class(type(block))


def _snapshot(block: nn.Module, rewriting: Rewriting, graph: fx.Graph) -> Snapshot:
    """The state of a block and of the parts that its graph calls."""
    called = {node.name: str(node.target) for node in graph.nodes if node.op == "call_module"}
    fused = {
        called[name]
        for name in (*(call.call for call in rewriting.joined), rewriting.takes)
        if name in called
    }
    swallowed = {
        called[name] for call in rewriting.calls for name in call.swallowed if name in called
    }
    return take_snapshot(block, set(called.values()), fused, swallowed)


def sum_in_place(block: nn.Module, form: Form, sums: Iterable[tuple[str, int]]) -> None:
    """Let sums of a block write over an operand, beside what is fused in it."""
    known: Rewriting = block.__dict__.get("_rewriting") or Rewriting(form)
    if known.form == form:
        rewrite(block, known.with_sums(sums))


def sums_in(model: nn.Module) -> dict[str, Rewriting]:
    """The blocks of a model with sums in place."""
    rewritings = {name: part.__dict__.get("_rewriting") for name, part in model.named_modules()}
    return {name: known for name, known in rewritings.items() if known and known.sums}


def products_in(block: nn.Module) -> tuple[Product, ...]:
    """The products that are fused in a block; none if it is not rewritten."""
    rewriting: Rewriting | None = block.__dict__.get("_rewriting")
    return rewriting.products if rewriting else ()


def unfuse_block(block: nn.Module) -> None:
    """Restore the block's own class and forward."""
    block.__class__ = getattr(block, "class_apart", type(block))
    for name in MADE:
        block.__dict__.pop(name, None)

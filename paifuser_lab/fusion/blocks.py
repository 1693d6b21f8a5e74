"""A block whose forward calls its layers once with all that follows them. It stays the same object
with the same parts.

Called as in the example run, in eval mode, while it is as it was then, by nothing who
differentiates, compiles, exports or lets torch choose formats, it runs the graph; else its own
forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..errors import StepError
from .activation import NONE
from .block_graph import traced
from .call_trace import Form
from .consumers import Chain
from .fallback import is_composed
from .layers import kind_of
from .products import Product
from .snapshot import Snapshot, is_still, take_snapshot

MADE = ("_rewriting", "_rewritten", "_seen")  # what a rewritten block has beside its own
ADDED = "fused_residual"  # what a block is given to add to its output


@dataclass(frozen=True)
class Joined:
    """A call in a block's graph, of a layer or of a block that ends in one, and what it swallows,
    by the names of the nodes.
    """

    call: str
    swallowed: tuple[str, ...]
    residual: str = ""
    activation: str = NONE

    @classmethod
    def of(cls, chain: Chain) -> Joined:
        """The same without the graph."""
        nodes = tuple(one.name for one in chain.swallowed)
        return cls(
            chain.call.name, nodes, chain.residual.name if chain.residual else "", chain.activation
        )


@dataclass(frozen=True)
class Rewriting:
    """What a block's forward becomes: how it is called, which calls swallow what, and which takes
    what is added to its output.
    """

    form: Form
    joined: tuple[Joined, ...]
    takes: str = ""
    products: tuple[Product, ...] = ()

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Rewriting:
        """A rewriting from plain data."""
        joined = (
            Joined(one["call"], tuple(one["swallowed"]), one["residual"], one["activation"])
            for one in data["joined"]
        )
        products = tuple(Product.of_data(one) for one in data.get("products", ()))
        return cls(Form.of_data(data["form"]), tuple(joined), data["takes"], products)

    @property
    def calls(self) -> list[Joined | Product]:
        """Every call that swallows what follows it."""
        return [*self.joined, *self.products]

    @property
    def data(self) -> dict[str, Any]:
        """The rewriting as plain data."""
        joined = [{**vars(one), "swallowed": list(one.swallowed)} for one in self.joined]
        products = {"products": [one.data for one in self.products]} if self.products else {}
        return {"form": self.form.data, "joined": joined, "takes": self.takes, **products}


def rewritten(block: nn.Module, how: Rewriting, graph: fx.Graph) -> Callable[..., Any]:
    """A block's forward, of which this is the graph, as a function of the block, its tensors, and
    what is added to its output.
    """
    nodes = {node.name: node for node in graph.nodes}
    needed = [name for one in how.calls for name in (one.call, *one.swallowed)]
    needed += [
        *([how.takes] if how.takes else []),
        *(name for one in how.products for name in one.needed),
    ]
    if missing := [name for name in needed if name not in nodes]:
        raise StepError(f"its forward has no '{missing[0]}', which it had when it was fused")
    if how.takes:
        _take(graph, nodes[how.takes])
    for one in how.joined:
        _swallow(block, graph, nodes, one)
    for product in how.products:
        product.swallow(graph, nodes)
    graph.lint()
    code = graph.python_code("self")
    space = dict(code.globals)
    exec(code.src, space)
    made: Callable[..., Any] = space["forward"]
    return made


def _take(graph: fx.Graph, call: fx.Node) -> None:
    """Let a layer's call add what the block is given to be added."""
    given = [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_after(given[-1]):
        call.kwargs = {"residual": graph.placeholder(ADDED), "is_sure": True}


def _swallow(block: nn.Module, graph: fx.Graph, nodes: dict[str, fx.Node], one: Joined) -> None:
    """Put the call where the last of what it swallows was."""
    call, swallowed = nodes[one.call], [nodes[name] for name in one.swallowed]
    is_layer = bool(kind_of(block.get_submodule(str(call.target))))
    extra: dict[str, Any] = (
        {("residual" if is_layer else ADDED): nodes[one.residual]} if one.residual else {}
    )
    extra |= {} if one.activation == NONE else {"activation": one.activation}
    extra |= {"is_sure": True} if is_layer else {}  # the block asked before it ran this
    with graph.inserting_before(swallowed[-1]):
        made = graph.call_module(str(call.target), call.args, call.kwargs | extra)
    swallowed[-1].replace_all_uses_with(made)
    for node in (*reversed(swallowed), call):
        graph.erase_node(node)
    nodes |= {one.call: made} | dict.fromkeys(
        one.swallowed, made
    )  # what is added to one of them is added to this


class Generated:
    """What was made of a block's forward: one for all copies, and in no file."""

    def __init__(self, run: Callable[..., Any] | None = None) -> None:
        self.run = run

    def __deepcopy__(self, memo: Any) -> Generated:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Generated, ()


class FusedBlock(nn.Module):
    """What a rewritten block adds to its class."""

    class_apart: type[nn.Module]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The block's output, as its own forward gives it, and what is added to it in a block
        around it.
        """
        added = kwargs.pop(ADDED, None)
        tensors = self._taken(args, kwargs) if self._is_as_it_was() else None
        if tensors is not None:
            return self._run(tensors, added)
        made = super().forward(*args, **kwargs)
        return made if added is None else made + added

    def _is_as_it_was(self) -> bool:
        """Whether what was made of its forward is right for this call."""
        if (
            self.training
            or torch.is_grad_enabled()
            or is_composed()
            or torch._C._is_any_autocast_enabled()
        ):
            return False
        return self.__dict__["_rewritten"].run is not None and is_still(
            self, self.__dict__["_seen"]
        )

    def _taken(self, args: Any, kwargs: Any) -> list[Tensor] | None:
        how: Rewriting = self.__dict__["_rewriting"]
        return how.form.taken_from(args, kwargs)

    def _run(self, tensors: list[Tensor], added: Tensor | None) -> Any:
        run, how = self.__dict__["_rewritten"].run, self.__dict__["_rewriting"]
        if how.takes:
            return run(self, *tensors, added)
        made = run(self, *tensors)
        return made if added is None else made + added

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _blank, (self.class_apart,), self.__getstate__()  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.__dict__["_rewritten"].run is None:
            self.__dict__["_rewritten"] = Generated(_made_again(self))


def _made_again(block: nn.Module) -> Callable[..., Any] | None:
    """What is not in a file; None, and the block's own forward runs, where block or code are not
    what they were when it was fused.
    """
    how: Rewriting = block.__dict__["_rewriting"]
    block.__dict__["_rewritten"] = Generated(_unfinished)  # for the copy that is traced
    try:
        with _evaluated(block):
            return (
                rewritten(block, how, traced(block, how.form))
                if is_still(block, block.__dict__["_seen"])
                else None
            )
    except StepError:
        return None


def _unfinished(*given: Any) -> Any:
    raise AssertionError("a block is not called while it is read")


@contextmanager
def _evaluated(block: nn.Module) -> Iterator[None]:
    """A block and its parts in eval mode."""
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
    made: nn.Module = _fused_class(kind).__new__(_fused_class(kind))
    return made


def rewrite(block: nn.Module, how: Rewriting) -> None:
    """Let a block run rewritten; an error, and no change, where its code no longer fits."""
    make_original(block)
    with _evaluated(block):
        graph = traced(block, how.form)
        seen = _snapshot(block, how, graph)
        made = rewritten(block, how, graph)
    block.__dict__ |= {"_rewriting": how, "_rewritten": Generated(made), "_seen": seen}
    block.__class__ = _fused_class(type(block))


def _snapshot(block: nn.Module, how: Rewriting, graph: fx.Graph) -> Snapshot:
    """A block as it is, by what its graph calls."""
    called = {node.name: str(node.target) for node in graph.nodes if node.op == "call_module"}
    fused = {
        called[name] for name in (*(one.call for one in how.joined), how.takes) if name in called
    }
    swallowed = {called[name] for one in how.calls for name in one.swallowed if name in called}
    return take_snapshot(block, set(called.values()), fused, swallowed)


def products_in(block: nn.Module) -> tuple[Product, ...]:
    """The products that run as one in a rewritten block; none in another."""
    how: Rewriting | None = block.__dict__.get("_rewriting")
    return how.products if how else ()


def make_original(block: nn.Module) -> None:
    """Take that back."""
    block.__class__ = getattr(block, "class_apart", type(block))
    for name in MADE:
        block.__dict__.pop(name, None)

"""Finds the sites of fusion: a layer or product, and the operators after it that can be fused."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from torch import fx, nn

from ..errors import StepError
from ..model.layers import has_hooks
from ..quantization import QuantizedLayer
from .activation import NONE
from .backends import backends_for
from .blocks import Joined, Rewriting
from .call_trace import CallTrace, Form
from .consumers import Chain, Follower, passes_through, traced
from .layers import kind_of, obstacle
from .products import Product, functional_convolutions, products_of, site_name
from .snapshot import unfused_class

WITHOUT_FORWARD = (nn.ModuleList, nn.ModuleDict)
INSTEAD = "the step backend: {name: inductor} fuses functions, too"
STAYS = "what follows is not fused"
LIKE_A_LAYER = (nn.modules.conv._ConvNd, nn.Linear, QuantizedLayer)


@dataclass(frozen=True)
class Site:
    """A layer or a product and what can be fused with it."""

    layer: str
    kind: str
    block: str = ""  # the block whose forward contains what follows the layer
    joined: Joined | None = None  # None where the layer is alone
    inner: str = ""  # the block that ends with the layer, where the sum is in the block around it
    inner_call: str = ""  # of the layer, in the graph of `inner`
    modules: tuple[str, ...] = ()  # parts whose work the fused layer does
    reason: str = ""  # why it is not fused, or why what follows is not
    can_be: bool = True
    product: Product | None = None  # for a product that the block calls as a function

    @property
    def is_in_block(self) -> bool:
        """Whether fusing it rewrites the block's forward."""
        return self.joined is not None or self.product is not None

    @property
    def has_residual(self) -> bool:
        """Whether a sum is fused with it."""
        return self.joined is not None and bool(self.joined.residual)

    @property
    def activation(self) -> str:
        """The activation at its end."""
        call = self.joined or self.product
        return call.activation if call else NONE


@dataclass(frozen=True)
class View:
    """A block's graph and the form of its call."""

    block: str
    graph: fx.Graph
    form: Form


@dataclass
class FusionSites:
    """The sites of a model in running order, and the blocks rewritten for some of them."""

    sites: list[Site] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what cannot be fused although it looks so
    backends: dict[str, str] = field(default_factory=dict)  # of the products, once evaluated

    def rewritings(self, fused: Collection[str]) -> dict[str, Rewriting]:
        """How each block runs when these sites are fused."""
        rewritings: dict[str, Rewriting] = {}
        chosen = [site for site in self.sites if site.is_in_block and site.layer in fused]
        for block, view in self.views.items():
            joined = tuple(site.joined for site in chosen if site.joined and site.block == block)
            takes = next(
                (site.inner_call for site in chosen if site.inner_call and site.inner == block),
                "",
            )
            products = tuple(
                replace(site.product, backend=self.backends.get(site.layer, ""))
                for site in chosen if site.product and site.block == block
            )  # fmt: skip
            if joined or takes or products:
                rewritings[block] = Rewriting(view.form, joined, takes, products)
        return rewritings


def find_sites(model: nn.Module, trace: CallTrace) -> FusionSites:
    """Every site of a model, given the trace of one run."""
    return _Search(model, trace).run()


class _Search:
    """The search through the blocks of one model."""

    def __init__(self, model: nn.Module, trace: CallTrace) -> None:
        self.model, self.trace = model, trace
        self.layers = [
            name
            for name, module in model.named_modules()
            if name and isinstance(module, LIKE_A_LAYER)
        ]
        self.followers: dict[str, Follower | str] = {}  # or the reason why there is none
        self.forms: dict[str, Form] = {}

    def run(self) -> FusionSites:
        """Every site, and the graphs of the blocks that are rewritten for some of them."""
        refused = {layer: reason for layer in self.layers if (reason := self._refused(layer))}
        sites = {
            layer: Site(layer, self._kind(layer), reason=reason, can_be=False)
            for layer, reason in refused.items()
        }
        homes = {layer: _around(self.model, layer) for layer in self.layers if layer not in refused}
        ends = {layer: home for layer, home in homes.items() if self._is_end(layer, home)}
        for block in dict.fromkeys(
            [*homes.values(), *(_around(self.model, home) for home in ends.values())]
        ):
            mine = [layer for layer, home in homes.items() if home == block and layer not in ends]
            mine += [layer for layer, home in ends.items() if _around(self.model, home) == block]
            sites |= {site.layer: site for site in self._sites(block, mine, ends)}
        sites |= {site.layer: site for site in self._products()}
        order = {layer: index for index, layer in enumerate(self.trace.forms)}
        ordered = sorted(
            sites.values(),
            key=lambda site: order.get(site.block if site.product else site.layer, len(order)),
        )
        return FusionSites(ordered, self._views(ordered), self._notes(ordered))

    def _products(self) -> Iterator[Site]:
        """The products that blocks call as functions, with what follows them."""
        for block in self._own_blocks():
            if isinstance(follower := self._follower(block), Follower):
                for product in products_of(follower):
                    modules = tuple(_full(block, name) for name in product.modules)
                    yield Site(
                        site_name(block, product),
                        "matrix product",
                        block,
                        modules=modules,
                        product=product,
                    )

    def _own_blocks(self) -> list[str]:
        """The modules that ran user code: those of torch.nn call nothing that could be fused."""
        return [
            name for name, module in self.model.named_modules()
            if self.trace.calls[name]
            and not unfused_class(module).__module__.startswith("torch.nn.")
            and not isinstance(module, QuantizedLayer)
        ]  # fmt: skip

    def _notes(self, sites: list[Site]) -> list[str]:
        """Notes on convolutions called as functions, and where there is no site, on the reason."""
        notes = []
        for block in self._own_blocks():
            follower = self._follower(block)
            where = f"in the forward of '{block}'" if block else "in the model's own forward"
            if isinstance(follower, str) and not sites:
                notes.append(f"not fused: what is {where}, since {follower}")
            elif isinstance(follower, Follower) and (names := functional_convolutions(follower)):
                notes.append(
                    f"not fused: {', '.join(names)} {where}, called as a function; as a layer "
                    "(nn.Conv2d) it could be fused"
                )
        if not sites:
            notes.append(
                "no layer and no matrix product of this model is followed by a sum or an "
                "activation that can be fused with it"
            )
        return [f"{note}; {INSTEAD}" for note in notes]

    def _views(self, sites: list[Site]) -> dict[str, View]:
        swallowing = [site for site in sites if site.is_in_block]
        blocks = {site.block for site in swallowing} | {
            site.inner for site in swallowing if site.inner
        }
        followers = {block: self._follower(block) for block in sorted(blocks)}
        return {
            block: View(block, follower.graph, self.forms[block])
            for block, follower in followers.items()
            if isinstance(follower, Follower)
        }

    def _sites(self, block: str, layers: list[str], ends: dict[str, str]) -> list[Site]:
        """The sites of these layers, or of blocks that end in them, in the order of their calls."""
        follower = self._follower(block)
        if isinstance(follower, str):
            where = f"in '{block}' " if block else ""
            return [
                self._alone(layer, "" if layer in ends else f"{STAYS}: {where}{follower}")
                for layer in layers
            ]
        calls = {
            layer: follower.call_of(
                _within(block, ends.get(layer, layer)), is_layer=layer not in ends
            )
            for layer in layers
        }
        order = {node: index for index, node in enumerate(follower.graph.nodes)}
        layers.sort(key=lambda layer: order.get(calls[layer], -1))
        return [
            self._site(block, follower, layer, calls[layer], ends.get(layer, ""))
            for layer in layers
        ]

    def _site(
        self, block: str, follower: Follower, layer: str, call: fx.Node | None, inner: str
    ) -> Site:
        counts = {self.trace.calls[name] for name in (layer, block, inner or layer)}
        if call is None or len(counts) > 1:
            return self._alone(layer, f"{STAYS}: it is called more than once, or from elsewhere")
        chain = next(self._possible(follower, layer, call, inner))
        if chain.is_alone:
            return self._alone(layer, f"{STAYS}: {chain.reason}" if chain.reason else "")
        if has_hooks(self.model.get_submodule(layer)):
            return self._alone(layer, f"{STAYS}: it has hooks")
        follower.take(chain)
        modules = tuple(_full(block, name) for name in chain.modules)
        joined = Joined.of(chain)
        if not inner:
            return Site(layer, self._kind(layer), block, joined, modules=modules)
        own = self._call(layer, inner)
        return Site(
            layer, self._kind(layer), block, joined, inner, own.name if own else "", modules
        )

    def _possible(
        self, follower: Follower, layer: str, call: fx.Node, inner: str = ""
    ) -> Iterator[Chain]:
        """The chains that a backend supports; an inner block can only add a residual."""
        module = self.model.get_submodule(layer)
        for chain in follower.chains(call):
            if (
                inner
                and not chain.is_alone
                and (chain.residual is None or chain.activation != NONE)
            ):
                continue
            if chain.is_alone or backends_for(
                module, has_residual=chain.residual is not None, activation=chain.activation
            ):
                yield chain

    def _is_end(self, layer: str, home: str) -> bool:
        """Whether a block's output is the layer's, so that what follows it follows the layer."""
        call = self._call(layer, home)
        if (
            not home
            or call is None
            or has_hooks(self.model.get_submodule(home))
            or has_hooks(self.model.get_submodule(layer))
        ):
            return False
        follower = self.followers[home]
        assert isinstance(follower, Follower)
        chain = next(self._possible(follower, layer, call))
        return chain.is_alone and follower.is_output(call)

    def _call(self, layer: str, block: str) -> fx.Node | None:
        follower = self._follower(block)
        return None if isinstance(follower, str) else follower.call_of(_within(block, layer))

    def _follower(self, block: str) -> Follower | str:
        """The Follower of a block; or the reason why it has no graph."""
        if block not in self.followers:
            try:
                self.followers[block] = self._followed(block)
            except StepError as error:
                self.followers[block] = str(error)
        return self.followers[block]

    def _followed(self, block: str) -> Follower:
        form = self.trace.forms.get(block)
        if form is None:
            raise StepError("it is called with more than tensors and plain values")
        self.forms[block] = form
        module = self.model.get_submodule(block)
        passing = {
            _within(block, layer)
            for layer in self.trace.passing
            if passes_through(self.model.get_submodule(layer))
        }
        return Follower(module, traced(module, form), passing)

    def _alone(self, layer: str, reason: str) -> Site:
        """The site of a layer alone; it can be fused if its weight can be packed."""
        can_be = bool(
            backends_for(self.model.get_submodule(layer), has_residual=False, activation=NONE)
        )
        note = reason if reason or can_be else "no operator that follows it can be fused with it"
        return Site(layer, self._kind(layer), reason=note, can_be=can_be)

    def _kind(self, layer: str) -> str:
        module = self.model.get_submodule(layer)
        return kind_of(module) or getattr(module, "kind", type(module).__name__)

    def _refused(self, layer: str) -> str:
        """Why a layer cannot be fused; '' if it can."""
        module = self.model.get_submodule(layer)
        if isinstance(module, QuantizedLayer):
            return f"it computes in {module.format}"
        if not kind_of(module):
            return f"fusing {type(module).__name__} is not supported"
        if not self.trace.calls[layer]:
            return "it is not called on the example inputs"
        return obstacle(module)


def _around(model: nn.Module, layer: str) -> str:
    """The block that contains a layer; lists of blocks are skipped, as they are not called."""
    while layer:
        layer = layer.rpartition(".")[0]
        if not isinstance(model.get_submodule(layer), WITHOUT_FORWARD):
            break
    return layer


def _within(block: str, layer: str) -> str:
    return layer.removeprefix(f"{block}.") if block else layer


def _full(block: str, layer: str) -> str:
    return f"{block}.{layer}" if block else layer

"""Sites of fusion: a layer, or a product, and the operators after it that can be fused with it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from torch import fx

from .activation import NONE
from .blocks import Joined, Rewriting
from .call_trace import Form
from .products import Product


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
    """The sites of a model, in the order in which they run, and the blocks that are rewritten for
    some of them.
    """

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

"""Sites of fusion: a layer, or a product, and the operators after it that could run as one."""

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
    """A layer and what could be one with it."""

    layer: str
    kind: str
    block: str = ""  # in whose forward what follows the layer is
    joined: Joined | None = None  # None where the layer is alone
    inner: str = (
        ""  # the block at whose end the layer is, where the sum is in the block around that
    )
    inner_call: str = ""  # of the layer, in the graph of that
    modules: tuple[str, ...] = ()  # parts whose work is done with the layer's
    reason: str = ""  # why it stays as it is, or why what follows does
    can_be: bool = True
    product: Product | None = (
        None  # where it is no layer but a product that the block calls as a function
    )

    @property
    def is_in_block(self) -> bool:
        """Whether the block runs otherwise for it."""
        return self.joined is not None or self.product is not None

    @property
    def has_residual(self) -> bool:
        """Whether a sum is part of it."""
        return self.joined is not None and bool(self.joined.residual)

    @property
    def activation(self) -> str:
        """What it ends in."""
        found = self.joined or self.product
        return found.activation if found else NONE


@dataclass(frozen=True)
class View:
    """A block's graph, and how it was called."""

    block: str
    graph: fx.Graph
    form: Form


@dataclass
class FusionSites:
    """Every place of a model, in the order in which they run, and the blocks that would be
    rewritten for some of them.
    """

    sites: list[Site] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what is not fused although it might look so
    backends: dict[str, str] = field(
        default_factory=dict
    )  # of the products, once they are evaluated

    def rewritings(self, fused: Collection[str]) -> dict[str, Rewriting]:
        """How each block is to run when these places are fused."""
        made: dict[str, Rewriting] = {}
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
                made[block] = Rewriting(view.form, joined, takes, products)
        return made

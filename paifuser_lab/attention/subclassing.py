"""A layer made to run otherwise, its weights, names and position kept: its class gets a subclass.

Another layer instead would rename its weights; a hook would not be compiled. Copies and pickles as
any layer does.
"""

from __future__ import annotations

from typing import Any

from torch import nn


class Subclassed:
    """What changes how a layer runs stands before the layer's own class, so that `super()` is the
    layer as it was.
    """

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        graft_class, original = type(self).__bases__
        return _empty, (graft_class, original), self.__dict__


_classes: dict[tuple[type, type], type[nn.Module]] = {}


def subclass_of(graft: type[Subclassed], original: type[nn.Module]) -> type[nn.Module]:
    """A subclass of both, made once."""
    if (graft, original) in _classes:
        return _classes[graft, original]
    name = f"{graft.__name__}{original.__name__}"
    made: type[nn.Module] = type(
        name, (graft, original), {"__doc__": original.__doc__, "__module__": graft.__module__}
    )
    _classes[graft, original] = made
    return made


def subclass_layer(layer: nn.Module, graft: type[Subclassed]) -> None:
    """Change how a layer runs; one that was changed so before stays as it is."""
    if not isinstance(layer, graft):
        layer.__class__ = subclass_of(graft, type(layer))


def _empty(graft: type[Subclassed], original: type[nn.Module]) -> nn.Module:
    made = subclass_of(graft, original)
    return made.__new__(made)

"""Which options do not apply to a model, and why: the sections of the tab Options ask here. Nothing
is run: the layers' classes and code tell, and of attention also the operators in the profile.
"""

from __future__ import annotations

from typing import Any

from ..model.layers import channel_of
from ..session.state import State
from .section import Context

NONE = "none in this model"


def no_weights(state: State, context: Context) -> str:
    """Why no layer can have another format or fewer channels: none has a weight that can."""

    def reason() -> str:
        layers = context.work.model.modules()
        return "" if any(channel_of(layer) is not None for layer in layers) else NONE

    return str(context.once("weights absent", reason, context.work))


def no_attention(state: State, context: Context) -> str:
    """Why attention cannot be sparse: no module's class is called so, no module's code names it,
    and no operator that ran is it.
    """
    baseline = state.baseline
    if state.attention_cost is not None:
        return ""

    def reason() -> str:
        classes = {type(module) for module in context.work.model.modules()}
        names = {name for kind in classes for name in (kind.__name__, *_named_in(kind))}
        ran = {operator.name for row in baseline or () for operator in row.operators}
        return "" if any("attention" in name.lower() for name in names | ran) else NONE

    return str(context.once("attention absent", reason, context.work, baseline))


def _named_in(kind: type[Any]) -> tuple[str, ...]:
    """The names that a module's forward uses; () where it is not Python's."""
    code = getattr(kind.forward, "__code__", None)
    return code.co_names if code is not None else ()

"""A choice of formats as the shortest recipe: one format for most, and patterns for what
differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...formats import FLOATS

Steps = tuple[dict[str, Any], ...]


def steps_of(formats: Mapping[str, str], around: str) -> Steps:
    """The steps that give each layer its format, everything between them being in `around`; none
    where nothing changes.

    A default of integers leaves what is between the layers alone, which is in fp32 then.
    """
    defaults = (
        [around]
        if around != "fp32"
        else ["fp32", *sorted({name for name in formats.values() if name not in FLOATS})]
    )
    spelled = [_options(formats, default) for default in defaults]
    best = min(spelled, key=lambda options: (len(options.get("layers", {})), len(options)))
    return ({"precision": best},) if best else ()


def _options(formats: Mapping[str, str], default: str) -> dict[str, Any]:
    apart = _patterns(formats, default)
    chosen: dict[str, Any] = {} if default == "fp32" else {"default": default}
    return chosen | ({"layers": apart} if apart else {})


def _patterns(formats: Mapping[str, str], default: str) -> dict[str, str]:
    """Layers that are apart from the default by name, or by their family where it is all alike."""
    found: dict[str, str] = {}
    for layer, name in formats.items():
        if name != default:
            found[_family(layer, formats)] = name
    return found


def _family(layer: str, formats: Mapping[str, str]) -> str:
    """'layer4.*' for a layer whose whole family has its format.

    Only for integers: in a float format a pattern would take along what is between the layers,
    such as a batch-norm.
    """
    name, parts = formats[layer], layer.split(".")
    if name in FLOATS:
        return layer
    for depth in range(1, len(parts)):
        prefix = ".".join(parts[:depth]) + "."
        family = [other for other in formats if other.startswith(prefix)]
        if len(family) > 1 and all(formats[other] == name for other in family):
            return f"{prefix}*"
    return layer

"""The steps of a recipe, one file per kind: its options, how it is applied, and how it is rebuilt
from a saved folder.

step           the base class: options, `apply`, `rebuild`, and how two of a kind are joined
training_step  the base class of the steps that train
fold           batch-norm folded into the layers before it
layout         images in channels-last order
prune          the least important channels removed
shorten        whole blocks removed
attention      attention to some of the keys, or a Swin's windows in one pass
distill        training to reproduce the original's outputs
qat            quantization-aware training
precision      formats of the model and of its layers: bf16, fp8, int8, int4-weights
reuse          activations and sums in place where nobody else reads their input
fuse           layers fused with the operators that follow them
pool           a memory pool in force while the model runs
backend        the engine that runs the model

`BUILT_IN` is their registry: a name in a recipe, and the path of its class. Other packages add
steps by the entry point `paifuser_lab.steps`; one that this process defines is found there alone.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points

from ..errors import RecipeError, first_line
from .step import DEFINED, Draft, Step

__all__ = ["Draft", "Step", "step_class", "step_names"]

BUILT_IN = {
    "fold": ".fold:Fold",
    "layout": ".layout:Layout",
    "prune": ".prune:Prune",
    "shorten": ".shorten:Shorten",
    "attention": ".attention:Attention",
    "distill": ".distill:Distill",
    "qat": ".qat:Qat",
    "precision": ".precision:Precision",
    "reuse": ".reuse:Reuse",
    "fuse": ".fuse:Fuse",
    "pool": ".pool:Pool",
    "backend": ".backend:Backend",
}


def step_names() -> tuple[str, ...]:
    """The kinds of all installed steps, the built-in ones first."""
    return (*BUILT_IN, *(name for name in _installed() if name not in BUILT_IN))


def step_class(kind: str) -> type[Step]:
    """The class of a kind of step: an installed one, or the last that this process has defined."""
    if kind in BUILT_IN:
        module, _, name = BUILT_IN[kind].partition(":")
        step: type[Step] = getattr(importlib.import_module(module, __name__), name)
        return step
    if kind in _installed():
        return _from_entry_point(kind)
    if kind in DEFINED:
        return DEFINED[kind]
    near = get_close_matches(kind, (*step_names(), *DEFINED), n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    raise RecipeError(
        f"There is no step '{kind}'{hint} The steps are {', '.join(step_names())}; a step of "
        "another package needs that package installed."
    )


@cache
def _from_entry_point(kind: str) -> type[Step]:
    entry = entry_points(group="paifuser_lab.steps")[kind]
    try:
        loaded = entry.load()
    except Exception as error:
        raise RecipeError(
            f"Step '{kind}' cannot be loaded from {entry.value} ({first_line(error)}); reinstall "
            "its package."
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Step) and loaded.kind == kind):
        raise RecipeError(
            f"{entry.value}, installed as step '{kind}', is not a Step of that kind; report it to "
            "its package's authors."
        )
    return loaded


@cache
def _installed() -> tuple[str, ...]:
    return tuple(sorted(entry_points(group="paifuser_lab.steps").names))

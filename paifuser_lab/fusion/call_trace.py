"""What is seen of a model's parts in one run: how they are called, how often, and which of them
only pass on their inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..model.watch import watching
from .call_form import Form, form_of
from .fallback import composing


@dataclass
class Sight:
    """What one run showed, by layer."""

    calls: Counter[str] = field(default_factory=Counter)
    forms: dict[str, Form | None] = field(default_factory=dict)  # of the first call
    answers: dict[str, tuple[int, ...]] = field(default_factory=dict)  # the shape of the first
    passing: set[str] = field(default_factory=set)
    order: list[str] = field(default_factory=list)


def scout(model: nn.Module, run: Callable[[], Any]) -> Sight:
    """Run a model once and write down how its parts are called."""
    seen, given = Sight(), list[tuple[Any, int]]()
    kept: set[str] = set()

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if not seen.calls[layer]:
            seen.forms[layer] = form_of(args, kwargs)
            seen.order.append(layer)
        seen.calls[layer] += 1
        what = args[0] if len(args) == 1 and not kwargs else None
        given.append((what, what._version if isinstance(what, Tensor) else 0))

    def leave(layer: str, answer: Any) -> None:
        what, version = given.pop()
        if isinstance(answer, Tensor):
            seen.answers.setdefault(layer, tuple(answer.shape))
        if not isinstance(answer, Tensor) or what is not answer or answer._version != version:
            kept.add(layer)

    with watching(model, enter, leave), composing():
        run()
    seen.passing = set(seen.calls) - kept
    return seen

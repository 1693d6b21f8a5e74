"""Lifetime of a widget with a background worker: as long as it is referenced, or shown and not
replaced.

ipywidgets references every widget until it is closed, so that an abandoned widget would keep its
model in memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import ipywidgets
from ipywidgets.widgets import widget as registry

Value = TypeVar("Value")


def release(widget: ipywidgets.Widget) -> None:
    """Make ipywidgets and the kernel reference a widget weakly: it and its views are collected when
    nothing else references it.
    """
    _instances().pop(widget.model_id, None)
    widget.comm.on_msg(weak_call(widget._handle_msg))


def hold(widget: ipywidgets.Widget) -> None:
    """Make ipywidgets reference a widget until it is closed, as it does any other: it is shown,
    perhaps without a variable.
    """
    _instances()[widget.model_id] = widget


def held() -> list[ipywidgets.Widget]:
    """The widgets that ipywidgets references."""
    return list(_instances().values())


def weak_call(method: Callable[[Value], None]) -> Callable[[Value], None]:
    """A call of a method that references its object weakly; does nothing once it is collected."""
    reference = weakref.WeakMethod(method)

    def call(value: Value) -> None:
        if (bound := reference()) is not None:
            bound(value)

    return call


def _instances() -> dict[str, Any]:
    instances: dict[str, Any] = registry._instances
    return instances

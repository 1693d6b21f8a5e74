"""How long a widget that works in the background lives: as long as somebody refers to it, or it is
shown and nothing replaced it.

ipywidgets refers to every widget until it is closed, so that one which was made and forgotten would
keep its model for ever.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import ipywidgets
from ipywidgets.widgets import widget as registry

Value = TypeVar("Value")


def let_go(widget: ipywidgets.Widget) -> None:
    """Have ipywidgets and the kernel refer to a widget weakly: it goes, and its views with it, when
    nobody else does.
    """
    _instances().pop(widget.model_id, None)
    widget.comm.on_msg(weakly(widget._handle_msg))


def hold(widget: ipywidgets.Widget) -> None:
    """Have ipywidgets refer to a widget until it is closed, as it does to any other: it is shown,
    perhaps by no name.
    """
    _instances()[widget.model_id] = widget


def held() -> list[ipywidgets.Widget]:
    """The widgets that ipywidgets refers to."""
    return list(_instances().values())


def weakly(method: Callable[[Value], None]) -> Callable[[Value], None]:
    """A method's call that does not keep its object, and is nothing once that has gone."""
    reference = weakref.WeakMethod(method)

    def call(value: Value) -> None:
        if (living := reference()) is not None:
            living(value)

    return call


def _instances() -> dict[str, Any]:
    found: dict[str, Any] = registry._instances
    return found

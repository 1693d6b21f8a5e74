"""Which layer: where a model fails, or where a NaN begins. The model is run once more and
watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

Enter = Callable[[str, Any, Any], None]  # layer, arguments, keyword arguments
Leave = Callable[[str, Any], None]  # layer, answer
EnterModel = Callable[[nn.Module], None]
LeaveModel = Callable[[nn.Module, Any], None]  # module, answer
FAILED = object()  # the answer of a layer that raised


def describe(model: nn.Module, layer: str) -> str:
    """A layer as a message names it."""
    return (
        f"layer '{layer}' ({type(model.get_submodule(layer)).__name__})"
        if layer
        else f"the model itself ({type(model).__name__})"
    )


def has_nan(output: Any) -> bool:
    """Whether any tensor in a model's answer holds a NaN."""
    return any(
        bool(torch.isnan(leaf).any()) for leaf in _tensors(output) if leaf.is_floating_point()
    )


def not_finite(reference: Any, output: Any) -> str | None:
    """What a model's answer holds that the reference's does not: a NaN, or an infinity in another
    place; None where it is sound.
    """
    if has_nan(output):
        return "a NaN"
    pairs = zip(_tensors(reference), _tensors(output), strict=False)
    real = [
        (one, other)
        for one, other in pairs
        if one.shape == other.shape and other.is_floating_point()
    ]
    has_overflow = any(_overflows(one, other) for one, other in real if not one.is_complex())
    return "an infinity where the baseline's has none" if has_overflow else None


def _overflows(reference: Tensor, output: Tensor) -> bool:
    infinite = torch.isinf(output)
    wanted = reference.to(
        output.device, torch.float64
    )  # a number of fp64 does not overflow by being compared
    return bool((infinite & (wanted != output.double())).any())


def failing_layer(model: nn.Module, run: Callable[[], Any]) -> tuple[str, list[str]]:
    """The innermost layer that was entered and not left when `run` fails, and the shapes it was
    given.
    """
    entered: list[tuple[str, list[str]]] = []
    broken: list[tuple[str, list[str]]] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        entered.append(
            (layer, ["×".join(map(str, leaf.shape)) for leaf in _tensors((args, kwargs))])
        )

    def leave(layer: str, output: Any) -> None:
        last = entered.pop()
        if output is not FAILED:
            broken.clear()  # whoever called the layer that broke has got over it
        elif not broken:
            broken.append(last)

    with watching(model, enter, leave):
        try:
            run()
        except Exception:
            return broken[0] if broken else ("", [])
    return "", []


def first_nan(model: nn.Module, run: Callable[[], Any]) -> str:
    """The first layer to give a NaN without being given one; the innermost, since it is left before
    those around it.
    """
    found: list[str] = []
    given: list[bool] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        given.append(has_nan(args))

    def leave(layer: str, output: Any) -> None:
        was_given = given.pop()
        if not found and not was_given and has_nan(output):
            found.append(layer)

    with watching(model, enter, leave):
        run()
    return found[0] if found else ""


@contextmanager
def watching(model: nn.Module, enter: Enter, leave: Leave) -> Iterator[None]:
    """Call `enter` and `leave` around every call of a layer in this thread; `leave` is called
    whatever happens.

    No hook is set: hooks would switch off the fast path of nn.TransformerEncoder, and a layer's own
    hooks, a conversion of format perhaps, belong to its time.
    """
    names = {id(module): name for name, module in model.named_modules()}
    here = get_ident()
    before = _watchers.get(here)
    _install()
    _watchers[here] = _Watcher(names, enter, leave)
    try:
        yield
    finally:
        if before is None:
            del _watchers[here]
        else:
            _watchers[here] = before
        _uninstall()


@contextmanager
def watching_outermost(enter: EnterModel, leave: LeaveModel) -> Iterator[None]:
    """Call `enter` and `leave` around every call of any module in this thread that is not made
    inside another module's call.

    For code whose models are not known beforehand. `watching` may be used inside it, by `enter`
    too.
    """
    here = get_ident()
    before = _doors.get(here)
    with _lock:
        _doors[here] = _Door(enter, leave)
        _choose_call()
    try:
        yield
    finally:
        with _lock:
            if before is None:
                del _doors[here]
            else:
                _doors[here] = before
            _choose_call()


# Module's own call is replaced while anybody watches, in whatever thread, and put back when the
# last one stops.


class _Watcher(NamedTuple):
    names: dict[int, str]
    enter: Enter
    leave: Leave


_watchers: dict[int, _Watcher] = {}  # by thread
_lock = Lock()
_installed = 0
_is_replaced = False
_plain_call: Callable[..., Any] = nn.Module.__call__


def _watched_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if (
        torch.compiler.is_compiling()
    ):  # a compiler that reads along is to see the model, not the watcher
        return _plain_call(module, *args, **kwargs)
    watcher = _watchers.get(get_ident())
    layer = watcher.names.get(id(module)) if watcher else None
    if watcher is None or layer is None:
        return _plain_call(module, *args, **kwargs)
    output = FAILED
    watcher.enter(layer, args, kwargs)
    try:
        output = _plain_call(module, *args, **kwargs)
    finally:
        watcher.leave(layer, output)
    return output


@dataclass
class _Door:
    enter: EnterModel
    leave: LeaveModel
    is_inside: bool = False


_doors: dict[int, _Door] = {}  # by thread


def _call_through_door(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if torch.compiler.is_compiling():
        return _plain_call(module, *args, **kwargs)
    door = _doors.get(get_ident())
    if door is None or door.is_inside:
        return _watched_call(module, *args, **kwargs)
    output = FAILED
    door.is_inside = True
    try:
        door.enter(module)
        try:
            output = _watched_call(module, *args, **kwargs)
        finally:
            door.leave(module, output)
    finally:
        door.is_inside = False
    return output


def _install() -> None:
    global _installed
    with _lock:
        _installed += 1
        _choose_call()


def _uninstall() -> None:
    global _installed
    with _lock:
        _installed -= 1
        _choose_call()


def _choose_call() -> None:
    """Put in place what the present watchers need; a door costs those who only watch layers nothing
    while it is shut.
    """
    global _is_replaced, _plain_call
    if not _is_replaced:
        _plain_call = nn.Module.__call__
    _is_replaced = bool(_doors or _installed)
    call = _call_through_door if _doors else _watched_call if _installed else _plain_call
    nn.Module.__call__ = call  # type: ignore[method-assign]


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]

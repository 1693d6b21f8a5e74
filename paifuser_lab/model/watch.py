"""Observe calls of layers: find the layer where a model fails, or where a NaN begins, in one more
run.
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
Leave = Callable[[str, Any], None]  # layer, output
EnterModel = Callable[[nn.Module], None]
LeaveModel = Callable[[nn.Module, Any], None]  # module, output
FAILED = object()  # the output of a layer that raised


def describe(model: nn.Module, layer: str) -> str:
    """A layer as messages name it."""
    return (
        f"layer '{layer}' ({type(model.get_submodule(layer)).__name__})"
        if layer
        else f"the model itself ({type(model).__name__})"
    )


def has_nan(output: Any) -> bool:
    """Whether any tensor in a model's output holds a NaN."""
    return any(
        bool(torch.isnan(leaf).any()) for leaf in _tensors(output) if leaf.is_floating_point()
    )


def not_finite(reference: Any, output: Any) -> str | None:
    """What is wrong in a model's output and not in the reference's: a NaN, or an infinity
    elsewhere; None where nothing is.
    """
    if has_nan(output):
        return "a NaN"
    pairs = zip(_tensors(reference), _tensors(output), strict=False)
    has_overflow = any(
        _overflows(expected, actual)
        for expected, actual in pairs
        if expected.shape == actual.shape
        and actual.is_floating_point()
        and not expected.is_complex()
    )
    return "an infinity where the baseline's has none" if has_overflow else None


def _overflows(reference: Tensor, output: Tensor) -> bool:
    infinite = torch.isinf(output)
    # in fp64, in which the comparison itself does not overflow
    expected = reference.to(output.device, torch.float64)
    return bool((infinite & (expected != output.double())).any())


def failing_layer(model: nn.Module, run: Callable[[], Any]) -> tuple[str, list[str]]:
    """The innermost layer that raised when `run` fails, and the shapes of its inputs."""
    entered: list[tuple[str, list[str]]] = []
    failed: list[tuple[str, list[str]]] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        entered.append(
            (layer, ["×".join(map(str, leaf.shape)) for leaf in _tensors((args, kwargs))])
        )

    def leave(layer: str, output: Any) -> None:
        last = entered.pop()
        if output is not FAILED:
            failed.clear()  # the caller of the failed layer recovered
        elif not failed:
            failed.append(last)

    with watching(model, enter, leave):
        try:
            run()
        except Exception:
            return failed[0] if failed else ("", [])
    return "", []


def first_nan(model: nn.Module, run: Callable[[], Any]) -> str:
    """The first layer whose output has a NaN and whose input has none; the innermost, since it
    returns before those around it.
    """
    sources: list[str] = []
    input_had_nan: list[bool] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        input_had_nan.append(has_nan(args))

    def leave(layer: str, output: Any) -> None:
        had_nan = input_had_nan.pop()
        if not sources and not had_nan and has_nan(output):
            sources.append(layer)

    with watching(model, enter, leave):
        run()
    return sources[0] if sources else ""


@contextmanager
def watching(model: nn.Module, enter: Enter, leave: Leave) -> Iterator[None]:
    """Call `enter` and `leave` around every call of a layer in this thread; `leave` is called even
    when the layer raises.

    No hook is set: hooks would switch off the fast path of nn.TransformerEncoder, and the time of a
    layer's own hooks, such as a format conversion, counts as the layer's.
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

    For code whose models are not known beforehand. `watching` may be used inside it, also by
    `enter`.
    """
    here = get_ident()
    before = _outermost_watchers.get(here)
    with _lock:
        _outermost_watchers[here] = _OutermostWatcher(enter, leave)
        _choose_call()
    try:
        yield
    finally:
        with _lock:
            if before is None:
                del _outermost_watchers[here]
            else:
                _outermost_watchers[here] = before
            _choose_call()


# nn.Module.__call__ is replaced while any thread watches, and restored when the last watcher ends.


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
    if torch.compiler.is_compiling():  # a compiler traces the model, not the watcher
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
class _OutermostWatcher:
    enter: EnterModel
    leave: LeaveModel
    is_inside: bool = False


_outermost_watchers: dict[int, _OutermostWatcher] = {}  # by thread


def _outermost_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if torch.compiler.is_compiling():
        return _plain_call(module, *args, **kwargs)
    watcher = _outermost_watchers.get(get_ident())
    if watcher is None or watcher.is_inside:
        return _watched_call(module, *args, **kwargs)
    output = FAILED
    watcher.is_inside = True
    try:
        watcher.enter(module)
        try:
            output = _watched_call(module, *args, **kwargs)
        finally:
            watcher.leave(module, output)
    finally:
        watcher.is_inside = False
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
    """Install the call that the present watchers need; where no outermost watcher is active, layer
    watchers do not pay for it.
    """
    global _is_replaced, _plain_call
    if not _is_replaced:
        _plain_call = nn.Module.__call__
    _is_replaced = bool(_outermost_watchers or _installed)
    call = _outermost_call if _outermost_watchers else _watched_call if _installed else _plain_call
    nn.Module.__call__ = call  # type: ignore[method-assign]


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]

"""Observe calls of layers: find where a model fails, or where a NaN begins, in one more run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, RLock, get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .tensors import tensors_in

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
        bool(torch.isnan(leaf).any()) for leaf in tensors_in(output) if leaf.is_floating_point()
    )


def not_finite(reference: Any, output: Any) -> str | None:
    """What is wrong in an output: a NaN, or an infinity that the reference lacks; or None."""
    if has_nan(output):
        return "a NaN"
    pairs = zip(tensors_in(reference), tensors_in(output), strict=False)
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
            (layer, ["×".join(map(str, leaf.shape)) for leaf in tensors_in((args, kwargs))])
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


def first_nan(
    model: nn.Module, run: Callable[[], Any], *, is_bad: Callable[[Any], bool] = has_nan
) -> str | None:
    """The first layer whose output has a NaN, or is bad otherwise, and whose input is not; the
    innermost, since it returns before those around it. None where there is no such layer.
    """
    sources: list[str] = []
    input_was_bad: list[bool] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        input_was_bad.append(is_bad((args, kwargs)))

    def leave(layer: str, output: Any) -> None:
        was_bad = input_was_bad.pop()
        if not sources and not was_bad and is_bad(output):
            sources.append(layer)

    with watching(model, enter, leave):
        run()
    return sources[0] if sources else None


@contextmanager
def watching(model: nn.Module, enter: Enter, leave: Leave) -> Iterator[None]:
    """Call `enter` and `leave` around every call of a layer in this thread; `leave` is called even
    when the layer raises.

    No hook is set: hooks would switch off the fast path of nn.TransformerEncoder, and the time of a
    layer's own hooks, such as a format conversion, counts as the layer's. Nor is nn.Module.__call__
    replaced: torch.fx and torch.export replace it while they trace, perhaps in another thread.
    """
    names = {id(module): name for name, module in model.named_modules()}
    modules = _watchable(model)
    here = get_ident()
    before = _watchers.get(here)
    for module in modules:
        _observe(module)
    _watchers[here] = _Watcher(names, enter, leave)
    try:
        yield
    finally:
        if before is None:
            del _watchers[here]
        else:
            _watchers[here] = before
        for module in modules:
            _leave_alone(module)


@contextmanager
def watching_outermost(enter: EnterModel, leave: LeaveModel) -> Iterator[None]:
    """Call `enter` and `leave` around every call of any module in this thread that is not made
    inside another module's call.

    For code whose models are not known beforehand. `watching` may be used inside it, also by
    `enter`.
    """
    here = get_ident()
    before = _outermost_watchers.get(here)
    with TRACING:
        _outermost_watchers[here] = _OutermostWatcher(enter, leave)
        nn.Module.__call__ = _outermost_call  # type: ignore[method-assign]
    try:
        yield
    finally:
        with TRACING:
            if before is None:
                del _outermost_watchers[here]
            else:
                _outermost_watchers[here] = before
            if not _outermost_watchers:
                nn.Module.__call__ = PLAIN_CALL  # type: ignore[method-assign]


class _Watcher(NamedTuple):
    names: dict[int, str]
    enter: Enter
    leave: Leave


_watchers: dict[int, _Watcher] = {}  # by thread
_lock = Lock()
PLAIN_CALL: Callable[..., Any] = nn.Module.__call__
TRACING = RLock()  # torch.fx and `watching_outermost` replace nn.Module.__call__; not both at once
ATTRIBUTE = "_compiled_call_impl"  # nn.Module.__call__ calls it instead of _call_impl


class _WatchedCall:
    """The call of one watched module; copies and files of the module do not have it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.plain: Callable[..., Any] | None = vars(module).get(ATTRIBUTE)
        self.watchers = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        plain = self.plain or self.module._call_impl
        if torch.compiler.is_compiling():  # a compiler traces the model, not the watcher
            return plain(*args, **kwargs)
        watcher = _watchers.get(get_ident())
        layer = watcher.names.get(id(self.module)) if watcher else None
        if watcher is None or layer is None:
            return plain(*args, **kwargs)
        output = FAILED
        watcher.enter(layer, args, kwargs)
        try:
            output = plain(*args, **kwargs)
        finally:
            watcher.leave(layer, output)
        return output


def _watchable(model: nn.Module) -> list[nn.Module]:
    """The modules of a model, less those in a compiled one, which would be compiled anew."""
    found: dict[nn.Module, None] = {}
    pending = [model]
    while pending:
        module = pending.pop()
        if module in found:
            continue
        found[module] = None
        call = vars(module).get(ATTRIBUTE)
        compiled = call.plain if isinstance(call, _WatchedCall) else call
        if compiled is None and "_orig_mod" not in module._modules:
            pending.extend(module.children())
    return list(found)


def _observe(module: nn.Module) -> None:
    with _lock:
        call = vars(module).get(ATTRIBUTE)
        if not isinstance(call, _WatchedCall):
            call = vars(module)[ATTRIBUTE] = _WatchedCall(module)
        call.watchers += 1


def _leave_alone(module: nn.Module) -> None:
    with _lock:
        call = vars(module).get(ATTRIBUTE)
        if not isinstance(call, _WatchedCall):  # compiled meanwhile
            return
        call.watchers -= 1
        if call.watchers:
            return
        if call.plain is None:
            del vars(module)[ATTRIBUTE]
        else:
            vars(module)[ATTRIBUTE] = call.plain


@dataclass
class _OutermostWatcher:
    enter: EnterModel
    leave: LeaveModel
    is_inside: bool = False


_outermost_watchers: dict[int, _OutermostWatcher] = {}  # by thread


def _outermost_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if torch.compiler.is_compiling():
        return PLAIN_CALL(module, *args, **kwargs)
    watcher = _outermost_watchers.get(get_ident())
    if watcher is None or watcher.is_inside:
        return PLAIN_CALL(module, *args, **kwargs)
    output = FAILED
    watcher.is_inside = True
    try:
        watcher.enter(module)
        try:
            output = PLAIN_CALL(module, *args, **kwargs)
        finally:
            watcher.leave(module, output)
    finally:
        watcher.is_inside = False
    return output


def is_in_backward() -> bool:
    """Whether a backward pass runs in this thread, which calls checkpointed layers again."""
    return bool(torch._C._current_graph_task_id() != -1)

"""Which layer: where a model fails, or where a NaN begins. The model is run once more, watched by hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

HookMaker = Callable[[str], Callable[..., Any]]


def describe(model: nn.Module, layer: str) -> str:
    """A layer as a message names it."""
    return (
        f"layer '{layer}' ({type(model.get_submodule(layer)).__name__})"
        if layer
        else f"the model itself ({type(model).__name__})"
    )


def has_nan(output: Any) -> bool:
    """Whether any tensor in a model's answer holds a NaN."""
    return any(bool(torch.isnan(leaf).any()) for leaf in _tensors(output) if leaf.is_floating_point())


def failing_layer(model: nn.Module, run: Callable[[], Any]) -> tuple[str, list[str]]:
    """The innermost layer that was entered and not left when `run` fails, and the shapes it was given."""
    entered: list[tuple[str, list[str]]] = []

    def enter(layer: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            entered.append((layer, ["×".join(map(str, leaf.shape)) for leaf in _tensors((args, kwargs))]))

        return hook

    def leave(layer: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            entered.pop()

        return hook

    with watching(model, enter, leave):
        try:
            run()
        except Exception:
            return entered[-1] if entered else ("", [])
    return "", []


def first_nan(model: nn.Module, run: Callable[[], Any]) -> str:
    """The first layer to give a NaN without being given one; the innermost, since it is left before those around it."""
    found: list[str] = []

    def leave(layer: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not found and has_nan(output) and not has_nan(args):
                found.append(layer)

        return hook

    with watching(model, None, leave):
        run()
    return found[0] if found else ""


@contextmanager
def watching(model: nn.Module, enter: HookMaker | None, leave: HookMaker | None) -> Iterator[None]:
    """Hooks on every layer, made from its name, and taken off whatever happens."""
    handles = []
    try:
        for name, module in model.named_modules():
            if enter is not None:
                handles.append(module.register_forward_pre_hook(enter(name), with_kwargs=True))
            if leave is not None:
                handles.append(module.register_forward_hook(leave(name)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]

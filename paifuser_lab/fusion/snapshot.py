"""A block's state when it was fused: its fused forward runs only while the block is unchanged.

It holds classes and plain values, no objects, so that it is valid for a copy of the block too. The
contents of lists, dicts and tensors are not recorded.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

from torch import nn

from .call_trace import PLAIN

KEPT = (*PLAIN, FunctionType, BuiltinFunctionType)
OF_EVERY_MODULE = frozenset(vars(nn.Module()))
ABSENT = ...  # the value of an attribute that only the class has
LISTS = (nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True)
class Snapshot:
    """A module's state: class, plain values, which tensors it has, and the parts that are used."""

    kind: type[nn.Module]  # for a fused layer or block its unfused class
    is_fused: bool = False  # whether it has to be fused
    # It is called in a fused call or not at all, so it must have no hooks and no own forward.
    is_close: bool = False
    values: tuple[tuple[str, Any], ...] = ()
    tensors: tuple[tuple[str, bool], ...] = ()
    parts: tuple[tuple[str, Snapshot | None], ...] | None = None


def unfused_class(module: nn.Module) -> type[nn.Module]:
    """The class of a module before it was fused."""
    kind: type[nn.Module] = vars(type(module)).get("class_apart", type(module))
    return kind


def take_snapshot(
    block: nn.Module, called: Collection[str], fused: Collection[str], swallowed: Collection[str]
) -> Snapshot:
    """A block's state, given the parts that it calls, that are fused, and that are swallowed."""

    def snapshot(module: nn.Module, name: str) -> Snapshot:
        start = f"{name}." if name else ""
        is_open = (
            not name or isinstance(module, LISTS) or any(part.startswith(start) for part in called)
        )
        own = is_open or name in swallowed
        children = [
            (key, None if part is None else snapshot(part, start + key))
            for key, part in module._modules.items()
        ]
        return Snapshot(
            kind=unfused_class(module),
            is_fused=name in fused,
            is_close=name in fused or name in swallowed,
            values=_values(module) if own else (),
            tensors=tuple(
                (name, tensor is not None)
                for name, tensor in (*module._parameters.items(), *module._buffers.items())
            )
            if own
            else (),
            parts=tuple(children) if is_open else None,
        )

    return snapshot(block, "")


def is_unchanged(module: nn.Module, seen: Snapshot) -> bool:
    """Whether a module is in eval mode and unchanged; this runs at every call."""
    kind, state = type(module), module.__dict__
    if (seen.is_fused or kind is not seen.kind) and vars(kind).get("class_apart") is not seen.kind:
        return False
    if state["training"]:
        return False
    if seen.is_close and (
        state["_forward_hooks"] or state["_forward_pre_hooks"] or "forward" in state
    ):
        return False
    for name, value in seen.values:
        now = state.get(name, ABSENT)
        if now is not value and (type(now) is not type(value) or now != value):
            return False
    for name, is_there in seen.tensors:
        if (
            state["_parameters"].get(name, state["_buffers"].get(name)) is not None
        ) is not is_there:
            return False
    return seen.parts is None or _are_unchanged(state["_modules"], seen.parts)


def _are_unchanged(
    parts: dict[str, nn.Module | None], seen: tuple[tuple[str, Snapshot | None], ...]
) -> bool:
    if len(parts) != len(seen):
        return False
    for name, was in seen:
        part = parts.get(name)
        if part is None or was is None:
            if name not in parts or part is not None or was is not None:
                return False
        elif not is_unchanged(part, was):
            return False
    return True


def _values(module: nn.Module) -> tuple[tuple[str, Any], ...]:
    own = {
        name: value
        for name, value in vars(module).items()
        if name not in OF_EVERY_MODULE and _is_kept(value)
    }
    kinds = [kind for kind in unfused_class(module).__mro__ if kind not in nn.Module.__mro__]
    named = {
        name
        for kind in kinds
        for name, value in vars(kind).items()
        if type(value) in PLAIN and not name.startswith("__")
    }
    return (*own.items(), *((name, ABSENT) for name in sorted(named - set(vars(module)))))


def _is_kept(value: Any) -> bool:
    return type(value) in KEPT or (
        type(value) is tuple and all(type(item) in PLAIN for item in value)
    )

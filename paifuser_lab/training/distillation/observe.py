"""The outputs of layers while a model runs, and the layers that end its stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...model.watch import FAILED, watching
from ...workload import Inputs, running

ROWS = (nn.ModuleList, nn.Sequential)


@contextmanager
def answers_of(model: nn.Module, layers: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """The last output of each of the layers, while the context is open."""
    outputs: dict[str, Tensor] = {}

    def keep(layer: str) -> Any:
        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if (tensor := _first(output)) is not None:
                outputs[layer] = tensor

        return leave

    handles = [model.get_submodule(layer).register_forward_hook(keep(layer)) for layer in layers]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def stages(model: nn.Module, inputs: Inputs) -> list[str]:
    """The last block of each stage; a stage is a run of blocks whose outputs have one size,
    whatever their channels.

    Blocks are the composite layers in a ModuleList or Sequential; in a model without any, single
    layers are.
    """
    blocks = _blocks(model) or {
        name for name, module in model.named_modules() if not any(True for _ in module.children())
    }
    seen: list[tuple[str, tuple[int, ...]]] = []

    def leave(layer: str, output: Any) -> None:
        tensor = None if output is FAILED else _first(output)
        if layer in blocks and tensor is not None and tensor.ndim > 2:
            seen.append((layer, _size(tensor)))

    with running(model), watching(model, lambda layer, args, kwargs: None, leave):
        inputs.clone()(model)
    sizes = [*(size for _, size in seen), None]
    return list(
        dict.fromkeys(
            layer for (layer, size), after in zip(seen, sizes[1:], strict=True) if size != after
        )
    )


def _blocks(model: nn.Module) -> set[str]:
    """The children of a ModuleList or Sequential that are neither one nor inside another block."""
    blocks: set[str] = set()
    for name, module in model.named_modules():  # a layer comes before those in it
        parent = model.get_submodule(name.rpartition(".")[0])
        is_inside = any(name.startswith(f"{block}.") for block in blocks)
        if (
            isinstance(parent, ROWS)
            and not isinstance(module, ROWS)
            and not is_inside
            and any(True for _ in module.children())
        ):
            blocks.add(name)
    return blocks


def channel_dimension(output: Tensor) -> int:
    """The dimension of the channels of a layer's output: last in sequences, second in images."""
    return output.ndim - 1 if output.ndim == 3 else 1


def _size(output: Tensor) -> tuple[int, ...]:
    channels = channel_dimension(output)
    return (*output.shape[1:channels], *output.shape[channels + 1 :])


def _first(output: Any) -> Tensor | None:
    """The first floating-point tensor of an output."""
    leaves = pytree.tree_leaves(output)
    return next(
        (leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()), None
    )

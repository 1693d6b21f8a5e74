"""Which storages are alive after each operator, by category and layer, and the peak.

A dispatch mode, as torch.distributed's MemTracker is one. That one looks after each operator only,
so it misses what an operator allocates and frees inside, which on a CPU can be the peak; and its
module hooks change which path some modules take. Without workspace both give the same peak.
"""

from __future__ import annotations

import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ...records.predicted_peak import Category

Workspace = Callable[[Any, tuple[Any, ...], Any], int]
CALL, FORWARD, BACKWARD = "the call", "the forward pass", "the backward pass"
OPTIMIZER = "the optimizer's step"
CUDA_BLOCK = 512  # bytes to which torch's CUDA allocator rounds a request up


@dataclass
class _Block:
    """A storage that is alive."""

    reference: weakref.ref[Any]
    size: int
    category: Category
    layer: str


@dataclass
class Peak:
    """What is held at a moment."""

    total: int = 0
    held: dict[Category, int] = field(default_factory=dict)
    layers: dict[str, int] = field(default_factory=dict)  # of the activations
    moment: str = ""

    def with_inputs(self, size: int) -> Peak:
        """The same with inputs of another size."""
        more = size - self.held.get("inputs", 0)
        return replace(self, total=self.total + more, held={**self.held, "inputs": size})


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The storages that operators make inside this mode, and those entered before it."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.workspace = workspace
        self.peaks: dict[str, Peak] = {}  # by phase
        self.totals = array("q")  # at each moment but those of the optimizer's step
        self.phase = ""
        self.layer_path: list[str] = []
        self._blocks: dict[int, _Block] = {}
        self._held: Counter[Category] = Counter()
        self._layers: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.phase == OPTIMIZER and (known := _without_values(func)):
            return known[0]
        output = func(*args, **kwargs)
        if func is torch.ops.aten.native_batch_norm.default:
            output = _in_its_layout(args[0], output)
        category: Category = "workspace" if self.phase == OPTIMIZER else "activations"
        self.enter_storages(category, pytree.tree_leaves(output), is_new=True)
        self._look(self.workspace(func, args, output))
        return output

    def begin(self, phase: str) -> None:
        """Begin a phase; with the forward pass the peaks until now are forgotten."""
        self.phase = phase
        if phase == FORWARD:
            self.peaks.clear()
            del self.totals[:]
        self._look(0)

    def enter(self, layer: str, args: Any, kwargs: Any) -> None:
        self.layer_path.append(layer)

    def leave(self, layer: str, output: Any) -> None:
        self.layer_path.pop()

    def enter_storages(
        self, category: Category, tensors: Iterable[Any], *, is_new: bool = False
    ) -> None:
        """Count the storages of tensors in a category; with `is_new`, those not counted yet."""
        for tensor in tensors:
            if not isinstance(tensor, Tensor) or not torch._C._has_storage(tensor):
                continue
            storage = tensor.untyped_storage()
            size = _rounded(storage.nbytes(), tensor.device)
            block = self._blocks.get(id(storage))
            if block is None:
                self._add(storage, size, category)
            elif not is_new or size != block.size:
                self._change(block, -1)
                block.size = size
                block.category = block.category if is_new else category
                self._change(block, 1)

    def _add(self, storage: Any, size: int, category: Category) -> None:
        key = id(storage)

        def release(_: Any) -> None:
            self._change(self._blocks.pop(key), -1)

        outside = BACKWARD if self.phase == BACKWARD else ""
        layer = self.layer_path[-1] if self.layer_path else outside
        block = self._blocks[key] = _Block(weakref.ref(storage, release), size, category, layer)
        self._change(block, 1)

    def _change(self, block: _Block, sign: int) -> None:
        self._held[block.category] += sign * block.size
        if block.category == "activations":
            self._layers[block.layer] += sign * block.size

    def _look(self, workspace: int) -> None:
        """Keep what is held now if it is the most so far in this phase."""
        total = sum(self._held.values()) + workspace
        if self.phase != OPTIMIZER:
            self.totals.append(total)
        if self.phase not in self.peaks or total > self.peaks[self.phase].total:
            held = dict(self._held)
            held["workspace"] = held.get("workspace", 0) + workspace
            layer = self.layer_path[-1] if self.layer_path else ""
            moment = f"{self.phase}, in {layer}" if layer else self.phase
            self.peaks[self.phase] = Peak(total, held, dict(self._layers), moment)


def _without_values(func: Any) -> tuple[Any] | None:
    """What an optimizer's operator returns without running; fused ones have no fake version."""
    if func is torch.ops.aten._local_scalar_dense.default:
        return (1.0,)
    name = func._schema.name
    return (None,) if name.startswith("aten::_fused_") and name.endswith("_") else None


def _in_its_layout(image: Tensor, output: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The normed image in the layout of a CPU: a 1×1 one is plain, unlike its fake version."""
    if image.device.type != "cpu" or image.ndim != 4 or not image.is_contiguous():
        return output
    plain = torch.empty_like(output[0], memory_format=torch.contiguous_format)
    return plain, *output[1:]


def _rounded(size: int, device: torch.device) -> int:
    return -(-size // CUDA_BLOCK) * CUDA_BLOCK if device.type == "cuda" else size

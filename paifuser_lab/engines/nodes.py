"""The nodes that an engine ran, with the time of each and the layers that were joined in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from ..converter import Part

# operators that lead a node before all others; those that lead one only beside operators without
# arithmetic; and those without
HEAVY = ("Conv", "ConvTranspose", "ConvInteger", "Gemm", "MatMul", "MatMulInteger", "Einsum")
POINTWISE = (
    "Add", "Clip", "Div", "Erf", "Gelu", "Mul", "Pow", "Relu", "Sigmoid", "Sub", "Tanh", "Where",
)  # fmt: skip
LIGHT = (
    "Cast", "CastLike", "Concat", "Constant", "DequantizeLinear", "Expand", "Flatten", "Gather",
    "Identity", "Pad", "QuantizeLinear", "Reshape", "Shape", "Slice", "Split", "Squeeze",
    "Transpose", "Unsqueeze",
)  # fmt: skip


@dataclass(frozen=True)
class EngineNode:
    """A node that an engine ran; `ms` has its time in each recorded run.

    Bytes are None where the engine does not give them. `parts` is empty where the engine gave a
    name that belongs to no layer.
    """

    name: str
    op: str
    kernel: str
    ms: tuple[float, ...]
    parts: tuple[Part, ...] = ()
    read_bytes: int | None = None
    written_bytes: int | None = None
    held_bytes: int | None = None

    @property
    def leader(self) -> str | None:
        """The layer whose work the node mainly does."""
        return min(self.parts, key=_rank).layer if self.parts else None

    @property
    def runs_as(self) -> str:
        """The operators that run as one, in their order; the engine's own name if it has no
        parts.
        """
        heavy = [part.op for part in self.parts if part.op not in LIGHT]
        ops = dict.fromkeys(heavy or [part.op for part in self.parts] or [self.op])
        return " + ".join(op.replace("Normalization", "Norm") for op in ops)

    def without(self, ms: float) -> EngineNode:
        """The node with the cost of recording it taken out of each run."""
        return replace(self, ms=tuple(max(0.0, run - ms) for run in self.ms))

    def renamed(self, layers: Iterable[str]) -> EngineNode:
        """The node with each part at the nearest layer above that is one of `layers`."""
        known = set(layers)
        parts = dict.fromkeys(Part(_nearest(part.layer, known), part.op) for part in self.parts)
        return replace(self, parts=tuple(parts))


class NodeRecorder(ABC):
    """Runs a model with the engine's profiler on, apart from the session that is timed.

    `title` is the engine's name; `no_memory` says why it gives no memory, if it gives none.
    """

    title: ClassVar[str]
    no_memory: ClassVar[str] = ""

    @abstractmethod
    def run(self, tensors: list[Tensor]) -> None:
        """Run once and record it."""

    @abstractmethod
    def nodes(self) -> list[EngineNode]:
        """End the recording and read it: the nodes in the order in which they ran."""


def _rank(part: Part) -> int:
    ranks = [index for index, ops in ((0, HEAVY), (2, POINTWISE), (3, LIGHT)) if part.op in ops]
    return ranks[0] if ranks else 1


def _nearest(layer: str, known: set[str]) -> str:
    while layer and layer not in known:
        layer = layer.rpartition(".")[0]
    return layer

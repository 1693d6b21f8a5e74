"""The blocks of this project's Swin."""

from __future__ import annotations

from torch import Tensor, nn

from ...zoo.swin import Block, WindowAttention
from .fused import FusedWindows


class FusedBlock(FusedWindows):
    """A block of the zoo's Swin that attends in one pass."""

    attention: WindowAttention
    window: int
    shift: int

    def queries_keys_values(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (
            self.attention.qkv(tokens).unflatten(-1, (3, self.attention.heads, -1)).unbind(-3)
        )
        return query, key, value

    def projected(self, mixed: Tensor) -> Tensor:
        out: Tensor = self.attention.project(mixed)
        return out

    def bias_table(self) -> Tensor:
        return self.attention.position_bias

    def _attend(self, x: Tensor) -> Tensor:
        return self.attended(x, self.window, self.shift)


def is_swin_block(layer: nn.Module) -> bool:
    """Whether a layer is a block of the zoo's Swin."""
    return type(layer) is Block

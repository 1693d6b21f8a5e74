"""What is added to the scores of a window: the learned bias of each pair of tokens, and the mask of
the shift; cached until the bias changes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...kernels.window_attention import distances, mask


def added(
    table: Tensor, image: tuple[int, int], window: int, shift: int, dtype: torch.dtype
) -> Tensor:
    """(windows or 1, heads, tokens, tokens), of Swin's `table` (distances, heads)."""
    bias = table[distances(window, table.device)].permute(2, 0, 1)[None].to(dtype)
    return bias + mask(*image, window, (shift, shift), bias) if shift else bias


class KeptBias:
    """A cache of the last output of `added`; a copy of the layer starts with an empty one."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.table: Tensor | None = None
        self.kept: Tensor | None = None

    def __call__(
        self, table: Tensor, image: tuple[int, int], window: int, shift: int, dtype: torch.dtype
    ) -> Tensor:
        """The output of `added`, computed anew if its inputs changed, and always under autograd or
        compilation.
        """
        if torch.is_grad_enabled() and table.requires_grad:
            self.forget()  # training may change the table without counting it
            return added(table, image, window, shift, dtype)
        if torch.compiler.is_compiling() or table.is_inference():
            return added(table, image, window, shift, dtype)
        key = (
            table._version,
            table.data_ptr(),
            table.device,
            image if shift else None,
            window,
            shift,
            dtype,
        )
        if self.kept is None or self.table is not table or self.key != key:
            # A later call may differentiate what it is added to.
            with torch.inference_mode(False), torch.no_grad():
                self.key, self.table, self.kept = (
                    key,
                    table,
                    added(table, image, window, shift, dtype).contiguous(),
                )
        return self.kept

    def forget(self) -> None:
        """Empty the cache."""
        if not torch.compiler.is_compiling():
            self.key, self.table, self.kept = (), None, None

    def __deepcopy__(self, memo: Any) -> KeptBias:
        return KeptBias()

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptBias, ()

"""What is added to the scores of a window: the learned bias of each pair of tokens, and the mask of
the shift; kept until the bias changes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...kernels.window_attention import distances, mask


def added(
    table: Tensor, image: tuple[int, int], window: int, shift: int, dtype: torch.dtype
) -> Tensor:
    """(windows or 1, heads, tokens, tokens); `table` is (distances, heads), as Swin has it."""
    bias = table[distances(window, table.device)].permute(2, 0, 1)[None].to(dtype)
    return bias + mask(*image, window, (shift, shift), bias) if shift else bias


class KeptBias:
    """The last output of `added`; a copy of the layer begins without it."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.table: Tensor | None = None
        self.kept: Tensor | None = None

    def __call__(
        self, table: Tensor, image: tuple[int, int], window: int, shift: int, dtype: torch.dtype
    ) -> Tensor:
        """As `added`, and made anew only where something changed; where gradients or a compiler
        follow, always.
        """
        if torch.is_grad_enabled() and table.requires_grad:
            self.forget()  # what comes of it may change the table uncounted
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
            with (
                torch.inference_mode(False),
                torch.no_grad(),
            ):  # a later call may differentiate what it is added to
                self.key, self.table, self.kept = (
                    key,
                    table,
                    added(table, image, window, shift, dtype).contiguous(),
                )
        return self.kept

    def forget(self) -> None:
        """Begin anew."""
        if not torch.compiler.is_compiling():
            self.key, self.table, self.kept = (), None, None

    def __deepcopy__(self, memo: Any) -> KeptBias:
        return KeptBias()

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptBias, ()

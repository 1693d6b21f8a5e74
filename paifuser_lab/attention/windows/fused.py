"""Attention within the windows of an image, as in Swin's blocks, in one pass."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import StepError
from ...kernels import attend_windows
from ..subclassing import Subclassed
from .biases import KeptBias


class FusedWindows(Subclassed):
    """A block that attends in one pass; subclasses say where its parts are."""

    kept_bias: KeptBias
    training: bool

    @abstractmethod
    def queries_keys_values(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (…, heads, numbers)."""

    @abstractmethod
    def projected(self, mixed: Tensor) -> Tensor:
        """The output projection."""

    @abstractmethod
    def bias_table(self) -> Tensor:
        """The learned biases, (distances, heads)."""

    def attended(self, image: Tensor, window: int, shift: int, dropout: float = 0.0) -> Tensor:
        """Attention within the windows of an image (batch, height, width, channels) that is rolled
        by `shift` and back.
        """
        table = self.bias_table()
        if len(table) != (2 * window - 1) ** 2:
            raise StepError(
                f"a window of {window} does not fit the {len(table)} biases that were learned; "
                "give larger images."
            )
        if image.is_cuda and not dropout:
            parts = self.queries_keys_values(image)
            if parts[0].dtype in (torch.float16, torch.bfloat16):
                joined = torch.stack(parts, dim=3)
                return self.projected(
                    attend_windows(joined, table.t(), window=window, shift=(shift, shift))
                )
        batch, height, width, _ = image.shape
        windows = _cut(torch.roll(image, (-shift, -shift), dims=(1, 2)) if shift else image, window)
        query, key, value = (tensor.transpose(1, 2) for tensor in self.queries_keys_values(windows))
        added = self.kept_bias(table, (height, width), window, shift, query.dtype)
        added = added.repeat(batch, 1, 1, 1) if shift and batch > 1 else added
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=added, dropout_p=dropout
        )
        output = _joined(self.projected(mixed.transpose(1, 2).flatten(2)), height, width, window)
        return torch.roll(output, (shift, shift), dims=(1, 2)) if shift else output


def _cut(image: Tensor, window: int) -> Tensor:
    """(batch · windows, tokens, channels)."""
    batch, height, width, channels = image.shape
    parts = image.reshape(batch, height // window, window, width // window, window, channels)
    return parts.transpose(2, 3).reshape(-1, window * window, channels)


def _joined(windows: Tensor, height: int, width: int, window: int) -> Tensor:
    """The inverse of `_cut`: the image."""
    channels = windows.shape[-1]
    parts = windows.reshape(-1, height // window, width // window, window, window, channels)
    return parts.transpose(2, 3).reshape(-1, height, width, channels)

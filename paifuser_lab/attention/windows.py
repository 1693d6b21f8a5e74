"""Swin's attention in one pass over the image: the same output, without reordering it before.

For the blocks of this project's Swin, and for the layers of Swin in transformers, which are
recognised by their parts, as the library may be missing.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import StepError
from ..kernels import attend_windows
from ..kernels.window_attention import distances, mask
from ..model.formats import HALVES
from ..zoo.swin import Block, WindowAttention, join_windows, split_windows
from .subclassing import Subclassed, subclass_layer

PARTS = ("q_proj", "k_proj", "v_proj", "o_proj", "relative_position_bias", "head_dim", "config")
AROUND = (
    "layernorm_before",
    "layernorm_after",
    "mlp",
    "dropout",
    "drop_path",
    "shift_size",
    "window_size",
    "maybe_pad",
)


def is_windowed(layer: nn.Module) -> bool:
    """Whether a layer is a block of Swin that can attend, or already attends, in one pass."""
    return is_fused(layer) or _mixin_for(layer) is not None


def is_fused(layer: nn.Module) -> bool:
    """Whether a layer attends in one pass."""
    return isinstance(layer, FusedWindows)


def make_fused(model: nn.Module, layer: str) -> None:
    """Let a block of Swin attend in one pass."""
    block = model.get_submodule(layer)
    if (mixin := _mixin_for(block)) is not None:
        subclass_layer(block, mixin)
        block.kept_bias = KeptBias()  # type: ignore[assignment]


def _mixin_for(layer: nn.Module) -> type[Subclassed] | None:
    if type(layer) is Block:
        return FusedBlock
    return FusedLayer if is_swin_layer(layer) else None


def bias_and_mask(
    table: Tensor, image: tuple[int, int], window: int, shift: int, dtype: torch.dtype
) -> Tensor:
    """(windows or 1, heads, tokens, tokens), of Swin's `table` (distances, heads)."""
    bias = table[distances(window, table.device)].permute(2, 0, 1)[None].to(dtype)
    return bias + mask(*image, window, (shift, shift), bias) if shift else bias


class KeptBias:
    """A cache of the last output of `bias_and_mask`; a copy starts empty."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.table: Tensor | None = None
        self.kept: Tensor | None = None

    def __call__(
        self, table: Tensor, image: tuple[int, int], window: int, shift: int, dtype: torch.dtype
    ) -> Tensor:
        """The output of `bias_and_mask`, computed anew if its inputs changed, and always under
        autograd or compilation.
        """
        if torch.is_grad_enabled() and table.requires_grad:
            self.forget()  # training may change the table without counting it
            return bias_and_mask(table, image, window, shift, dtype)
        if torch.compiler.is_compiling() or table.is_inference():
            return bias_and_mask(table, image, window, shift, dtype)
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
                    bias_and_mask(table, image, window, shift, dtype).contiguous(),
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
        is_cast = image.is_cuda and torch.is_autocast_enabled("cuda")
        dtype = torch.get_autocast_dtype("cuda") if is_cast else image.dtype
        if image.is_cuda and not dropout and dtype in HALVES:
            parts = self.queries_keys_values(image)
            if parts[0].dtype in HALVES:  # a layer under autocast may have a format of its own
                joined = torch.stack(parts, dim=3)
                return self.projected(
                    attend_windows(joined, table.t(), window=window, shift=(shift, shift))
                )
        batch, height, width, _ = image.shape
        windows = split_windows(
            torch.roll(image, (-shift, -shift), dims=(1, 2)) if shift else image, window
        )
        query, key, value = (tensor.transpose(1, 2) for tensor in self.queries_keys_values(windows))
        added = self.kept_bias(table, (height, width), window, shift, query.dtype)
        added = added.repeat(batch, 1, 1, 1) if shift and batch > 1 else added
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=added, dropout_p=dropout
        )
        output = join_windows(
            self.projected(mixed.transpose(1, 2).flatten(2)), window, height, width
        )
        return torch.roll(output, (shift, shift), dims=(1, 2)) if shift else output


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


class FusedLayer(FusedWindows):
    """A layer of transformers' Swin that attends in one pass; images whose size is no multiple of
    the window are padded as transformers does.
    """

    attention: Any
    window_size: int
    shift_size: int
    layernorm_before: nn.Module
    layernorm_after: nn.Module
    mlp: nn.Module
    dropout: nn.Module
    drop_path: nn.Module
    maybe_pad: Any
    set_shift_and_window_size: Any

    def queries_keys_values(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = (self.attention.q_proj, self.attention.k_proj, self.attention.v_proj)
        query, key, value = (
            part(tokens).unflatten(-1, (-1, self.attention.head_dim)) for part in parts
        )
        return query, key, value

    def projected(self, mixed: Tensor) -> Tensor:
        out: Tensor = self.attention.o_proj(mixed)
        return out

    def bias_table(self) -> Tensor:
        table: Tensor = self.attention.relative_position_bias.relative_position_bias_table
        return table

    def forward(
        self,
        hidden_states: Tensor,
        input_dimensions: tuple[int, int],
        always_partition: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """The layer's output, without attention weights, which are never in memory."""
        if kwargs.get("output_attentions") or getattr(
            self.attention.config, "output_attentions", False
        ):
            raise StepError(
                "attention in one pass has no weights to output for output_attentions; leave step "
                "'attention' out where they are needed."
            )
        if not always_partition:
            self.set_shift_and_window_size(input_dimensions)
        height, width = input_dimensions
        batch, tokens, channels = hidden_states.shape
        image = self.layernorm_before(hidden_states).view(batch, height, width, channels)
        padded, _ = self.maybe_pad(image, height, width)
        dropout = self.attention.attention_dropout if self.training else 0.0
        mixed = self.dropout(self.attended(padded, self.window_size, self.shift_size, dropout))
        hidden = hidden_states + self.drop_path(
            mixed[:, :height, :width].reshape(batch, tokens, channels)
        )
        return hidden + self.dropout(self.mlp(self.layernorm_after(hidden))), None


def is_swin_layer(layer: nn.Module) -> bool:
    """Whether a layer is a Swin layer of transformers 5, by its parts."""
    attention: Any = getattr(layer, "attention", None)
    has_parts = all(hasattr(layer, part) for part in AROUND) and all(
        hasattr(attention, part) for part in PARTS
    )
    return has_parts and hasattr(attention.relative_position_bias, "relative_position_bias_table")

"""The layers of Swin in transformers, recognised by their parts: the library may be missing."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...errors import StepError
from .fused import FusedWindows

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

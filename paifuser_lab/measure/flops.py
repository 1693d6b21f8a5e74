"""The multiply-adds of operators that torch.utils.flop_counter knows nothing of, and a counter that
knows them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry


def counter() -> FlopCounterMode:
    """torch's counter of floating-point operations, two a multiply-add, with these formulas beside
    its own.
    """
    packets = {
        getattr(torch.ops.aten, name): _formula(count) for name, count in MULTIPLY_ADDS.items()
    }
    return FlopCounterMode(
        display=False,
        custom_mapping={one: packets[one] for one in packets.keys() - flop_registry.keys()},
    )


def _formula(count: Callable[[Any], int]) -> Callable[..., int]:
    """As torch's counter asks for it: with the arguments themselves, not their shapes."""

    def formula(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        return 2 * count(args)

    formula._get_raw = True  # type: ignore[attr-defined]
    return formula


def _cpu_attention(args: Any) -> int:
    """torch counts the fused attention of a GPU, not that of a CPU; the arithmetic is the same."""
    query, key, value = args[:3]
    scores = int(query.numel()) * int(key.shape[-2])
    return scores + scores // int(query.shape[-1]) * int(value.shape[-1])


def _recurrent(args: Any) -> int:
    """oneDNN's layer: every step multiplies its input and its state by their weights."""
    steps = args[0]
    return int(steps.numel() // steps.shape[-1]) * int(args[1].numel() + args[2].numel())


def _fused_attention(args: Any, weights: tuple[int, ...]) -> int:
    """torch's fused layers: each token times each weight, and every token with every other."""
    width = args[0].size(-1)
    lengths = (
        [one.size(0) for one in args[0].unbind()]
        if args[0].is_nested
        else [args[0].shape[-2]] * args[0].shape[0]
    )
    dense = sum(args[place].numel() for place in weights)
    return int(sum(length * dense + 2 * length * length * width for length in lengths))


def _grouped(args: Any) -> int:
    """Experts side by side: each row of the first meets the columns of one matrix."""
    rows, matrices = args[:2]
    experts = rows.shape[0] if rows.ndim == 3 and matrices.ndim == 2 else 1
    return int(rows.numel() // experts * matrices.shape[-1])


MULTIPLY_ADDS: dict[str, Callable[[Any], int]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _cpu_attention,
    "mkldnn_rnn_layer": _recurrent,
    "_grouped_mm": _grouped,
    "mv": lambda args: int(args[0].numel()),
    "addmv": lambda args: int(args[1].numel()),
    "dot": lambda args: int(args[0].numel()),
    "_native_multi_head_attention": lambda args: _fused_attention(args, (5, 7)),
    "_transformer_encoder_layer_fwd": lambda args: _fused_attention(args, (3, 5, 14, 16)),
}

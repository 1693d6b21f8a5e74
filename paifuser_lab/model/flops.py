"""Multiply-adds of operators that torch.utils.flop_counter lacks, and a counter that has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry


def counter() -> FlopCounterMode:
    """torch's FLOP counter (two operations a multiply-add), extended by these formulas."""
    packets = {
        getattr(torch.ops.aten, name): _formula(count) for name, count in MACS_FORMULAS.items()
    }
    return FlopCounterMode(
        display=False,
        custom_mapping={op: packets[op] for op in packets.keys() - flop_registry.keys()},
    )


def _formula(count: Callable[[Any], int]) -> Callable[..., int]:
    """A formula for torch's counter that takes the arguments themselves, not their shapes."""

    def formula(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        return 2 * count(args)

    formula._get_raw = True  # type: ignore[attr-defined]
    return formula


def _cpu_attention(args: Any) -> int:
    """Fused attention on a CPU, which torch does not count; the arithmetic is that of the GPU's."""
    query, key, value = args[:3]
    scores = int(query.numel()) * int(key.shape[-2])
    return scores + scores // int(query.shape[-1]) * int(value.shape[-1])


def _recurrent(args: Any) -> int:
    """oneDNN's recurrent layer: each step multiplies its input and state by their weights."""
    steps = args[0]
    return int(steps.numel() // steps.shape[-1]) * int(args[1].numel() + args[2].numel())


def _fused_attention(args: Any, weights: tuple[int, ...]) -> int:
    """torch's fused transformer layers: each token times the weights, and attention."""
    width = args[0].size(-1)
    lengths = (
        [sequence.size(0) for sequence in args[0].unbind()]
        if args[0].is_nested
        else [args[0].shape[-2]] * args[0].shape[0]
    )
    dense = sum(args[index].numel() for index in weights)
    return int(sum(length * dense + 2 * length * length * width for length in lengths))


def _grouped(args: Any) -> int:
    """Grouped experts: each row is multiplied by the matrix of one expert."""
    rows, matrices = args[:2]
    experts = rows.shape[0] if rows.ndim == 3 and matrices.ndim == 2 else 1
    return int(rows.numel() // experts * matrices.shape[-1])


MACS_FORMULAS: dict[str, Callable[[Any], int]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _cpu_attention,
    "mkldnn_rnn_layer": _recurrent,
    "_grouped_mm": _grouped,
    "mv": lambda args: int(args[0].numel()),
    "addmv": lambda args: int(args[1].numel()),
    "dot": lambda args: int(args[0].numel()),
    "_native_multi_head_attention": lambda args: _fused_attention(args, (5, 7)),
    "_transformer_encoder_layer_fwd": lambda args: _fused_attention(args, (3, 5, 14, 16)),
}

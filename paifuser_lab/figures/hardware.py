"""The peak rate of a machine in each dtype, as bars."""

from __future__ import annotations

from ..records import Hardware
from .style import Drawing, blank, end_label


def draw(hardware: Hardware, *, dark: bool = False) -> Drawing:
    """A bar per dtype for the device that models run on."""
    ceiling = hardware.target
    rates = {
        "fp32": ceiling.fp32_gflops,
        "bf16": ceiling.bf16_gflops,
        "fp16": ceiling.fp16_gflops,
        "int8": ceiling.int8_gops,
    }
    known = {name: rate for name, rate in rates.items() if rate is not None}
    title = (
        f"{hardware.name} · {ceiling.threads} threads · {ceiling.bandwidth_gbs:.3g} GB/s "
        f"({hardware.source})"
    )
    drawing, axes, theme = blank(title, height=1.0 + 0.32 * len(known), dark=dark)
    axes.barh(list(known), list(known.values()), height=0.55, color=theme.main)
    for index, rate in enumerate(known.values()):
        text = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
        end_label(axes, theme, text, (rate, index))
    axes.invert_yaxis()
    axes.set_xlim(0, max(known.values()) * 1.2)
    axes.set_xlabel("billion operations a second", color=theme.ink, fontsize=9)
    return drawing

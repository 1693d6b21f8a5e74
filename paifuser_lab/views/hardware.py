"""A machine: its facts, and what it computes and moves a second by format and number of threads."""

from __future__ import annotations

from ..records import Ceiling, Hardware, counted, readable_bytes
from ..records.text import readable_rate, three_figures
from .picture import Axis, Fact, Panel, Picture

ROW = 24  # pixels of a bar with the gap to the next
SOURCES = {"measured": "ceilings measured here", "published": "published figures, not measured"}
Bar = tuple[str, float, str]  # its name, its length, what stands behind it


def picture(hardware: Hardware) -> Picture:
    """A bar per format and number of threads; beside them how fast memory is read and written."""
    threads = sorted(hardware.ceilings, key=lambda ceiling: ceiling.threads)
    groups = [[(counted(ceiling.threads, "thread"), ceiling) for ceiling in threads]]
    groups += [[(device.name, device.ceiling)] for device in hardware.accelerators]
    cores = str(hardware.physical_cores)
    if hardware.logical_cores != hardware.physical_cores:
        cores += f", {hardware.logical_cores} logical"
    caches = [
        Fact(_binary(size), f"{level} cache") for level, size in hardware.caches_bytes.items()
    ]
    memory = [Fact(readable_bytes(hardware.memory_bytes), "of memory")]
    memory += [
        Fact(readable_bytes(device.memory_bytes), f"of {device.name}")
        for device in hardware.accelerators
    ]
    torch = [Fact(hardware.torch_version, "torch")] if hardware.torch_version else []
    sets = " ".join(hardware.isa)
    return Picture(
        title=hardware.name,
        label="what this machine computes and moves a second",
        sentence=SOURCES[hardware.source],
        facts=(Fact(cores, "cores"), *memory, *caches, *torch),
        rows=tuple((_rates(group), _bandwidths(group)) for group in groups),
        items=(("instruction sets", sets),) if sets else (),
        note=" · ".join(hardware.remarks),
    )


def _rates(group: list[tuple[str, Ceiling]]) -> Panel:
    bars = []
    for name, ceiling in group:
        for form, rate in ceiling.rates.items():
            ratio = rate / ceiling.fp32_gflops
            beside = "" if form == "fp32" else f" · {ratio:.{1 if ratio < 10 else 0}f} ×"
            bars.append((f"{name} · {form}", rate, f"{readable_rate(rate)}{beside}"))
    return _panel(bars, "billion operations a second; beside it × fp32", "compute")


def _bandwidths(group: list[tuple[str, Ceiling]]) -> Panel:
    widths = [(name, ceiling.bandwidth_gbs) for name, ceiling in group]
    bars = [(name, width, f"{readable_rate(width)}") for name, width in widths]
    return _panel(bars, "GB/s of memory", "memory")


def _panel(bars: list[Bar], label: str, tone: str) -> Panel:
    names, texts = [name for name, *_ in bars], [text for *_, text in bars]
    lengths = [length for _, length, _ in bars]
    across = Axis.linear(0, 1.4 * max(lengths), label, "rate", most=4)
    return Panel.bars(names, lengths, texts, across, 50 + ROW * len(bars), tone=tone)


def _binary(size: int) -> str:
    """Caches are made in powers of two: 32768 → '32 KiB'."""
    scale, unit = (2**20, "MiB") if size >= 2**20 else (2**10, "KiB")
    return f"{three_figures(size / scale)} {unit}"

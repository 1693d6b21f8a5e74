"""The block about streams."""

from __future__ import annotations

from ..stream import StreamBench, StreamRow
from .folder import Block, Records
from .text import number, paragraph, table

HEADER = ("case", "engine", "workers", "frames/s", "of ideal", "p50, ms", "p95, ms",
          "lost, doubled", "longest gap, ms")  # fmt: skip


def stream(records: Records) -> str:
    """Each stream over simulated workers, and the overhead of a frame."""
    measured = records.get("stream", StreamBench)
    if measured is None:
        return ""
    overheads = ", ".join(
        f"{row.way} {number(row.p50_ms)} ms (p95 {number(row.p95_ms)})"
        for row in measured.overheads
    )
    caption = paragraph(
        f"`paifuser-lab bench stream` on {measured.machine}. Workers are simulated: the service of "
        f"a frame is {number(measured.service_ms)} ms of sleep.",
        f"A frame that nothing is done with takes: {overheads}." if overheads else "",
        " ".join(f"{name}: {why}" for name, why in measured.failures.items()),
    )
    return f"{caption}\n\n{table(HEADER, map(_row, measured.rows))}"


def _row(row: StreamRow) -> list[str]:
    return [
        row.case,
        row.engine,
        str(row.workers),
        number(row.frames_per_s),
        "–" if row.share is None else f"{row.share:.2f}",
        number(row.p50_ms),
        number(row.p95_ms),
        f"{row.lost}, {row.doubled}" + ("" if row.in_order else ", not in order"),
        number(row.longest_gap_ms),
    ]


BLOCKS: dict[str, Block] = {"stream": stream}

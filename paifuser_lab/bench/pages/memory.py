"""Blocks about memory: pools."""

from __future__ import annotations

from ..memory import MemoryBench, PoolRow
from .folder import Block, Records
from .text import number, paragraph, ratio, table

HEADER = ("model", "batch", "ms", "×", "page faults a call", "resident in a call, MB")


def memory(records: Records) -> str:
    """Each model at each batch, without a pool and with it."""
    measured = records.get("memory", MemoryBench)
    if measured is None:
        return ""
    threads = "one thread" if measured.threads == 1 else f"{measured.threads} threads"
    faster = sum(row.interval[0] > 1 for row in measured.rows)
    busy = sum(row.quality is not None and not row.quality.is_quiet for row in measured.rows)
    caption = paragraph(
        f"`paifuser-lab bench memory` on {measured.machine}, {threads}, fp32: without a pool →",
        "with one, in turn. × = speed-up with the pool, and its 95 % interval.",
        f"{faster} of {len(measured.rows)} are faster with it.",
        f"{busy} of them were measured on a busy machine." if busy else "",
    )
    return f"{caption}\n\n{table(HEADER, map(_row, measured.rows))}"


def _row(row: PoolRow) -> list[str]:
    return [
        row.model,
        f"{row.batch}, {row.kind}",
        f"{number(row.without_ms)} → {number(row.with_ms)}",
        ratio(row.ratio, row.interval),
        f"{_count(row.without_faults)} → {_count(row.with_faults)}",
        f"{_megabytes(row.without_bytes)} → {_megabytes(row.with_bytes)}",
    ]


def _count(faults: float | None) -> str:
    return "–" if faults is None else f"{faults:,.0f}"


def _megabytes(size: int | None) -> str:
    return "–" if size is None else f"{size / 1e6:,.0f}"


BLOCKS: dict[str, Block] = {"memory": memory}

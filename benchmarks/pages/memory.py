"""Blocks about memory: pools, the step reuse, predicted peaks, reading a snapshot."""

from __future__ import annotations

from ..memory import MemoryBench, PoolRow
from ..memory_peak import MemoryPeakBench, PeakRow
from ..memory_replay import ReplayBench
from ..memory_snapshot import SnapshotReading
from ..reuse import ReuseBench, ReuseRow
from .folder import Block, Records
from .text import number, paragraph, ratio, table

HEADER = ("model", "batch", "ms", "×", "page faults a call", "resident in a call, MB")
REUSE_HEADER = ("model", "batch", "in place", "buffers, MB", "peak, MB", "ms", "×")
PEAK_HEADER = (
    "model",
    "batch",
    "predicted, MB",
    "torch allocated, MB",
    "ratio",
    "the process took, MB",
    "× of the prediction",
)


def memory(records: Records) -> str:
    """Each model at each batch, without a pool and with it."""
    measured = records.get("memory", MemoryBench)
    if measured is None:
        return ""
    threads = "one thread" if measured.threads == 1 else f"{measured.threads} threads"
    faster = sum(row.interval[0] > 1 for row in measured.rows)
    busy = sum(row.quality is not None and not row.quality.is_quiet for row in measured.rows)
    caption = paragraph(
        f"`python -m benchmarks memory` on {measured.machine}, {threads}, fp32: without a pool →",
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


def reuse(records: Records) -> str:
    """Each model at each batch, without the step `reuse` and with it."""
    measured = records.get("reuse", ReuseBench)
    if measured is None:
        return ""
    threads = "one thread" if measured.threads == 1 else f"{measured.threads} threads"
    caption = paragraph(
        f"`python -m benchmarks reuse` on {measured.machine}, {threads}, fp32: the folded model →",
        "the same with `reuse`, in turn; the peak is that of torch's allocator, without weights",
        f"and inputs. {measured.summary.splitlines()[0]}." if measured.rows else "",
    )
    return f"{caption}\n\n{table(REUSE_HEADER, map(_reuse_row, measured.rows))}"


def _reuse_row(row: ReuseRow) -> list[str]:
    return [
        row.model,
        str(row.batch),
        row.note,
        f"{_megabytes(row.without_buffers)} → {_megabytes(row.with_buffers)}",
        f"{_megabytes(row.without_bytes)} → {_megabytes(row.with_bytes)}",
        f"{number(row.without_ms)} → {number(row.with_ms)}",
        ratio(row.ratio, row.interval),
    ]


def memory_peak(records: Records) -> str:
    """How near the predicted peaks are to the measured ones."""
    measured = records.get("memory_peak", MemoryPeakBench)
    if measured is None:
        return ""
    lines = measured.summary.splitlines() if measured.rows else []
    caption = paragraph(
        f"`python -m benchmarks memory-peak` on {measured.machine}: predicted over measured peak.",
        *(f"{line[0].upper()}{line[1:]}." for line in lines[:2]),
    )
    return f"{caption}\n\n{table(PEAK_HEADER, map(_peak_row, measured.rows))}"


def _peak_row(row: PeakRow) -> list[str]:
    setting = "training" if row.options.train else "inference"
    precision = "" if row.options.precision == "fp32" else f", {row.options.precision}"
    return [
        row.model,
        f"{row.batch}, {setting}{precision}",
        _megabytes(row.held.total_bytes),
        _megabytes(row.measured_bytes),
        f"{row.ratio:.3f}",
        _megabytes(row.resident_bytes),
        "–" if row.process_ratio is None else f"{row.process_ratio:.2f}",
    ]


def memory_snapshot(records: Records) -> str:
    """How long a generated snapshot takes to read, and how much memory."""
    measured = records.get("memory_snapshot", SnapshotReading)
    if measured is None:
        return ""
    cpu, resident = f"{measured.cpu_seconds:.0f} s of CPU", _megabytes(measured.peak_bytes)
    return paragraph(
        f"A generated snapshot of {measured.file_bytes / 1e9:.2f} GB with {measured.events:,}",
        f"events is read in {measured.seconds:.0f} s and analysed in",
        f"{measured.analysed_seconds:.1f} s ({cpu}), with {resident} MB resident at most",
        f"(`python -m benchmarks memory-snapshot` on {measured.machine}).",
    )


def memory_replay(records: Records) -> str:
    """How near the simulated allocator is to recorded snapshots."""
    measured = records.get("memory_replay", ReplayBench)
    if measured is None or not measured.rows:
        return ""
    settings = " and ".join(sorted({f"`{row.settings}`" for row in measured.rows}))
    grown = sum(row.has_growth for row in measured.rows)
    lines = measured.summary.splitlines()
    return paragraph(
        f"**By recordings.** {len(measured.rows)} public snapshots of GPUs, all with the settings",
        f"{settings}, replayed: simulated over recorded peak of reserved bytes. Of those",
        f"recorded while segments were taken, {lines[0]}.",
        f"The others, {lines[1]}: what was reserved for earlier requests cannot be replayed."
        if 0 < grown < len(measured.rows)
        else "",
        "(`python -m benchmarks memory-replay FILES`)",
    )


BLOCKS: dict[str, Block] = {
    "memory": memory,
    "reuse": reuse,
    "memory_peak": memory_peak,
    "memory_snapshot": memory_snapshot,
    "memory_replay": memory_replay,
}

"""The blocks about streams and servers."""

from __future__ import annotations

from paifuser_lab.records import readable_bytes

from ..serve import ServeBench
from ..stream import StreamBench
from ..stream_rows import StreamRow
from ..stream_video import VideoBench, VideoRow
from .folder import Block, Records
from .text import number, paragraph, percent, table

HEADER = ("case", "engine", "workers", "frames", "frames/s", "of ideal", "p50, ms", "p95, ms",
          "lost, doubled", "workers lost", "longest gap, ms", "grown, MB")  # fmt: skip
OVERHEAD = ("a frame that nothing is done with", "p50, ms", "p95, ms", "")


def stream(records: Records) -> str:
    """Each stream over simulated workers, and the overhead of a frame."""
    measured = records.get("stream", StreamBench)
    if measured is None:
        return ""
    caption = paragraph(
        f"`python -m benchmarks stream` on {measured.machine}. "
        "Workers are simulated: the service of "
        f"a frame is {number(measured.service_ms)} ms of sleep. Grown is the memory of the process "
        "that drives the stream, from a quarter of the frames to the last.",
        " ".join(f"{name}: {why.rstrip('.')}." for name, why in measured.failures.items()),
    )
    overheads = [
        [row.way, number(row.p50_ms), number(row.p95_ms), row.note] for row in measured.overheads
    ]
    parts = [caption, table(HEADER, map(_row, measured.rows))]
    parts += [table(OVERHEAD, overheads)] if overheads else []
    return "\n\n".join(parts)


def _row(row: StreamRow) -> list[str]:
    return [
        row.case,
        row.engine,
        str(row.workers),
        f"{row.frames:,}",
        number(row.frames_per_s),
        "–" if row.share is None else f"{row.share:.2f}",
        number(row.p50_ms),
        number(row.p95_ms),
        f"{row.lost}, {row.doubled}" + ("" if row.in_order else ", not in order"),
        str(row.lost_workers),
        number(row.longest_gap_ms),
        "–" if row.grown_bytes is None else f"{row.grown_bytes / 1e6:.1f}",
    ]


def batching(records: Records) -> str:
    """Latency and throughput of each rule of batching at each rate of arrival."""
    measured = records.get("stream", StreamBench)
    if measured is None or measured.batching is None:
        return ""
    curve = measured.batching
    caption = paragraph(
        f"Dynamic batching of {curve.call}, items arriving at random whether earlier ones are "
        f"answered or not, by `python -m benchmarks stream` on {measured.machine}."
    )
    lines = [
        [
            point.rule,
            number(point.offered_per_s),
            number(point.answered_per_s),
            number(point.p50_ms),
            number(point.p95_ms),
            number(point.p99_ms),
            number(point.mean_batch),
        ]
        for point in curve.points
    ]
    header = ("rule", "offered/s", "answered/s", "p50, ms", "p95, ms", "p99, ms", "in a call")
    return f"{caption}\n\n{table(header, lines)}"


def stream_video(records: Records) -> str:
    """Encoded groups against decoded frames, and the share of each stage, by size of clip."""
    measured = records.get("stream_video", VideoBench)
    if measured is None or not measured.rows:
        return ""
    caption = paragraph(
        f"`python -m benchmarks stream-video` on {measured.machine}, {measured.workers} processes: "
        "groups of packets that workers decode, against decoded frames that are sent to them, "
        "in turn; × is the median of the rounds."
    )
    header = ("clip", "a frame, encoded", "decoded", "frames/s, encoded", "decoded", "×")
    ways = table(header, map(_way, measured.rows))
    stages = list(dict.fromkeys(name for row in measured.rows for name in row.stage_ms))
    shares = table(
        ("clip", *stages, "all, ms a frame"), [_shares(row, stages) for row in measured.rows]
    )
    between = "The stages of a detector over the same clips, one after another in one process:"
    return "\n\n".join([caption, ways, between, shares])


def _way(row: VideoRow) -> list[str]:
    return [
        row.size,
        readable_bytes(round(row.encoded_bytes)),
        readable_bytes(round(row.decoded_bytes)),
        number(row.encoded_per_s),
        number(row.decoded_per_s),
        number(row.ratio),
    ]


def _shares(row: VideoRow, stages: list[str]) -> list[str]:
    whole = sum(row.stage_ms.values())
    each = [
        f"{number(row.stage_ms[name])} ({percent(row.stage_ms[name] / whole, 0)})"
        if name in row.stage_ms
        else "–"
        for name in stages
    ]
    return [row.size, *each, number(whole)]


def serve(records: Records) -> str:
    """What a server under load answered, refused and lost, and how long answers took."""
    measured = records.get("serve", ServeBench)
    if measured is None:
        return ""
    refused = ", ".join(f"{count} with {status}" for status, count in measured.refused.items())
    end = "every request answered" if measured.stopped_cleanly else "requests unanswered"
    return paragraph(
        f"`python -m benchmarks serve` on {measured.machine}: "
        f"{measured.clients} clients on the same "
        f"machine asked {measured.model} for {measured.seconds:.0f} s, each again as soon as it "
        f"was answered; up to {measured.max_batch} in a call, {number(measured.max_delay_ms)} ms "
        f"of waiting at most. {measured.answered:,} requests were answered, "
        f"{number(measured.per_s)} a second; refused: {refused or 'none'}; lost: {measured.lost}. "
        f"Latency p50 {number(measured.p50_ms)} ms, "
        f"p95 {number(measured.p95_ms)} ms, p99 {number(measured.p99_ms)} ms; "
        f"{number(measured.mean_batch)} requests in a call. On SIGTERM it ended with {end}."
    )


BLOCKS: dict[str, Block] = {
    "stream": stream,
    "batching": batching,
    "stream-video": stream_video,
    "serve": serve,
}

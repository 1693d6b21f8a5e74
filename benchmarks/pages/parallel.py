"""Blocks about training on several processes."""

from __future__ import annotations

from paifuser_lab.records import readable_bytes

from ..parallel_kills import KillBench
from ..parallel_rows import EqualBench, LinkStep, ParallelBench, readable_losses
from .folder import Block, Records
from .text import number, paragraph, percent, ratio, table


def parallel(records: Records) -> str:
    """A row for each way: bytes, steps a second, waiting, loss after the same examples."""
    measured = records.get("parallel", ParallelBench)
    if measured is None or not measured.ways:
        return ""
    lines = [
        [
            row.way,
            readable_bytes(round(row.sent_bytes)),
            number(row.steps_per_s),
            ratio(row.ratio, row.interval),
            "–" if row.wait_share is None else percent(row.wait_share, 0),
            readable_bytes(row.weights_bytes),
            readable_bytes(row.optimizer_bytes),
            readable_losses(row.losses),
        ]
        for row in measured.ways
    ]
    seeds = len(measured.alone)
    caption = paragraph(
        "`python -m benchmarks parallel`:",
        f"{measured.model} ({measured.parameters:,} parameters) on",
        f"{measured.processes} processes of {measured.machine}, over the loopback interface, all",
        "ways in interleaved rounds; × over DDP with its 95 % interval. The loss is the mean of",
        f"the last steps after {measured.steps} steps, over {seeds} seeds;",
        f"one process over the same examples reaches {readable_losses(measured.alone)}.",
    )
    header = ("way", "sent a step", "steps/s", "× DDP", "waits", "weights", "optimizer", "loss")
    return f"{caption}\n\n{table(header, lines)}"


def pipelines(records: Records) -> str:
    """A row for each schedule and split: bubble and time, predicted and measured."""
    measured = records.get("parallel", ParallelBench)
    if measured is None or not measured.pipelines:
        return ""
    lines = [
        [
            record.schedule,
            record.split,
            f"{record.predicted_ms:.3g} ms",
            "–" if record.measured_ms is None else f"{record.measured_ms:.3g} ms",
            *(
                "–" if share is None else percent(share, 0)
                for share in (
                    record.predicted_bubble,
                    record.measured_bubble,
                    record.explained_bubble,
                    record.core_wait_share,
                )
            ),
        ]
        for record in measured.pipelines
    ]
    header = (
        "schedule",
        "split by",
        "predicted",
        "measured",
        "bubble, predicted",
        "measured",
        "from measured passes",
        "waited for a core",
    )
    return table(header, lines)


def equal(records: Records) -> str:
    """A row for each strategy: how far its weights end from those of one process."""
    measured = records.get("parallel_equal", EqualBench)
    if measured is None or not measured.rows:
        return ""
    rows = measured.table()
    caption = paragraph(
        f"`python -m benchmarks parallel --equal`: {measured.title}. A figure is the distance from",
        "the weights of one process over the same batches (or of batch-norm's statistics where",
        "that is larger), as a share of how far the training moved them; columns are model and",
        f"processes. {measured.summary.partition('; ')[2].capitalize()}.",
    )
    return f"{caption}\n\n{table(tuple(rows[0]), [list(row.values()) for row in rows])}"


def kills(records: Records) -> str:
    """How many of the killed ranks went on, and after how long."""
    measured = records.get("parallel_kills", KillBench)
    if measured is None or not measured.kills:
        return ""
    return paragraph(f"`python -m benchmarks parallel --kills {len(measured.kills)}`: {measured}.")


def links(records: Records) -> str:
    """The time of a step at 16 processes by the simulation, and how far that is off at 2 and 4."""
    measured = records.get("parallel", ParallelBench)
    if measured is None or not measured.links:
        return ""
    rates = sorted({row.gbit_per_s for row in measured.links})
    ranks = sorted({row.ranks for row in measured.links})
    times = {(row.way, row.ranks, row.gbit_per_s): row for row in measured.links}
    ways = list(dict.fromkeys(row.way for row in measured.links))
    lines = [
        [
            way,
            f"{rate:g} Gbit/s",
            *(_milliseconds(times.get((way, count, rate))) for count in ranks),
        ]
        for way in ways
        for rate in rates
    ]
    caption = paragraph(
        "Milliseconds of a step over simulated links, each process with the same batch: the",
        "simulation's, and in brackets those of real processes on this machine whose exchanges",
        "were delayed as the link would. An exchange takes at least what it takes over this",
        "machine's loopback interface: measured with 2 and with 4 processes, and taken from 2 for",
        "more, whose machines would have cores of their own.",
    )
    header = ("way", "link", *(f"{count} processes" for count in ranks))
    return f"{caption}\n\n{table(header, lines)}"


def _milliseconds(row: LinkStep | None) -> str:
    if row is None:
        return "–"
    measured = "" if row.measured_ms is None else f" ({row.measured_ms:.3g})"
    return f"{row.simulated_ms:.3g}{measured}"


BLOCKS: dict[str, Block] = {
    "parallel": parallel,
    "pipelines": pipelines,
    "links": links,
    "equal": equal,
    "kills": kills,
}

"""Blocks about smaller models: pruned exactly, distilled, and trained in int8."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median, stdev

from paifuser_lab.records import Comparison, Measurement

from ..compress import STAGES, CompressBench
from ..experiments import Experiment
from ..prune import PruneBench
from .folder import Block, Records
from .text import minus, paragraph, percent, table, times

# The stages of the record, and their labels in the page.
LABELS = {
    STAGES[0]: "pruned once, not trained",
    STAGES[1]: "pruned in rounds, distilled",
    STAGES[2]: "the same, then trained in int8 (QAT)",
}

PEER_VERDICTS = ("exact", "wrong", "failed", "refused", "timed out")


def prune(records: Records) -> str:
    """Architectures pruned by one command: exact, refused or wrong."""
    alone, beside = records.get("prune", PruneBench), records.get("prune_peer", PruneBench)
    measured = beside or alone
    if measured is None:
        return ""
    peer = ""
    if measured.peer:
        peer = (
            f"{measured.peer}, given the output layers and the numbers of heads: "
            f"{_verdicts(measured.peer_rows, PEER_VERDICTS)}."
        )
    command = (
        "`python -m benchmarks prune --peer torch-pruning`"
        if measured.peer
        else "`python -m benchmarks prune`"
    )
    return paragraph(
        f"{command} at {measured.ratio:.0%} over {len(measured.rows)} architectures, the pruned",
        "model against the same with zeros in place of",
        f"what was removed: {_verdicts(measured.rows, ('exact', 'refused', 'wrong'))}.",
        peer,
    )


def _verdicts(rows: Sequence[object], verdicts: Sequence[str]) -> str:
    return ", ".join(
        f"{verdict} on {sum(getattr(row, 'verdict', '') == verdict for row in rows)}"
        for verdict in verdicts
    )


def compress(records: Records) -> str:
    """Pruned, distilled and trained in int8, over several seeds."""
    measured = records.get("compress", CompressBench)
    if measured is None or not measured.runs:
        return ""
    seeds = sorted({run.seed for run in measured.runs})
    goals = sorted({run.goal for run in measured.runs}, reverse=True)
    base = [_base(run.measured) for run in measured.runs]
    share = ",".join(f"{goal:g}" for goal in goals)
    caption = paragraph(
        f"`python -m benchmarks compress --goals {share}`: {measured.model}",
        f"({(base[0].parameters or 0) / 1e3:.0f} k parameters; digits that are rotated,",
        f"shifted, resized, cluttered and noisy) over {len(seeds)} seeds, each against its own",
        "original, whose accuracy is",
        f"{percent(fmean(row.metric or 0 for row in base))} on average; points lost with",
        "the standard deviation of the paired difference,",
        f"negative for points gained. Speed-up at batch {measured.batch}, the better number of",
        f"threads, in turn, the median over seeds and their range, on {measured.machine}.",
        "The seeds are those of weights and training; data and test images are the same,",
        "and the recipe was chosen among three by",
        f"seed {seeds[0]}'s test accuracy (without that seed the points gained are",
        f"{_without(measured, seeds[0], goals)}). The original was trained without blended",
        "examples; the student learns the original's outputs for blended examples. An original",
        "trained on blended examples was not tried: the points gained come from the better",
        "training, not from the pruning.",
    )
    header = (
        "left of the parameters",
        "stage",
        "accuracy",
        "points lost",
        "size",
        "speed-up",
    )
    rows = [_stage_row(measured, goal, stage) for goal in goals for stage in STAGES]
    return f"{caption}\n\n{table(header, rows)}"


def _base(comparison: Comparison) -> Measurement:
    return comparison[comparison.baseline]


def _pairs(
    measured: CompressBench, goal: float, stage: str
) -> list[tuple[Measurement, Measurement]]:
    return [(_base(run.measured), run.measured[stage]) for run in measured.runs if run.goal == goal]


def _lost(pairs: Sequence[tuple[Measurement, Measurement]]) -> list[float]:
    return [100 * ((before.metric or 0) - (after.metric or 0)) for before, after in pairs]


def _without(measured: CompressBench, seed: int, goals: Sequence[float]) -> str:
    rest = measured.model_copy(
        update={"runs": tuple(run for run in measured.runs if run.seed != seed)}
    )
    won = [
        " and ".join(f"{-fmean(_lost(_pairs(rest, goal, stage)) or [0.0]):.1f}" for goal in goals)
        for stage in STAGES[1:]
    ]
    return f"{won[0]}, then {won[1]} in int8"


def _stage_row(measured: CompressBench, goal: float, stage: str) -> list[str]:
    pairs = _pairs(measured, goal, stage)
    lost = _lost(pairs)
    spread = f" ± {stdev(lost):.1f}" if len(lost) > 1 else ""
    faster = [after.speedup or 0 for _, after in pairs]
    return [
        percent(
            fmean((after.parameters or 0) / (before.parameters or 1) for before, after in pairs)
        ),
        LABELS.get(stage, stage),
        percent(fmean(after.metric or 0 for _, after in pairs)),
        minus(f"{fmean(lost):.1f}{spread}"),
        percent(
            fmean((after.size_bytes or 0) / (before.size_bytes or 1) for before, after in pairs)
        ),
        times(median(faster), (min(faster), max(faster))),
    ]


def segmentation(records: Records) -> str:
    """A segmentation model pruned in rounds with distillation."""
    measured = records.get("compress_segnet", CompressBench)
    if measured is None or not measured.runs:
        return ""
    run = measured.runs[0]
    before, once, after = _base(run.measured), run.measured[STAGES[0]], run.measured[STAGES[1]]
    speed = f", {times(after.speedup, after.speedup_interval)} as fast" if after.speedup else ""
    return paragraph(
        f"`{measured.model}` to {percent((after.parameters or 0) / (before.parameters or 1))} of",
        "its parameters by the same rounds:",
        f"{run.measured.metric_name} {before.metric or 0:.3f} → {after.metric or 0:.3f}",
        f"({once.metric or 0:.3f} right after one cut, untrained){speed}. One seed.",
    )


def cut(records: Records) -> str:
    """Accuracy right after pruning and before any training."""
    measured = records.get("cut", Experiment)
    models = []
    for comparison in measured.comparisons if measured else ():
        base = _base(comparison)
        shares = dict.fromkeys(
            row.name.partition(",")[0] for row in comparison.rows if row.name.endswith("repaired")
        )
        pairs = [
            (comparison[f"{share}, repaired"], comparison[f"{share}, as cut"]) for share in shares
        ]
        parts = [
            f"at {percent((refitted.parameters or 0) / (base.parameters or 1), 0)} of the "
            f"parameters {percent(refitted.metric or 0)},"
            f" without the refit {percent(bare.metric or 0)}"
            for refitted, bare in pairs
        ]
        models.append(
            f"`{comparison.workload}` ({percent(base.metric or 0)} accuracy): {'; '.join(parts)}."
        )
    return (
        paragraph(
            "Accuracy right after pruning, before any training",
            "(`python -m benchmarks experiment cut`):",
            *models,
            "One seed.",
        )
        if models
        else ""
    )


BLOCKS: dict[str, Block] = {
    "prune": prune,
    "compress": compress,
    "segmentation": segmentation,
    "cut": cut,
}

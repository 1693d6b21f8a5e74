"""The table of results in the README: speed-ups by model, and a sentence on each other result."""

from __future__ import annotations

from statistics import fmean, median

from ...records import Comparison, Measurement
from ..advice import AdviceBench
from ..compress import STAGES, CompressBench
from ..fuse import FuseBench
from ..memory import MemoryBench
from ..models import ModelsBench
from ..precision import PrecisionBench
from ..profile import ProfileBench
from ..prune import PruneBench
from ..train import CHOSEN, TrainBench
from ..train_peers import AUTOCAST
from .folder import Block, Records
from .precision import LIVE, OURS, fastest
from .text import listed, minus, paragraph, percent, power, table, times

HEADER = (
    "speed-up over eager fp32",
    "`lab.plan`, fp32",
    "`fuse`, eager fp32",
    "int8, eager",
    "OpenVINO fp32",
    "int8 → OpenVINO",
    "int8 output error",
)
Columns = dict[str, dict[str, str]]


def summary(records: Records) -> str:
    """A row per model, a column per way of running it; then a sentence on each other subject."""
    columns: Columns = {**_planned(records), **_fused(records), **_int8(records)}
    models = list(dict.fromkeys(model for column in columns.values() for model in column))
    if not models:
        return ""
    rows = [
        [model, *(columns.get(name, {}).get(model, "–") for name in HEADER[1:])] for model in models
    ]
    sentences = (
        _machines(records),
        _cuts(records),
        _compression(records),
        _overhead(records),
        _advice(records),
        _pools(records),
        _training(records),
    )
    return f"{table(HEADER, rows)}\n\n{paragraph(*sentences)}"


def _planned(records: Records) -> Columns:
    measured = records.get("models", ModelsBench)
    hands = measured.by_hand if measured else {}
    eager = {
        name: min(ms for call, ms in hand.all_ms.items() if "eager" in call)
        for name, hand in hands.items()
    }
    return {HEADER[1]: {name: times(eager[name] / hand.plan_ms) for name, hand in hands.items()}}


def _fused(records: Records) -> Columns:
    measured = records.get("fuse", FuseBench)
    comparisons = measured.comparisons if measured else ()
    best = {comparison.workload: _fastest_fused(comparison) for comparison in comparisons}
    return {HEADER[2]: {name: times(row.speedup or 0) for name, row in best.items()}}


def _fastest_fused(comparison: Comparison) -> Measurement:
    rows = (row for row in comparison.rows if "fuse" in row.steps)
    return min(rows, key=lambda row: row.latency_ms or 0.0)


def _int8(records: Records) -> Columns:
    measured = records.get("precision", PrecisionBench)
    columns: Columns = {name: {} for name in HEADER[3:]}
    for model in measured.models if measured else ():
        names = ("by hand: eager", LIVE, "by hand: openvino", OURS)
        eager, *others = (fastest(model, name) for name in names)
        for header, row in zip(HEADER[3:], others, strict=False):
            if eager and row:
                columns[header][model.workload] = times(eager.ms / row.ms)
        if others[-1]:
            columns[HEADER[6]][model.workload] = power(others[-1].error)
    return columns


def _machines(records: Records) -> str:
    models = records.get("models", ModelsBench)
    fuse = records.get("fuse", FuseBench)
    precision = records.get("precision", PrecisionBench)
    on = {
        "`lab.plan`": models.comparisons[0].machine if models else None,
        "`fuse`": fuse.comparisons[0].machine if fuse else None,
        "int8": precision.machine if precision else None,
    }
    parts = [f"{name} on {machine}" for name, machine in on.items() if machine]
    return (
        f"Batch 1, the faster number of threads on both sides: {', '.join(parts)}. int8 columns "
        "have random weights and one calibration image."
    )


def _cuts(records: Records) -> str:
    measured = records.get("prune", PruneBench)
    if measured is None or not measured.rows:
        return ""
    exact = sum(row.verdict == "exact" for row in measured.rows)
    return (
        f"`prune` at {percent(measured.ratio, 0)} equals the model with zeros in place of the "
        f"removed channels on {exact} of {len(measured.rows)} architectures."
    )


def _compression(records: Records) -> str:
    measured = records.get("compress", CompressBench)
    if measured is None or not measured.runs:
        return ""
    goal = max(run.goal for run in measured.runs)
    runs = [run.measured for run in measured.runs if run.goal == goal]
    pairs = [(run[run.baseline], run[STAGES[-1]]) for run in runs]
    size = fmean((after.size_bytes or 0) / (before.size_bytes or 1) for before, after in pairs)
    before, after = (percent(fmean(pair[index].metric or 0 for pair in pairs)) for index in (0, 1))
    speedup = median(row.speedup or 0 for _, row in pairs)
    return (
        f"{measured.model} pruned to {percent(goal, 0)} of its parameters, distilled and trained "
        f"in int8 has {percent(size)} of the size, runs {times(speedup)} as fast at batch "
        f"{measured.batch} and goes from {before} to {after} accuracy, mean of {len(pairs)} seeds "
        "(the gain comes from the training, not from the pruning)."
    )


def _overhead(records: Records) -> str:
    measured = records.get("profile", ProfileBench)
    if measured is None or not measured.rows:
        return ""
    slower = [row.slowdown_while_profiling for row in measured.rows]
    sums = [row.rows_to_latency for row in measured.rows]
    least, most = (minus(percent(value)) for value in (min(slower), max(slower)))
    return (
        f"Profiling {len(measured.rows)} models slows them by {least} to {most}, and the layers' "
        f"times add up to {min(sums):.3f} to {max(sums):.3f} of the latency."
    )


def _advice(records: Records) -> str:
    measured = records.get("advice", AdviceBench)
    if measured is None or not measured.predicted:
        return ""
    over_all, within = measured.correlations
    return (
        f"What advice predicts of a step and what the step achieves have a rank correlation of "
        f"{over_all:.2f} on {len(measured.models)} models ({within:.2f} within a model), each "
        "predicted without its architecture."
    )


def _pools(records: Records) -> str:
    measured = records.get("memory", MemoryBench)
    if measured is None or not measured.rows:
        return ""
    faster = sum(row.interval[0] > 1 for row in measured.rows)
    most = max(measured.rows, key=lambda row: row.interval[0])
    return (
        f"A memory pool makes {faster} of {len(measured.rows)} calls faster on a CPU, most "
        f"{most.model} at batch {most.batch}: {times(most.ratio, most.interval)}."
    )


def _training(records: Records) -> str:
    measured = records.get("train", TrainBench)
    rows = measured.rows if measured else ()
    chosen = [row for row in rows if row.way == CHOSEN]
    if not chosen:
        return ""
    autocast = {row.model: times(row.ratio) for row in rows if row.way == AUTOCAST}
    gains = [
        f"{row.model} {times(row.ratio, row.interval)} beside {autocast.get(row.model, '–')}"
        for row in chosen
    ]
    return f"`lab.enable()` around a training loop, beside autocast by hand: {listed(gains)}."


BLOCKS: dict[str, Block] = {"summary": summary}

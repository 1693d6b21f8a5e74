"""The table of results in the README: speed-ups by model, and a sentence on each other result."""

from __future__ import annotations

from statistics import fmean, median

from paifuser_lab.bench.models import ModelsBench

from ..advice import AdviceBench
from ..compress import STAGES, CompressBench
from ..fuse import FuseBench
from ..memory import MemoryBench
from ..precision import PrecisionBench
from ..profile import ProfileBench
from ..prune import PruneBench
from ..train import CHOSEN, TrainBench
from ..train_peers import AUTOCAST
from .folder import Block, Records
from .precision import FP32, INT8, LIVE, NNCF, fastest
from .text import listed, minus, paragraph, percent, power, table, times

RECORDS = ("models", "fuse", "precision")  # of the table; the first that is there is the processor
SECTIONS = {"models": "`lab.plan`", "fuse": "`fuse` and Inductor", "precision": "int8 and OpenVINO"}
PLAN, FUSED, FROZEN = "`lab.plan`, fp32", "`fuse`, fp32", "Inductor frozen, fp32"
OPENVINO, EAGER_INT8 = "OpenVINO, fp32", "int8, eager"
OURS_INT8, NNCF_INT8 = "int8 → OpenVINO (error)", "NNCF int8 → OpenVINO (error)"
HEADER = (PLAN, FUSED, FROZEN, OPENVINO, EAGER_INT8, OURS_INT8, NNCF_INT8)
Columns = dict[str, dict[str, str]]


def summary(records: Records) -> str:
    """A row per model, a column per way of running it, all of one processor; then a sentence on
    each other subject.
    """
    here = _processor(records)
    known = [name for name in RECORDS if records.has(name) and records.processor(name) == here]
    columns: Columns = {}
    for name in known:
        columns |= COLUMNS[name](records)
    models = list(dict.fromkeys(model for column in columns.values() for model in column))
    if not models:
        return ""
    cells = [[columns.get(name, {}).get(model, "–") for name in HEADER] for model in models]
    rows = [[model, *row] for model, row in zip(models, cells, strict=True)]
    sentences = [
        _measured_elsewhere(records, name, write(records), here)
        for name, write in SENTENCES.items()
    ]
    lines = paragraph(_machines(records, here), _cuts(records), *sentences)
    return f"{table(('speed-up over eager fp32', *HEADER), rows)}\n\n{lines}"


def _processor(records: Records) -> str:
    return next((records.processor(name) for name in RECORDS if records.has(name)), "")


def _planned(records: Records) -> Columns:
    measured = records.get("models", ModelsBench)
    hands = measured.by_hand if measured else {}
    eager = {
        name: min(ms for call, ms in hand.all_ms.items() if "eager" in call)
        for name, hand in hands.items()
    }
    return {PLAN: {name: times(eager[name] / hand.plan_ms) for name, hand in hands.items()}}


def _fused(records: Records) -> Columns:
    measured = records.get("fuse", FuseBench)
    columns: Columns = {FUSED: {}, FROZEN: {}}
    for comparison in measured.comparisons if measured else ():
        ways = {
            FUSED: [row for row in comparison.rows if "fuse" in row.steps],
            FROZEN: [row for row in comparison.rows if row.name == "inductor frozen"],
        }
        for header, rows in ways.items():
            best = max((row.speedup for row in rows if row.speedup), default=None)
            if best:
                columns[header][comparison.workload] = times(best)
    return columns


def _int8(records: Records) -> Columns:
    measured = records.get("precision", PrecisionBench)
    ways = {OPENVINO: FP32[2], EAGER_INT8: LIVE, OURS_INT8: INT8, NNCF_INT8: NNCF}
    columns: Columns = {header: {} for header in ways}
    for model in measured.models if measured else ():
        eager = fastest(model, FP32[0])
        for header, name in ways.items():
            row = fastest(model, name)
            if eager and row:
                error = f" ({power(row.error)})" if "error" in header else ""
                columns[header][model.workload] = times(eager.ms / row.ms) + error
    return columns


def _machines(records: Records, here: str) -> str:
    elsewhere = [
        f"{SECTIONS[name]} on {records.processor(name)}"
        for name in RECORDS
        if records.has(name) and records.processor(name) != here
    ]
    left_out = f"Measured elsewhere and left out: {listed(elsewhere)}." if elsewhere else ""
    return (
        f"All on {here}, batch 1, the faster number of threads on both sides. int8 has random "
        "weights and one calibration image; NNCF and frozen Inductor are peers. A model or a way "
        f"that was not measured there has no figure. {left_out}".strip()
    )


def _measured_elsewhere(records: Records, name: str, text: str, here: str) -> str:
    """A sentence about time, with the processor where it is not the table's."""
    processor = records.processor(name)
    return text if not text or processor == here else f"{text[:-1]} (on {processor})."


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


COLUMNS = {"models": _planned, "fuse": _fused, "precision": _int8}
# Sentences about time, and their records.
SENTENCES: dict[str, Block] = {
    "compress": _compression,
    "profile": _overhead,
    "advice": _advice,
    "memory": _pools,
    "train": _training,
}
BLOCKS: dict[str, Block] = {"summary": summary}

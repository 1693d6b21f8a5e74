"""Blocks about few bits, pruning and training."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median, stdev

from ...records import Comparison, Measurement
from ..compress import STAGES, CompressBench
from ..experiments import Experiment
from ..hessian_peer import HessianBench
from ..precision import PrecisionBench, PrecisionModel, PrecisionRow
from ..prune import PruneBench
from ..sensitivity import SensitivityBench
from .blocks import Block, Records
from .text import listed, number, paragraph, percent, power, ratio, table, times

LIVE, OURS = "int8", "int8 → openvino in bf16"
FP32 = ("by hand: eager", "by hand: onnxruntime", "by hand: openvino")
PEERS = ("OpenVINO bf16", "ORT static int8", "OpenVINO NNCF int8")
ORT, NNCF = PEERS[1], PEERS[2]


def precision(records: Records) -> str:
    """Our few bits beside fp32 in every engine and beside other quantizers."""
    measured = records.get("precision", PrecisionBench)
    if measured is None:
        return ""
    others = [one for one in measured.models if one.ratio and not (one.peer or "").startswith(NNCF)]
    told = paragraph(
        f"`paifuser-lab bench precision` on {measured.machine}, batch 1: latency in ms with the",
        "better number of threads, in brackets the",
        "relative error of the answer. Weights are random, the peers are calibrated on the same",
        'one image as ours. "Live" is the step',
        "`precision: {default: int8}` alone, in eager mode, as a click gives it; the next column",
        "is the same in OpenVINO with `bf16` for what",
        "is not in int8. The last is that against NNCF: above 1 ours is faster; with an interval",
        "the two alone in turn, without one in the",
        "rounds in which all took part, and against ORT static int8 where NNCF",
        f"fails.{_slower(measured.models)}",
        *(
            f"On {one.workload} the fastest peer of a smaller error is {_bare(one.peer)}: our "
            f"`{_bare(one.ours)}` is"
            f" {times(one.ratio or 0, one.interval)} as fast."
            for one in others
        ),
    )
    header = (
        "model", "eager", "ONNX Runtime", "OpenVINO", "OpenVINO bf16", "ORT static int8", "NNCF int8", "live int8", "int8 → OpenVINO",
        "against NNCF",
    )  # fmt: skip
    return f"{told}\n\n{table(header, [_precision_row(one) for one in measured.models])}"


def _slower(found: Sequence[PrecisionModel]) -> str:
    names = [one.workload for one in found if (one.peer or "").startswith(NNCF) and one.ratio and one.ratio < 1]
    return f" Ours is slower on {listed(names)}." if names else ""


def _bare(name: str | None) -> str:
    """A row's name without its number of threads."""
    return (name or "–").rpartition(" · ")[0]


def _quickest(model: PrecisionModel, name: str) -> PrecisionRow | None:
    """A way of running with the better number of threads."""
    return min((row for row in model.rows if _bare(row.name) == name), key=lambda row: row.ms, default=None)


def _precision_row(model: PrecisionModel) -> list[str]:
    plain = [_quickest(model, name) for name in FP32]
    rounded = [_quickest(model, name) for name in (*PEERS, LIVE, OURS)]
    cells = [number(row.ms) if row else "–" for row in plain]
    cells += [f"{number(row.ms)} ({power(row.error)})" if row else "–" for row in rounded]
    return [model.workload, *cells, _against_nncf(model)]


def _against_nncf(model: PrecisionModel) -> str:
    if (model.peer or "").startswith(NNCF) and model.ratio:
        return ratio(model.ratio, model.interval)
    ours, peer = _quickest(model, OURS), _quickest(model, NNCF) or _quickest(model, ORT)
    return ratio(peer.ms / ours.ms) if ours and peer else "–"


def sums(records: Records) -> str:
    """Residual sums in int8: what engines make of them."""
    measured, in_turn = (
        records.get("precision_sums", PrecisionBench),
        records.get("sums", Experiment),
    )
    told = [_sums_told(one) for one in measured.models] if measured else []
    for one in in_turn.comparisons if in_turn else ():
        before, after = one["sums in fp32"], one["sums in int8"]
        if before.latency_ms and after.latency_ms:
            told.append(
                f"Of {one.workload} in ONNX Runtime, one thread: "
                f"{times(before.latency_ms / after.latency_ms)} as fast as without."
            )
    return paragraph("With `sums: int8` the residual sums, too, are in int8.", *told) if told else ""


def _sums_told(model: PrecisionModel) -> str:
    on = "int8 · sums in int8"
    names = (f"{on} → onnxruntime", ORT, f"{on} → openvino in bf16", OURS, NNCF, on, LIVE)
    rows = [_quickest(model, name) for name in names]
    if any(row is None for row in rows):
        return ""
    ort, static, with_sums, without, nncf, live, live_without = (row for row in rows if row)
    return (
        f"{model.workload} then takes {number(ort.ms)} ms in ONNX Runtime (ORT static int8 "
        f"{number(static.ms)}) and {number(with_sums.ms)} ms in"
        f" OpenVINO, where it takes {number(without.ms)} without and NNCF's {number(nncf.ms)}, "
        "all in the same rounds, the better number of threads;"
        f" the error goes from {power(without.error, 2)} to {power(with_sums.error, 2)}. Live it "
        f"takes {number(live.ms)} ms, {number(live_without.ms)} without."
    )


def allocation(records: Records) -> str:
    """A format for each layer within a size, beside the uniform choices."""
    measured = records.get("allocation", Experiment)
    if measured is None or not measured.comparisons:
        return ""
    (one, *_) = measured.comparisons
    rows = {row.name: row for row in one.rows if row.metric is not None}
    uniform = [f"{name} {_kept(rows[name])}" for name in ("int8", "int4", "int4, made up for") if name in rows]
    if "plan_precision" not in rows:
        return ""
    base = one[one.baseline]
    return paragraph(
        f"Within the size of int8 plus a tenth, `plan_precision` on `{one.workload}`",
        "(`paifuser-lab bench experiment allocation`):",
        f"{_kept(rows['plan_precision'])}. Uniform: {'; '.join(uniform)}; fp32",
        f"{percent(base.metric or 0)} right, {_kilo(base)} kB.",
    )


def _kept(row: Measurement) -> str:
    return f"{percent(row.metric or 0)} right, output error {power(row.relative_error or 0)}, {_kilo(row)} kB"


def _kilo(row: Measurement) -> str:
    return f"{(row.size_bytes or 0) / 1e3:,.0f}"


def sensitivity(records: Records) -> str:
    """How far ways of judging layers agree with what was measured."""
    measured = records.get("sensitivity", SensitivityBench)
    told = []
    for one in measured.records if measured else ():
        methods = {method.name: method.agreement for method in one.methods}
        if "quadratic" not in methods or not methods["quadratic"]:
            continue
        ways = [f"{name} {_agreements(methods[name])}" for name in ("quadratic", "trace", "fisher") if methods.get(name)]
        told.append(f"`{one.workload}`: {'; '.join(ways)}")
    if measured is None or not told:
        return ""
    return paragraph(
        "Rank agreement of each way of judging layers with the rise of the loss really measured,",
        "layer by layer and on the same batches",
        f"(`paifuser-lab bench sensitivity`): {'. '.join(told)}. The quadratic form is what we",
        "use; the trace is multiplied by ‖δ‖².",
    )


def _agreements(found: dict[str, float]) -> str:
    return ", ".join(f"{value:.2f} ({name})" for name, value in found.items())


def hessian(records: Records) -> str:
    """Our traces beside PyHessian's."""
    measured = records.get("hessian", HessianBench)
    if measured is None or not measured.models:
        return ""
    told = [
        f"`{one.workload}` {one.our_seconds:.3g} s, PyHessian layer by layer "
        f"{one.peer_seconds:.3g} s ({one.ratio:.1f} ×), the quadratic form, which"
        f" we use instead, {one.quadratic_seconds:.2g} s"
        for one in measured.models
    ]
    return paragraph(
        "`paifuser-lab bench sensitivity --peer pyhessian`: every layer's trace within ±10 % on",
        "one batch, on",
        f"{measured.machine}: {'; '.join(told)}.",
    )


def prune(records: Records) -> str:
    """A zoo of architectures cut: exact, refused or wrong."""
    alone, beside = records.get("prune", PruneBench), records.get("prune_peer", PruneBench)
    measured = beside or alone
    if measured is None:
        return ""
    peer = ""
    if measured.peer:
        peer = (
            f"{measured.peer}, told which layers answer and how many heads there are: "
            f"{_verdicts(measured.peer_rows, ('exact', 'wrong', 'failed', 'refused', 'timed out'))}."
        )
    command = "`paifuser-lab bench prune --peer torch-pruning`" if measured.peer else "`paifuser-lab bench prune`"
    return paragraph(
        f"{command} at {measured.ratio:.0%} over {len(measured.rows)} architectures, the pruned",
        "model against the same with zeros in place of",
        f"what was removed: ours {_verdicts(measured.rows, ('exact', 'refused', 'wrong'))}.",
        peer,
    )


def _verdicts(rows: Sequence[object], verdicts: Sequence[str]) -> str:
    return ", ".join(f"{verdict} on {sum(getattr(row, 'verdict', '') == verdict for row in rows)}" for verdict in verdicts)


def compress(records: Records) -> str:
    """Cut, distilled and trained in int8, over several seeds."""
    measured = records.get("compress", CompressBench)
    if measured is None or not measured.runs:
        return ""
    seeds = sorted({run.seed for run in measured.runs})
    goals = sorted({run.goal for run in measured.runs}, reverse=True)
    base = [_base(run.measured) for run in measured.runs]
    share = ",".join(f"{goal:g}" for goal in goals)
    told = paragraph(
        f"`paifuser-lab bench compress --goals {share}`: {measured.model}",
        f"({(base[0].parameters or 0) / 1e3:.0f} k parameters; digits that are turned,",
        f"moved, resized, cluttered and noisy) over {len(seeds)} seeds, each against its own",
        "original, which is",
        f"{percent(fmean(row.metric or 0 for row in base))} right on average; points lost with",
        "the standard deviation of the paired difference,",
        f"a minus for points won. Latency at batch {measured.batch}, the better number of",
        f"threads, on {measured.machine}.",
        "The seeds are those of weights and training; the data and the test images are the same,",
        "and the recipe was chosen among three by",
        f"seed {seeds[0]}'s test accuracy (without that seed the points won are",
        f"{_without(measured, seeds[0], goals)}). The original was trained in",
        "the plain way; what comes after it learns from examples blended with each other, which",
        "the original answers. An original that",
        "learned from blends, too, was not tried: the points won are of the better training, not",
        "of the cutting.",
    )
    header = (
        "left of the parameters",
        "stage",
        "accuracy",
        "points lost",
        "size",
        "latency",
        "times as fast",
    )
    rows = [_stage_row(measured, goal, stage) for goal in goals for stage in STAGES]
    return f"{told}\n\n{table(header, rows)}"


def _base(one: Comparison) -> Measurement:
    return one[one.baseline]


def _pairs(measured: CompressBench, goal: float, stage: str) -> list[tuple[Measurement, Measurement]]:
    return [(_base(run.measured), run.measured[stage]) for run in measured.runs if run.goal == goal]


def _lost(pairs: Sequence[tuple[Measurement, Measurement]]) -> list[float]:
    return [100 * ((before.metric or 0) - (after.metric or 0)) for before, after in pairs]


def _without(measured: CompressBench, seed: int, goals: Sequence[float]) -> str:
    rest = measured.model_copy(update={"runs": tuple(run for run in measured.runs if run.seed != seed)})
    won = [" and ".join(f"{-fmean(_lost(_pairs(rest, goal, stage)) or [0.0]):.1f}" for goal in goals) for stage in STAGES[1:]]
    return f"{won[0]}, then {won[1]} in int8"


def _stage_row(measured: CompressBench, goal: float, stage: str) -> list[str]:
    pairs = _pairs(measured, goal, stage)
    lost = _lost(pairs)
    spread = f" ± {stdev(lost):.1f}" if len(lost) > 1 else ""
    return [
        percent(fmean((after.parameters or 0) / (before.parameters or 1) for before, after in pairs)),
        stage,
        percent(fmean(after.metric or 0 for _, after in pairs)),
        f"{fmean(lost):.1f}{spread}".replace("-", "−"),
        percent(fmean((after.size_bytes or 0) / (before.size_bytes or 1) for before, after in pairs)),
        percent(median((after.latency_ms or 0) / (before.latency_ms or 1) for before, after in pairs), 0),
        times(median(after.speedup or 0 for _, after in pairs)),
    ]


def segmentation(records: Records) -> str:
    """A segmentation net cut in rounds with distillation."""
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
        f"({once.metric or 0:.3f} right after one cut){speed}. One seed.",
    )


def cut(records: Records) -> str:
    """Right after a cut and before any training."""
    measured = records.get("cut", Experiment)
    told = []
    for one in measured.comparisons if measured else ():
        base = _base(one)
        shares = dict.fromkeys(row.name.partition(",")[0] for row in one.rows if row.name.endswith("repaired"))
        pairs = [(one[f"{share}, repaired"], one[f"{share}, as cut"]) for share in shares]
        parts = [
            f"at {percent((mended.parameters or 0) / (base.parameters or 1), 0)} of the "
            f"parameters {percent(mended.metric or 0)},"
            f" without the least squares {percent(bare.metric or 0)}"
            for mended, bare in pairs
        ]
        told.append(f"`{one.workload}` ({percent(base.metric or 0)} right): {'; '.join(parts)}.")
    return (
        paragraph(
            "Right after a cut and before any training (`paifuser-lab bench experiment cut`):",
            *told,
            "One seed.",
        )
        if told
        else ""
    )


def int4(records: Records) -> str:
    """Weights in int4, rounded and trained."""
    measured = records.get("int4", Experiment)
    told = []
    for one in measured.comparisons if measured else ():
        rows = {row.name: percent(row.metric) for row in one.rows if row.metric is not None}
        parts = [f"{rows[name]} {name}" for name in ("rounded", "trained", "trained, steps fixed") if name in rows]
        told.append(f"`{one.workload}`: {'; '.join(parts)}; {percent(_base(one).metric or 0)} before.")
    return paragraph("Weights in int4 (`paifuser-lab bench experiment int4`):", *told, "One seed.") if told else ""


BLOCKS: dict[str, Block] = {
    "precision": precision,
    "sums": sums,
    "allocation": allocation,
    "sensitivity": sensitivity,
    "hessian": hessian,
    "prune": prune,
    "compress": compress,
    "segmentation": segmentation,
    "cut": cut,
    "int4": int4,
}

"""Blocks about lower precision, and about which layers are sensitive to it."""

from __future__ import annotations

from collections.abc import Sequence

from paifuser_lab.records import Measurement

from ..experiments import Experiment
from ..hessian_peer import HessianBench
from ..precision import PrecisionBench, PrecisionModel, PrecisionRow
from ..sensitivity import SensitivityBench
from .folder import Block, Records
from .text import listed, number, paragraph, percent, power, ratio, table, times

LIVE, INT8, OURS = "int8", "int8 → openvino", "int8 → openvino in bf16"
FP32 = ("by hand: eager", "by hand: onnxruntime", "by hand: openvino")
PEERS = ("OpenVINO bf16", "ORT static int8", "OpenVINO NNCF int8")
ORT, NNCF = PEERS[1], PEERS[2]
# The rows of a record, and their labels in the pages.
UNIFORM = {"int8": "int8", "int4": "int4", "int4, made up for": "int4 with compensation"}
INT4 = {
    "rounded": "rounded",
    "trained": "trained (QAT)",
    "trained, steps fixed": "trained with fixed step sizes",
}


def precision(records: Records) -> str:
    """int8 here beside fp32 in every engine and beside other quantizers."""
    measured = records.get("precision", PrecisionBench)
    if measured is None:
        return ""
    others = [
        model
        for model in measured.models
        if model.ratio and not (model.peer or "").startswith(NNCF)
    ]
    caption = paragraph(
        f"`python -m benchmarks precision` on {measured.machine}, batch 1: latency in ms with the",
        "better number of threads, in brackets the",
        "relative error of the output. Weights are random, and the peers are calibrated on the",
        'same single image. "Live int8" is the step',
        "`precision: {default: int8}` alone, in eager mode, as one click applies it; the next",
        "column is the same step in OpenVINO, with `bf16` for what",
        "is not in int8 (the README has it without).",
        "The last column compares that with NNCF: above 1 it is faster than NNCF.",
        "With an interval the two were timed alone in turn, without one in the",
        "rounds of all candidates, and against ORT static int8 where NNCF",
        f"fails.{_slower(measured.models)}",
        *(
            f"On {model.workload} the fastest peer with a smaller error is {_bare(model.peer)}: "
            f"`{_bare(model.ours)}` of this project is"
            f" {times(model.ratio or 0, model.interval)} as fast."
            for model in others
        ),
    )
    header = (
        "model",
        "eager",
        "ONNX Runtime",
        "OpenVINO",
        "OpenVINO bf16",
        "ORT static int8",
        "NNCF int8",
        "live int8",
        "int8 → OpenVINO in bf16",
        "against NNCF",
    )
    return f"{caption}\n\n{table(header, [_precision_row(model) for model in measured.models])}"


def _slower(models: Sequence[PrecisionModel]) -> str:
    names = [
        model.workload
        for model in models
        if (model.peer or "").startswith(NNCF) and model.ratio and model.ratio < 1
    ]
    return f" NNCF is faster on {listed(names)}." if names else ""


def _bare(name: str | None) -> str:
    """A row's name without its number of threads."""
    return (name or "–").rpartition(" · ")[0]


def fastest(model: PrecisionModel, name: str) -> PrecisionRow | None:
    """The row of this name with the better number of threads."""
    return min(
        (row for row in model.rows if _bare(row.name) == name), key=lambda row: row.ms, default=None
    )


def _precision_row(model: PrecisionModel) -> list[str]:
    plain = [fastest(model, name) for name in FP32]
    rounded = [fastest(model, name) for name in (*PEERS, LIVE, OURS)]
    cells = [number(row.ms) if row else "–" for row in plain]
    cells += [f"{number(row.ms)} ({power(row.error)})" if row else "–" for row in rounded]
    return [model.workload, *cells, _against_nncf(model)]


def _against_nncf(model: PrecisionModel) -> str:
    if (model.peer or "").startswith(NNCF) and model.ratio:
        return ratio(model.ratio, model.interval)
    ours, peer = fastest(model, OURS), fastest(model, NNCF) or fastest(model, ORT)
    return ratio(peer.ms / ours.ms) if ours and peer else "–"


def sums(records: Records) -> str:
    """Residual sums in int8, and their latency in each engine."""
    measured, in_turn = (
        records.get("precision_sums", PrecisionBench),
        records.get("sums", Experiment),
    )
    parts = [_sums_row(model) for model in measured.models] if measured else []
    for comparison in in_turn.comparisons if in_turn else ():
        before, after = comparison["sums in fp32"], comparison["sums in int8"]
        if before.latency_ms and after.latency_ms:
            parts.append(
                f"Of {comparison.workload} in ONNX Runtime, one thread: "
                f"{times(before.latency_ms / after.latency_ms)} as fast as without."
            )
    return paragraph("With `sums: int8` residual sums are in int8, too.", *parts) if parts else ""


def _sums_row(model: PrecisionModel) -> str:
    on = "int8 · sums in int8"
    names = (f"{on} → onnxruntime", ORT, f"{on} → openvino in bf16", OURS, NNCF, on, LIVE)
    rows = [fastest(model, name) for name in names]
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
    """A format for each layer within a size limit, beside the uniform formats."""
    measured = records.get("allocation", Experiment)
    if measured is None or not measured.comparisons:
        return ""
    (comparison, *_) = measured.comparisons
    rows = {row.name: row for row in comparison.rows if row.metric is not None}
    uniform = [f"{label} {_kept(rows[name])}" for name, label in UNIFORM.items() if name in rows]
    if "plan_precision" not in rows:
        return ""
    base = comparison[comparison.baseline]
    return paragraph(
        f"Within the size of int8 plus 10 %, `plan_precision` on `{comparison.workload}`",
        "(`python -m benchmarks experiment allocation`):",
        f"{_kept(rows['plan_precision'])}. Uniform: {'; '.join(uniform)}; fp32",
        f"{percent(base.metric or 0)} accuracy, {_kilo(base)} kB.",
    )


def _kept(row: Measurement) -> str:
    return (
        f"{percent(row.metric or 0)} accuracy, output error {power(row.relative_error or 0)}, "
        f"{_kilo(row)} kB"
    )


def _kilo(row: Measurement) -> str:
    return f"{(row.size_bytes or 0) / 1e3:,.0f}"


def sensitivity(records: Records) -> str:
    """Rank agreement of each sensitivity method with the measured rise of the loss."""
    measured = records.get("sensitivity", SensitivityBench)
    parts = []
    for record in measured.records if measured else ():
        methods = {method.name: method.agreement for method in record.methods}
        if "quadratic" not in methods or not methods["quadratic"]:
            continue
        values = [
            f"{name} {_agreements(methods[name])}"
            for name in ("quadratic", "trace", "fisher")
            if methods.get(name)
        ]
        parts.append(f"`{record.workload}`: {'; '.join(values)}")
    if measured is None or not parts:
        return ""
    return paragraph(
        "Rank agreement of each sensitivity method with the measured rise of the loss, layer by",
        "layer and on the same batches",
        f"(`python -m benchmarks sensitivity`): {'. '.join(parts)}. `quadratic` is the default;",
        "the trace is multiplied by ‖δ‖².",
    )


def _agreements(agreement: dict[str, float]) -> str:
    return ", ".join(f"{value:.2f} ({name})" for name, value in agreement.items())


def hessian(records: Records) -> str:
    """Hessian traces here beside PyHessian's."""
    measured = records.get("hessian", HessianBench)
    if measured is None or not measured.models:
        return ""
    parts = [
        f"`{model.workload}` {model.our_seconds:.3g} s, PyHessian layer by layer "
        f"{model.peer_seconds:.3g} s ({model.ratio:.1f} ×), the quadratic form, the"
        f" default, {model.quadratic_seconds:.2g} s"
        for model in measured.models
    ]
    return paragraph(
        "`python -m benchmarks sensitivity --peer pyhessian`: every layer's trace within ±10 % on",
        "one batch, on",
        f"{measured.machine}: {'; '.join(parts)}.",
    )


def int4(records: Records) -> str:
    """Accuracy with int4 weights, rounded and trained."""
    measured = records.get("int4", Experiment)
    models = []
    for comparison in measured.comparisons if measured else ():
        rows = {row.name: percent(row.metric) for row in comparison.rows if row.metric is not None}
        parts = [f"{rows[name]} {label}" for name, label in INT4.items() if name in rows]
        base = percent(comparison[comparison.baseline].metric or 0)
        models.append(f"`{comparison.workload}`: {'; '.join(parts)}; {base} in fp32.")
    caption = "Accuracy with int4 weights (`python -m benchmarks experiment int4`):"
    return paragraph(caption, *models, "One seed.") if models else ""


BLOCKS: dict[str, Block] = {
    "precision": precision,
    "sums": sums,
    "allocation": allocation,
    "sensitivity": sensitivity,
    "hessian": hessian,
    "int4": int4,
}

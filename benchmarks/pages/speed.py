"""Blocks about latency: engines, fused layers, profiling, attention."""

from __future__ import annotations

from statistics import median

from paifuser_lab.bench.models import HandRatio, ModelsBench
from paifuser_lab.records import Comparison, Measurement, SideBySide

from ..builds import BuildBench
from ..experiments import Experiment
from ..flops import FlopsBench, FlopsRow, largest
from ..fuse import FuseBench
from ..profile import ProfileBench
from .folder import Block, Records
from .text import listed, minus, number, paragraph, percent, power, ratio, table, times

STEPS = {"fold batch-norm": "fold", "channels last": "layout", "attention in windows": "attention"}
OPERATORS = {"_scaled_dot_product_flash_attention_for_cpu": "attention on a CPU"}
ENGINES = ("inductor", "onnxruntime", "openvino")


def models(records: Records) -> str:
    """Each model with each engine, and the plan against the fastest direct call; every run."""
    first, again = records.get("models", ModelsBench), records.get("mobilenetv2_vit-s", ModelsBench)
    if first is None:
        return ""
    if records.header("models"):  # timed in pairs, as the second run was
        again = None
    names = " ".join(comparison.workload for comparison in first.comparisons)
    rows = [
        _model_row(comparison, first.by_hand.get(comparison.workload), "")
        for comparison in first.comparisons
    ]
    if again is not None:
        rows += [
            _model_row(comparison, again.by_hand.get(comparison.workload), ", again")
            for comparison in again.comparisons
        ]
    caption = paragraph(
        f"`paifuser-lab bench models {names} --by-hand` on {first.comparisons[0].machine}, batch",
        "1, fp32, 224² images and 128 tokens.",
        "Latency in ms with the better number of threads (1t or 2t), × = speed-up over the faster",
        "eager baseline. The last column is the",
        "plan's choice against the fastest of eight direct calls of the same engines, without",
        "this project: 1 is equal, below 1 the direct call was faster.",
        "In the first run the fastest call is picked and timed in the same rounds, which favours "
        "it by chance (the best of many is partly luck);"
        if again is not None
        else "",
        "the second run (`again`) times the plan and that call alone, in turn, as the command "
        "now does."
        if again is not None
        else "",
        "Inductor's figure is the better of frozen and not.",
    )
    header = (
        "model",
        "eager",
        "Inductor",
        "ONNX Runtime",
        "OpenVINO",
        "`lab.plan` chose",
        "against the best by hand",
    )
    return f"{caption}\n\n{table(header, rows)}"


def _model_row(comparison: Comparison, hand: HandRatio | None, suffix: str) -> list[str]:
    base = comparison[comparison.baseline]
    row = [comparison.workload + suffix, f"{number(base.latency_ms or 0)} ({base.threads}t)"]
    for engine in ENGINES:
        tried = [row for row in comparison.rows if row.name.startswith(engine) and row.latency_ms]
        best = min(tried, key=lambda row: row.latency_ms or 0.0, default=None)
        row.append(_with_threads(best) if best else "–")
    return [*row, *((hand.plan, ratio(hand.ratio, hand.interval)) if hand else ("–", "–"))]


def _with_threads(row: Measurement) -> str:
    return f"{number(row.latency_ms or 0)} ({row.threads}t) {times(row.speedup or 0)}"


def fuse(records: Records) -> str:
    """Layers fused with what follows them, beside the same steps without and a compiler."""
    measured = records.get("fuse", FuseBench)
    if measured is None:
        return ""
    comparisons = measured.comparisons
    fused = [
        row.relative_error or 0
        for comparison in comparisons
        for row in comparison.rows
        if "fuse" in row.steps
    ]
    compiled = [
        row.relative_error or 0
        for comparison in comparisons
        for row in comparison.rows
        if row.name == "inductor frozen"
    ]
    caption = paragraph(
        f"`python -m benchmarks fuse` on {comparisons[0].machine}, batch 1, fp32, the better",
        "number of threads: latency in ms, × = speed-up over the",
        f"faster eager baseline. Errors are at most {power(max(fused))}, Inductor's",
        f"{power(max(compiled, default=0))}. The fastest recipe with `fuse` is shown; the last",
        "column is Inductor's latency divided by its: below 1 the compiler was faster.",
    )
    header = (
        "model",
        "eager",
        "the same steps without `fuse`",
        "with `fuse`",
        "Inductor, frozen",
        "against Inductor",
    )
    return f"{caption}\n\n{table(header, map(_fuse_row, comparisons))}"


def _fuse_row(comparison: Comparison) -> list[str]:
    base = comparison[comparison.baseline]
    best = min(
        (row for row in comparison.rows if "fuse" in row.steps),
        key=lambda row: row.latency_ms or 0.0,
    )
    rest = tuple(step for step in best.steps if step != "fuse")
    without = next((row for row in comparison.rows if rest and row.steps == rest), None)
    compiled = next(
        (row for row in comparison.rows if row.name == "inductor frozen" and row.latency_ms), None
    )
    names = ", ".join(f"`{STEPS.get(step, step)}`" for step in best.steps)
    against = ratio((compiled.latency_ms or 0) / (best.latency_ms or 1)) if compiled else "–"
    return [
        comparison.workload,
        number(base.latency_ms or 0),
        _with_interval(without) if without else "–",
        f"{names}: {_with_interval(best)}",
        _with_interval(compiled) if compiled else "–",
        against,
    ]


def _with_interval(row: Measurement) -> str:
    return f"{number(row.latency_ms or 0)}, {times(row.speedup or 0, row.speedup_interval)}"


def builds(records: Records) -> str:
    """How long a model takes to build before its first fast call."""
    measured = records.get("fuse_builds", BuildBench)
    if measured is None or not measured.rows:
        return ""
    parts = []
    for name in dict.fromkeys(row.model for row in measured.rows):
        sides = {row.side: row for row in measured.rows if row.model == name}
        if len(sides) == 2:
            ours, compiled = (
                f"{median(row.cold_s):.1f} and {median(row.warm_s):.1f} s"
                for row in (sides["fuse"], sides["inductor"])
            )
            parts.append(f"{name} {ours}, Inductor {compiled}")
    return paragraph(
        f"Build time (`python -m benchmarks fuse --builds` on {measured.machine}, medians of",
        f"{measured.rounds} rounds in turn, each in a fresh process), first with an empty cache,",
        "then with a filled one; `fuse` keeps what it timed only in the folder of a saved model:",
        f"{'; '.join(parts)}.",
    )


def profile(records: Records) -> str:
    """The overhead of profiling and whether its rows add up."""
    measured = records.get("profile", ProfileBench)
    if measured is None:
        return ""
    thousand = ""
    if measured.thousand_layers_s is not None and measured.thousand_layers_drawn_s is not None:
        thousand = (
            f"A model of 1,000 tiny layers takes {measured.thousand_layers_s:.1f} s to profile "
            "(ten runs and the rest), and "
            f"{measured.thousand_layers_drawn_s:.1f} s to draw."
        )
    caption = paragraph(
        f"`python -m benchmarks profile` on {measured.machine}: the overhead of the profiler while",
        "it runs, and the sum of all rows divided by the latency of the unprofiled model, both",
        "within the same rounds.",
        thousand,
    )
    rows = [
        [
            row.model,
            str(row.layers),
            f"{number(row.latency_ms)} ms ({row.threads}t)",
            f"{row.slowdown_while_profiling:+.1%}",
            f"{row.rows_to_latency:.3f}",
        ]
        for row in measured.rows
    ]
    header = ("model", "layers", "latency", "slower while profiling", "sum of rows / latency")
    return f"{caption}\n\n{table(header, rows)}"


def flops(records: Records) -> str:
    """Our FLOPs beside those of torch's counter."""
    measured = records.get("flops", FlopsBench)
    if measured is None or not measured.rows:
        return ""
    equal = [row for row in measured.rows if row.shared == row.torch]
    furthest = sorted(measured.rows, key=lambda row: row.torch / row.ours)[:3]
    least = max(measured.rows, key=lambda row: row.torch / row.ours)
    return paragraph(
        "FLOPs (`python -m benchmarks profile --flops`): over the operators that torch's",
        "FlopCounterMode counts, both counts agree on",
        f"{len(equal)} of {len(measured.rows)} models. The totals here are larger, since that",
        "counter counts no other operator: norms, activations, softmax, pooling, and attention",
        "where it runs as one operator on a CPU. GFLOPs here and by torch's counter:",
        f"{'; '.join(_flops_row(row) for row in furthest)}; the smallest difference is",
        f"{least.model}'s, {_pair(least)}.",
    )


def _pair(row: FlopsRow) -> str:
    return f"{row.ours / 1e9:.3f} and {row.torch / 1e9:.3f}"


def _flops_row(row: FlopsRow) -> str:
    name, count = largest(row, 1)[0]
    share = count / max(1, sum(row.beyond_torch.values()))
    return (
        f"{row.model} {_pair(row)} ({percent(share, 0)} of the difference is "
        f"{OPERATORS.get(name, name)})"
    )


def promises(records: Records) -> str:
    """The predicted saving of each step beside the measured one."""
    measured = records.get("promises", Experiment)
    parts = [_promise(pair) for pair in measured.promises] if measured else []
    if measured is None or not parts:
        return ""
    return paragraph(
        f"The savings that `explain` predicted for {measured.promises[0].before} on",
        f"{measured.machine}, and what `side_by_side` then measured",
        f"(`python -m benchmarks experiment promises`): {'; '.join(parts)}. Each measured once.",
    )


def _promise(pair: SideBySide) -> str:
    saves = pair.predicted.saves_ms if pair.predicted else None
    predicted = "–" if saves is None else minus(f"{-saves:+.1f} ms")
    achieved = minus(f"{-pair.achieved_ms:+.1f}")
    return f"{pair.after} {predicted}, achieved {achieved}" + (
        f" ({times(pair.speedup)})" if pair.speedup else ""
    )


def attention(records: Records) -> str:
    """Speed-up and metric of attention to the smallest share of the keys measured."""
    measured = records.get("attention", Experiment)
    parts = []
    for cost in measured.attention if measured else ():
        index = len(cost.keeps) - 1
        speedup, tokens = (
            cost.speedup(index),
            max((layer.queries for layer in cost.sparse_layers), default=0),
        )
        if speedup is None or cost.dense_value is None:
            continue
        parts.append(
            f"{cost.keeps[index]:.0%} of the keys made a segmentation of {tokens:,} tokens "
            f"{times(speedup)} as fast "
            f"({cost.metric} {cost.dense_value:.3f} → {cost.values[index]:.3f})"
        )
    if measured is None or not parts:
        return ""
    return paragraph(
        f"On {measured.machine} (`python -m benchmarks experiment attention`) {listed(parts)}."
    )


BLOCKS: dict[str, Block] = {
    "models": models,
    "fuse": fuse,
    "builds": builds,
    "profile": profile,
    "flops": flops,
    "promises": promises,
    "attention": attention,
}

"""Blocks about time: back ends, fused layers, profiling, panels in a browser, attention."""

from __future__ import annotations

from statistics import median

from ...records import Comparison, Measurement, SideBySide
from ..builds import BuildBench
from ..experiments import Experiment
from ..flops import FlopsBench, FlopsRow, largest
from ..fuse import FuseBench
from ..models import HandRatio, ModelsBench
from ..profile import ProfileBench
from ..widgets import WidgetRow, WidgetsBench
from .folder import Block, Records
from .text import listed, number, paragraph, percent, power, ratio, table, times

STEPS = {"fold batch-norm": "fold", "channels last": "layout", "attention in windows": "attention"}
OPERATORS = {"_scaled_dot_product_flash_attention_for_cpu": "attention on a CPU"}
ENGINES = ("inductor", "onnxruntime", "openvino")


def models(records: Records) -> str:
    """Each model with each back end, and the plan against the best called by hand; every run."""
    first, again = records.get("models", ModelsBench), records.get("mobilenetv2_vit-s", ModelsBench)
    if first is None:
        return ""
    names = " ".join(one.workload for one in first.comparisons)
    rows = [_model_row(one, first.by_hand.get(one.workload), "") for one in first.comparisons]
    if again is not None:
        rows += [
            _model_row(one, again.by_hand.get(one.workload), ", again") for one in again.comparisons
        ]
    told = paragraph(
        f"`paifuser-lab bench models {names} --by-hand` on {first.comparisons[0].machine}, batch",
        "1, fp32, 224² images and 128 tokens.",
        "Latency in ms with the better number of threads (1t or 2t), × = speed-up over the faster",
        "eager baseline. The last column is the",
        "plan's choice against the fastest of eight direct calls, without this project: 1 is",
        "equal, below 1 the direct call was faster.",
        "In the first run of a model the fastest is taken in the rounds in which it was found, "
        "and what looks best of many has had some luck;"
        if again is not None
        else "",
        "a second run (`again`) times the two alone in turn, as the command does it now."
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
    return f"{told}\n\n{table(header, rows)}"


def _model_row(one: Comparison, hand: HandRatio | None, suffix: str) -> list[str]:
    base = one[one.baseline]
    row = [one.workload + suffix, f"{number(base.latency_ms or 0)} ({base.threads}t)"]
    for engine in ENGINES:
        tried = [row for row in one.rows if row.name.startswith(engine) and row.latency_ms]
        best = min(tried, key=lambda row: row.latency_ms or 0.0, default=None)
        row.append(_with_threads(best) if best else "–")
    return [*row, *((hand.plan, ratio(hand.ratio, hand.interval)) if hand else ("–", "–"))]


def _with_threads(row: Measurement) -> str:
    return f"{number(row.latency_ms or 0)} ({row.threads}t) {times(row.speedup or 0)}"


def fuse(records: Records) -> str:
    """Layers as one, beside the same steps without and a compiler."""
    measured = records.get("fuse", FuseBench)
    if measured is None:
        return ""
    found = measured.comparisons
    fused = [row.relative_error or 0 for one in found for row in one.rows if "fuse" in row.steps]
    compiled = [
        row.relative_error or 0
        for one in found
        for row in one.rows
        if row.name == "inductor frozen"
    ]
    told = paragraph(
        f"`paifuser-lab bench fuse` on {found[0].machine}, batch 1, fp32, the better number of",
        "threads: latency in ms, × = speed-up over the",
        f"faster eager baseline. Errors are at most {power(max(fused))}, Inductor's",
        f"{power(max(compiled, default=0))}. Of the recipes with `fuse` the",
        "best is shown; the last column is Inductor's latency over its: below 1 the compiler was",
        "faster.",
    )
    header = (
        "model",
        "eager",
        "the same steps without `fuse`",
        "with `fuse`",
        "Inductor, frozen",
        "against Inductor",
    )
    return f"{told}\n\n{table(header, [_fuse_row(one) for one in found])}"


def _fuse_row(one: Comparison) -> list[str]:
    base = one[one.baseline]
    best = min(
        (row for row in one.rows if "fuse" in row.steps), key=lambda row: row.latency_ms or 0.0
    )
    rest = tuple(step for step in best.steps if step != "fuse")
    without = next((row for row in one.rows if rest and row.steps == rest), None)
    compiled = next(
        (row for row in one.rows if row.name == "inductor frozen" and row.latency_ms), None
    )
    names = ", ".join(f"`{STEPS.get(step, step)}`" for step in best.steps)
    against = ratio((compiled.latency_ms or 0) / (best.latency_ms or 1)) if compiled else "–"
    return [
        one.workload,
        number(base.latency_ms or 0),
        _with_interval(without) if without else "–",
        f"{names}: {_with_interval(best)}",
        _with_interval(compiled) if compiled else "–",
        against,
    ]


def _with_interval(row: Measurement) -> str:
    return f"{number(row.latency_ms or 0)}, {times(row.speedup or 0, row.speedup_interval)}"


def builds(records: Records) -> str:
    """What is waited for before the first quick call."""
    measured = records.get("fuse_builds", BuildBench)
    if measured is None or not measured.rows:
        return ""
    told = []
    for name in dict.fromkeys(row.model for row in measured.rows):
        sides = {row.side: row for row in measured.rows if row.model == name}
        if len(sides) == 2:
            ours, compiled = (
                f"{median(row.cold_s):.1f} and {median(row.warm_s):.1f} s"
                for row in (sides["fuse"], sides["inductor"])
            )
            told.append(f"{name} {ours}, Inductor {compiled}")
    return paragraph(
        f"Until a model is built (`paifuser-lab bench fuse --builds` on {measured.machine},",
        f"medians of {measured.rounds} rounds in turn, a fresh",
        "process each), first with an empty cache, then with a filled one; ours has no cache for",
        "what it timed, only the folder of a saved",
        f"model: {'; '.join(told)}.",
    )


def profile(records: Records) -> str:
    """What profiling costs and whether its rows add up."""
    measured = records.get("profile", ProfileBench)
    if measured is None:
        return ""
    thousand = ""
    if measured.thousand_layers_s is not None and measured.thousand_layers_drawn_s is not None:
        thousand = (
            f"A model of 1,000 tiny layers takes {measured.thousand_layers_s:.1f} s for ten runs "
            "and everything else, and "
            f"{measured.thousand_layers_drawn_s:.1f} s to draw."
        )
    told = paragraph(
        f"`paifuser-lab bench profile` on {measured.machine}: what watching costs while it runs,",
        "and the sum of all rows against the untouched",
        "model's latency, both within the same rounds.",
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
    return f"{told}\n\n{table(('model', 'layers', 'latency', 'slower while profiling', 'sum of rows / latency'), rows)}"


def flops(records: Records) -> str:
    """Our FLOPs beside those of torch's counter."""
    measured = records.get("flops", FlopsBench)
    if measured is None or not measured.rows:
        return ""
    equal = [row for row in measured.rows if row.shared == row.torch]
    furthest = sorted(measured.rows, key=lambda row: row.torch / row.ours)[:3]
    least = max(measured.rows, key=lambda row: row.torch / row.ours)
    return paragraph(
        "FLOPs (`paifuser-lab bench profile --flops`): over the operators that torch's",
        "FlopCounterMode counts, ours are the same number on",
        f"{len(equal)} of {len(measured.rows)} models. In all ours are more, since that counter",
        "takes every other operator for nothing: norms,",
        "activations, softmax, pooling, and attention where it runs as one operator on a CPU. In",
        "GFLOPs, ours to torch's:",
        f"{'; '.join(_flops_told(row) for row in furthest)}; the least apart is {least.model},",
        f"{_pair(least)}.",
    )


def _pair(row: FlopsRow) -> str:
    return f"{row.ours / 1e9:.3f} to {row.torch / 1e9:.3f}"


def _flops_told(row: FlopsRow) -> str:
    name, count = largest(row, 1)[0]
    share = count / max(1, sum(row.beyond_torch.values()))
    return (
        f"{row.model} {_pair(row)} ({percent(share, 0)} of the difference is "
        f"{OPERATORS.get(name, name)})"
    )


def promises(records: Records) -> str:
    """What was promised for each step beside what it saved."""
    measured = records.get("promises", Experiment)
    told = [_promise(one) for one in measured.promises] if measured else []
    if measured is None or not told:
        return ""
    return paragraph(
        f"What `explain` promised for {measured.promises[0].before} on {measured.machine}, and",
        "what `side_by_side` then measured",
        f"(`paifuser-lab bench experiment promises`): {'; '.join(told)}. Each once.",
    )


def _promise(one: SideBySide) -> str:
    saves = one.predicted.saves_ms if one.predicted else None
    promised = "–" if saves is None else f"{-saves:+.1f} ms".replace("-", "−")
    achieved = f"{-one.achieved_ms:+.1f}".replace("-", "−")
    return f"{one.after} {promised}, achieved {achieved}" + (
        f" ({times(one.speedup)})" if one.speedup else ""
    )


def widgets(records: Records) -> str:
    """A panel in a browser: made, received, painted, clicked."""
    measured = records.get("widgets", WidgetsBench)
    if measured is None or not measured.rows:
        return ""
    first, *others = measured.rows
    return paragraph(
        f"`paifuser-lab bench widgets` on {measured.machine}, measured before the workbench had",
        f"its newest tabs: a panel of {first.rows:,} rows is",
        f"created in {first.create_ms:.1f} ms; its data, code and style are",
        f"{first.widget_bytes:,} bytes, and the page received",
        f"{first.received_bytes:,} until the first rows were painted, {first.paint_ms:.0f} ms",
        f"after the panel was asked for. Of {measured.clicks}",
        f"clicks half reached Python within {first.click_to_python_ms[0]:.0f} ms (95th percentile",
        f"{first.click_to_python_ms[1]:.1f} ms), and half of",
        f"Python's {measured.clicks} answers were painted within",
        f"{first.python_to_paint_ms[0]:.0f} ms (95th percentile",
        f"{first.python_to_paint_ms[1]:.1f} ms).",
        *(_larger(row) for row in others),
    )


def _larger(row: WidgetRow) -> str:
    return (
        f"{row.rows:,} rows: {row.create_ms:.0f} ms, {row.widget_bytes:,} and "
        f"{row.received_bytes:,} bytes, {row.paint_ms:.0f} ms."
    )


def attention(records: Records) -> str:
    """What attention to the least share of the keys costs and brings."""
    measured = records.get("attention", Experiment)
    told = []
    for one in measured.attention if measured else ():
        index = len(one.keeps) - 1
        speedup, tokens = (
            one.speedup(index),
            max((layer.queries for layer in one.sparse_layers), default=0),
        )
        if speedup is None or one.dense_value is None:
            continue
        told.append(
            f"{one.keeps[index]:.0%} of the keys made a segmentation of {tokens:,} tokens "
            f"{times(speedup)} as fast "
            f"({one.metric} {one.dense_value:.3f} → {one.values[index]:.3f})"
        )
    if measured is None or not told:
        return ""
    return paragraph(
        f"On {measured.machine} (`paifuser-lab bench experiment attention`) {listed(told)}."
    )


BLOCKS: dict[str, Block] = {
    "models": models,
    "fuse": fuse,
    "builds": builds,
    "profile": profile,
    "flops": flops,
    "promises": promises,
    "widgets": widgets,
    "attention": attention,
}

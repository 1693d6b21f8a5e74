"""Blocks about training: what `lab.enable()` gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from paifuser_lab.planner.training.formats import FP32
from paifuser_lab.records import CheckpointPlan, readable_bytes

from ..checkpoints import CheckpointsBench
from ..detector import NAME, PLAIN, DetectorBench
from ..formats import AUTOCAST, FormatsBench, FormatsRow, FormatTraining
from ..train import CHOSEN, EAGER, TrainBench, TrainLoss, TrainRow
from ..train_peers import AUTOCAST as BY_AUTOCAST
from .folder import Block, Records
from .text import listed, minus, number, paragraph, percent, ratio, table, times

CLAIM = (
    "A claim of the systems that this project learned from, not checked on their machines: a "
    "detector trained 2.3 × faster at the same mAP with 41 % less memory."
)
HEADER = (
    "model",
    "eager, steps/s",
    "`enable()`",
    "autocast",
    "the best way",
    "its name",
    "loss, plain → `enable()`",
)
RECORDS = ("train", "train-avx2")  # of any processor, and of one with AVX2 alone


def train(records: Records) -> str:
    """A table for each kind of processor."""
    measured = (records.get(name, TrainBench) for name in RECORDS)
    return "\n\n".join(_trained(bench) for bench in measured if bench is not None and bench.rows)


def _trained(measured: TrainBench) -> str:
    """A row for each model: eager, what the judge chose, autocast, and the best of all ways."""
    models = list(dict.fromkeys(row.model for row in measured.rows))
    threads = "one thread" if measured.threads == 1 else f"{measured.threads} threads"
    losses = {loss.model: loss for loss in measured.losses}
    lines = [
        _line([row for row in measured.rows if row.model == model], losses.get(model))
        for model in models
    ]
    caption = paragraph(
        f"`python -m benchmarks train` on {measured.machine}, {threads}:",
        "× over eager fp32 with its",
        "95 % interval, all ways of a model in interleaved blocks of steps. The last column is the",
        "mean loss at the end of 200 steps, its range over seeds.",
        *(f"{name}: {why}." for name, why in (measured.absent | measured.failures).items()),
    )
    return f"{caption}\n\n{table(HEADER, lines)}"


def _line(rows: list[TrainRow], loss: TrainLoss | None) -> list[str]:
    by_way = {row.way: row for row in rows}
    best = max(rows, key=lambda row: row.ratio)
    chosen, autocast = by_way.get(CHOSEN), by_way.get(BY_AUTOCAST)
    return [
        best.model,
        number(by_way[EAGER].steps_per_s) if EAGER in by_way else "–",
        ratio(chosen.ratio, chosen.interval) if chosen else "–",
        ratio(autocast.ratio, autocast.interval) if autocast else "–",
        ratio(best.ratio, best.interval),
        best.way,
        f"{_losses(loss.plain)} → {_losses(loss.accelerated)}{_cost(loss)}" if loss else "–",
    ]


def _losses(losses: tuple[float, ...]) -> str:
    low, high = number(min(losses)), number(max(losses))
    return low if low == high else f"{number(fmean(losses))} ({low}–{high})"


def _cost(loss: TrainLoss) -> str:
    share = loss.judging_share
    return "" if share is None else f"; judging {percent(share)}"


def detector(records: Records) -> str:
    """The detector trained in both ways: time, mAP, and the peak of a step where that is known."""
    measured = records.get("detector", DetectorBench)
    if measured is None or not measured.ratios:
        return ""
    trained = records.get("train", TrainBench)
    is_same = trained is not None and trained.machine == measured.machine
    rows = trained.rows if trained is not None and is_same else ()
    peaks = {row.way: row.peak_bytes for row in rows if row.model == NAME}
    switches = [", ".join(row.on) or "nothing" for row in measured.trainings if row.way != PLAIN]
    lines = []
    for way, name, known in ((PLAIN, "plain", EAGER), (CHOSEN, "`enable()`", CHOSEN)):
        own = [row for row in measured.trainings if row.way == way]
        lines.append(
            [
                name,
                ", ".join(number(row.seconds) for row in own),
                ", ".join(f"{row.score:.3f}" for row in own),
                f"{fmean(row.score for row in own):.3f}",
                readable_bytes(peaks.get(known)) if peaks.get(known) else "–",
            ]
        )
    caption = paragraph(
        f"`python -m benchmarks detector` on {measured.machine}, {measured.threads} thread(s):",
        f"{NAME} trained from scratch for {measured.steps:,} steps with each of",
        f"{len(measured.ratios)} seeds in both ways, the first one alternating; CPU time of the",
        "loop's thread, judging included:",
        f"{', '.join(f'{value:.2f} ×' for value in measured.ratios)}. mAP@0.5:0.95 is that of",
        "scenes not trained on; in force at the end",
        f"{'; '.join(switches)}.",
        "The peak of a step is that of `bench train`, where it ran on the same machine.",
        CLAIM,
    )
    header = ("way", "CPU s, a seed each", "mAP", "mean", "peak of a step")
    return f"{caption}\n\n{table(header, lines)}"


def formats(records: Records) -> str:
    """A row for each model and way of training for the same time, and what was chosen."""
    measured = records.get("formats", FormatsBench)
    if measured is None or not measured.rows:
        return ""
    lines = [
        [row.model if not index else "", way, *_trainings(row, way)]
        for row in measured.rows
        for index, way in enumerate(row.ratios)
    ]
    seeds = len(measured.rows[0].of(AUTOCAST))
    caption = paragraph(
        _formats_chosen(measured.rows),
        f"`python -m benchmarks formats` on {measured.machine}, one thread:",
        "trained from new weights",
        f"in each way for as long as fp32 takes for {measured.seconds:g} s of steps, with",
        f"{seeds} seeds. × is over a step in fp32, timed in turn; loss and metric are those of the",
        "test data, the mean and the range over seeds.",
        *(f"{name}: {why}." for name, why in measured.failures.items()),
    )
    header = ("model", "way", "×", "steps", "CPU s", "loss", "metric")
    notes = "\n".join(f"* {_chosen(row)}" for row in measured.rows)
    return f"{caption}\n\n{table(header, lines)}\n\n{notes}"


def _formats_chosen(rows: Sequence[FormatsRow]) -> str:
    """What was chosen for how many models, in the first sentence."""
    chosen = Counter(row.plan.way for row in rows)
    if chosen[FP32] == len(rows):
        return f"**Formats by layer kept fp32 everywhere in {len(rows)} of {len(rows)} models.**"
    ways = listed([f"{way} in {count}" for way, count in chosen.most_common()])
    return f"**Of {len(rows)} models, chosen was {ways}.**"


def _trainings(row: FormatsRow, way: str) -> list[str]:
    own = row.of(way)
    if not own:
        return ["–"] * 5
    return [
        ratio(row.ratios[way], row.intervals[way]),
        f"{own[0].steps:,}",
        number(fmean(one.seconds for one in own)),
        _losses(tuple(one.loss for one in own)),
        _metrics(own),
    ]


def _metrics(trainings: list[FormatTraining]) -> str:
    scores = [one.score for one in trainings]
    return f"{fmean(scores):.3f} ({min(scores):.3f}–{max(scores):.3f})"


def _chosen(row: FormatsRow) -> str:
    """What was chosen for a model, and whether its metric is higher than under autocast."""
    counts = Counter(layer.format for layer in row.plan.rows)
    formats = listed([f"{count} in {name}" for name, count in counts.most_common()])
    chosen = f"{row.model}: of {len(row.plan.rows)} layers {formats}, chosen in {row.plan_s:.0f} s"
    if row.plan.way == AUTOCAST:
        return f"{chosen}: autocast is the fastest way within the budget of loss."
    if row.plan.way == FP32:
        chosen += ", as no way within the budget of loss is certainly faster than fp32"
    gains = row.chosen_gains
    if not gains:
        return f"{chosen}."
    mean = minus(f"{fmean(gains):+.3f}")
    if all(gain > 0 for gain in gains) or all(gain < 0 for gain in gains):
        than = f"the metric is {'higher' if gains[0] > 0 else 'lower'} than autocast's"
        return f"{chosen}. With every seed {than}, by {mean} on average."
    return f"{chosen}. The metric is autocast's {mean} on average, higher with some seeds only."


def checkpoints(records: Records) -> str:
    """A row for each model: what checkpointing within a limit saves and costs."""
    measured = records.get("checkpoints", CheckpointsBench)
    if measured is None or not measured.plans:
        return ""
    caption = paragraph(
        f"`python -m benchmarks checkpoints` on {measured.machine}, one thread: a step of training",
        f"with a limit of {percent(measured.share, 0)} of its peak, by the blocks that",
        f"`plan_checkpoints` chooses{_past_the_limit(measured.plans)}.",
        "Peaks are what torch's allocator gave out; times are of whole steps, in turn.",
        *(f"{name}: {why}" for name, why in measured.failures.items()),
    )
    header = ("model", "blocks", "peak", "predicted", "saved", "a step takes", "predicted")
    return f"{caption}\n\n{table(header, map(_checkpointed, measured.plans))}"


def _past_the_limit(plans: Sequence[CheckpointPlan]) -> str:
    """Which models stay past the limit."""
    past = [
        f"{plan.workload} stays at {percent(bytes_left / before, 0)}"
        for plan in plans
        if (bytes_left := plan.measured_bytes or plan.predicted_bytes) > plan.limit_bytes
        and (before := plan.measured_plain_bytes or plan.plain_bytes)
    ]
    return f"; {listed(past)}, past that limit" if past else ""


def _checkpointed(plan: CheckpointPlan) -> list[str]:
    before, after = plan.measured_plain_bytes or plan.plain_bytes, plan.measured_bytes
    return [
        plan.workload,
        f"{len(plan.layers)} of {len(plan.blocks)}",
        f"{readable_bytes(before)} → {readable_bytes(after)}",
        readable_bytes(plan.predicted_bytes),
        "–" if after is None else minus(percent(after / before - 1, 0)),
        "–" if plan.longer is None else times(plan.longer, plan.longer_interval),
        times(1 + plan.more_ms / plan.step_ms) if plan.step_ms else "–",
    ]


BLOCKS: dict[str, Block] = {
    "train": train,
    "detector": detector,
    "formats": formats,
    "checkpoints": checkpoints,
}

"""The headlines of the systems that this project learned from, beside what its records say of the
nearest work. They are claims to check: none was measured on the machines of those systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from paifuser_lab.bench.text import listed, minus, number, percent, power, ratio, times
from paifuser_lab.records import Measurement, Record, counted
from paifuser_lab.records.record import TableRecord

from .compress import DISTILLED, CompressBench, points_lost
from .detector import CHOSEN, NAME, PLAIN, DetectorBench
from .experiment import Experiment
from .formats import AUTOCAST, FormatsBench
from .fuse import FuseBench
from .measured import COMMANDS, Records
from .precision import FP32, LIVE, OURS, PrecisionBench
from .stream import StreamBench
from .train import AUTOCAST as TORCH_AUTOCAST
from .train import EAGER, TrainBench

MEASURED = Path(__file__).parent.parent / "docs" / "measured"


class Finding(NamedTuple):
    """What a record has of a claim: the work, the figures, and whether they reach the claim's."""

    work: str
    figures: str
    verdict: str = ""


class Claim(NamedTuple):
    """A headline, what counts as reaching it, and the records of the nearest work."""

    says: str
    reached_by: str
    records: dict[str, Callable[[Any], Finding | None]]
    needs: str = ""  # what the headline is about and this project has not


class ClaimRow(Record):
    """A claim beside one record."""

    claim: str
    reached_by: str
    work: str
    figures: str
    verdict: str
    on: str
    command: str


class Claims(TableRecord):
    """Every claim beside the records of the nearest work."""

    text_columns = (
        *("claim", "reached by", "nearest work here", "measured (95 % interval)", "verdict"),
        *("on", "by"),
    )
    rows: tuple[ClaimRow, ...]

    @property
    def title(self) -> str:
        """What the table is, in a line."""
        return "Headlines of other systems, and the nearest work that this project measured"

    def table(self) -> list[dict[str, str]]:
        """A row for each claim and record."""
        return [
            dict(zip(self.text_columns, row.model_dump().values(), strict=True))
            for row in self.rows
        ]


def claims_of(folder: Path = MEASURED) -> Claims:
    """Each claim beside the records in a folder."""
    records = Records(folder)
    rows = [
        _row(claim, name, records, is_first=not index)
        for claim in CLAIMS
        for index, name in enumerate(claim.records)
    ]
    return Claims(rows=tuple(rows))


def _row(claim: Claim, name: str, records: Records, *, is_first: bool) -> ClaimRow:
    record = records.get(name)
    finding = claim.records[name](record) if record else None
    says = (claim.says, claim.reached_by) if is_first else ("", "")
    shown = finding or Finding("–", "not measured yet", "–")
    return ClaimRow(
        claim=says[0],
        reached_by=says[1],
        work=shown.work,
        figures=shown.figures,
        verdict=claim.needs or shown.verdict,
        on=_measured_on(name, records) if finding else "–",
        command=COMMANDS.get(name) or COMMANDS[name.partition("-")[0]],
    )


def _measured_on(name: str, records: Records) -> str:
    """The processor, the date and the commit; an earlier record has the processor alone."""
    known = records.header(name)
    if known is None:
        return f"{records.processor(name)}, date and commit not recorded"
    return ", ".join(filter(None, (known.processor, known.date, known.commit)))


def _detector(record: DetectorBench) -> Finding | None:
    plain, chosen = (fmean(row.score for row in record.of(way)) for way in (PLAIN, CHOSEN))
    return Finding(
        f"{NAME} trained from scratch under `enable()`, {record.threads} thread",
        f"{listed([times(ratio) for ratio in record.ratios])}, a seed each; mean mAP "
        f"{plain:.3f} → {chosen:.3f}",
        _verdict(ratio >= 2.3 and chosen >= plain for ratio in record.ratios),
    )


def _detector_memory(record: TrainBench) -> Finding | None:
    peaks = record.peaks(NAME)
    before, after = peaks.get(EAGER), peaks.get(CHOSEN)
    if not before or not after:
        return None
    return Finding(
        f"{NAME}, a step under `enable()`, bytes of torch's allocator",
        f"{_change(after / before)} ({before / 1e6:.1f} → {after / 1e6:.1f} MB), counted once",
        _verdict([_saved(after / before) >= 0.41]),
    )


def _compressed(record: CompressBench) -> Finding | None:
    goals = [goal for goal in record.goals if goal <= 0.18]
    if not goals:
        return None
    pairs = record.pairs(goals[0], DISTILLED)
    lost = points_lost(pairs)
    left = fmean((after.parameters or 0) / (before.parameters or 1) for before, after in pairs)
    metric = record.runs[0].measured.metric_name or "metric"
    return Finding(
        f"{record.model} pruned in rounds and distilled, which trains it more than its original",
        f"{_change(left)} parameters at {_signed(-fmean(lost))} points of {metric} "
        f"({_signed(-max(lost))} to {_signed(-min(lost))} over {len(lost)} seeds)",
        ("" if "iou" in metric else f"{metric}: ") + _verdict(points <= 1.2 for points in lost),
    )


def _swin_fused(record: FuseBench) -> Finding | None:
    for comparison in record.comparisons:
        rows = [row for row in comparison.rows if "fuse" in row.steps and row.speedup]
        if comparison.workload == "swin-t" and rows:
            best = max(rows, key=lambda row: row.speedup or 0)
            before = comparison[comparison.baseline]
            return Finding(
                f"swin-t in fp32 on a CPU, {best.name}",
                f"{_milliseconds(before.latency_ms, best.latency_ms)}, {_speedup(best)}",
            )
    return None


def _swin_int8(record: PrecisionBench) -> Finding | None:
    for model in record.models:
        before, after = model.fastest(FP32[0]), model.fastest(OURS)
        if model.workload == "swin-t" and before and after:
            return Finding(
                f"swin-t on a CPU, {OURS}",
                f"{_milliseconds(before.ms, after.ms)}, {times(before.ms / after.ms)}, "
                f"output error {power(after.error)}; no interval recorded",
            )
    return None


def _attention(record: Experiment) -> Finding | None:
    costs = [cost for cost in record.attention if cost.values and cost.keeps[-1] <= 0.1]
    faster = [cost.speedup(len(cost.keeps) - 1) or 0 for cost in costs]
    drops = [(cost.dense_value or 0) - cost.values[-1] for cost in costs]
    return Finding(
        f"{listed([cost.workload for cost in costs])} with 10 % of the keys",
        f"{listed(record.fewest_keys)}; no interval recorded",
        _verdict(drop <= 0.01 and speed > 1 for drop, speed in zip(drops, faster, strict=True)),
    )


def _queue(record: StreamBench) -> Finding | None:
    rows = {row.case: row for row in record.rows if row.engine == "ray"}
    if not {"queue", "no queue"} <= rows.keys():
        return None
    one, many = rows["queue"], rows["no queue"]
    return Finding(
        f"a stream on Ray over 1 and {many.workers} simulated workers of one machine, each frame "
        f"{number(record.service_ms)} ms of sleep",
        f"p50 {_milliseconds(one.p50_ms, many.p50_ms)} (p95 {number(many.p95_ms)}), "
        f"{times(many.frames_per_s / one.frames_per_s)} the frames: many workers at a low load "
        "have no queue, and none is quicker",
    )


def _training(record: TrainBench) -> Finding | None:
    rows = sorted((row for row in record.rows if row.way == CHOSEN), key=lambda row: row.ratio)
    if not rows:
        return None
    ends = [
        f"{_change(1 / row.ratio)} ({_change(1 / row.interval[0])} to "
        f"{_change(1 / row.interval[1])}) for {row.model}"
        for row in dict.fromkeys((rows[0], rows[-1]))
    ]
    return Finding(
        f"a step of {counted(len(rows), 'model')} under `enable()`, {record.threads} thread",
        " … ".join(ends),
        "; ".join(
            f"−{percent(share, 0)}: {_verdict(1 - 1 / row.interval[0] >= share for row in rows)}"
            for share in (0.5, 0.4)
        ),
    )


def _autocast(record: TrainBench) -> Finding | None:
    rows = [row for row in record.rows if row.way == TORCH_AUTOCAST]
    if not rows:
        return None
    return Finding(
        f"a step of {counted(len(rows), 'model')} under autocast in bf16, {record.threads} thread",
        ", ".join(f"{row.model} {ratio(row.ratio, row.interval)}" for row in rows),
        _verdict(row.interval[0] >= 1.4 for row in rows),
    )


def _formats(record: FormatsBench) -> Finding | None:
    rows = [row for row in record.rows if AUTOCAST in row.ratios]
    if not rows:
        return None
    return Finding(
        f"{AUTOCAST} in {len(rows)} models, trained for the time that fp32 takes",
        ", ".join(
            f"{row.model} {ratio(row.ratios[AUTOCAST], row.intervals[AUTOCAST])}" for row in rows
        )
        + f". {record.chosen}",
        _verdict(row.intervals[AUTOCAST][0] >= 1.4 for row in rows),
    )


def _storage(record: Experiment) -> Finding | None:
    pairs = _int8_pairs(record)
    sizes = [(after.size_bytes or 0) / (before.size_bytes or 1) for before, after in pairs]
    return Finding(
        f"weights of {_models(record)} in int8",
        listed([_change(size, 1) for size in sizes]),
        _verdict(_saved(size) >= 0.75 for size in sizes),
    )


def _int8(record: Experiment) -> Finding | None:
    pairs = _int8_pairs(record)
    drops = [(before.metric or 0) - (after.metric or 0) for before, after in pairs]
    return Finding(
        f"{_models(record)} in int8, batch 1, eager",
        ", ".join(
            f"{_speedup(after)} at {_signed(-100 * drop)} points of accuracy"
            for (_, after), drop in zip(pairs, drops, strict=True)
        ),
        _verdict(
            (after.speedup_interval or (0.0,))[0] >= 2 and drop < 0.01
            for (_, after), drop in zip(pairs, drops, strict=True)
        ),
    )


def _int8_speeds(record: PrecisionBench) -> Finding | None:
    speeds = {
        model.workload: before.ms / after.ms
        for model in record.models
        if (before := model.fastest(FP32[0])) and (after := model.fastest(LIVE))
    }
    return Finding(
        f"{len(speeds)} models with random weights in int8, batch 1, eager",
        ", ".join(f"{name} {times(speed)}" for name, speed in speeds.items())
        + "; no interval recorded",
        f"speed: {_verdict(speed >= 2 for speed in speeds.values())}",
    )


def _int8_pairs(record: Experiment) -> list[tuple[Measurement, Measurement]]:
    return [(each[each.baseline], each["int8"]) for each in record.comparisons]


def _models(record: Experiment) -> str:
    return listed([each.workload for each in record.comparisons])


def _verdict(reached: Iterable[bool]) -> str:
    """By how many models or seeds a claim is met."""
    each = list(reached)
    if 0 < sum(each) < len(each):
        return f"met by {sum(each)} of {len(each)}"
    return "met" if any(each) else "not met"


def _saved(left: float) -> float:
    """What a share leaves off, in the whole percents of a headline."""
    return round(1 - left, 2)


def _change(left: float, digits: int = 0) -> str:
    return ("+" if left > 1 else "−") + percent(abs(left - 1), digits)


def _signed(points: float) -> str:
    return minus(f"{round(points, 1) + 0.0:+.1f}")  # + 0.0: no −0.0


def _milliseconds(before: float | None, after: float | None) -> str:
    return f"{number(before or 0)} → {number(after or 0)} ms"


def _speedup(row: Measurement) -> str:
    return times(row.speedup or 0, row.speedup_interval)


CLAIMS = (
    Claim(
        "a detector trains 2.3 × faster at equal mAP",
        "2.3 × in each seed, and no lower a mean mAP",
        {"detector": _detector},
    ),
    Claim("… with 41 % less memory", "−41 % of a step's peak", {"train": _detector_memory}),
    Claim(
        "−82 % parameters at −1.2 points of mIoU",
        "at most 1.2 points lost with 18 % left, in each seed",
        {"compress_segnet": _compressed, "compress": _compressed},
    ),
    Claim(
        "Swin from 87 to 29 ms",
        "3 × on a GPU",
        {"fuse": _swin_fused, "precision": _swin_int8},
        needs="needs a GPU",
    ),
    Claim(
        "90 % less attention computing",
        "faster with 10 % of the keys, at most a point of the metric lost",
        {"attention": _attention},
    ),
    Claim(
        "120 to 38 ms and 3.2 × on 16 nodes",
        "both on 16 machines",
        {"stream": _queue},
        needs="needs 16 machines",
    ),
    Claim(
        "−50 and −40 % training time",
        "the share over the whole interval",
        dict.fromkeys(("train", "train-avx2", "train-language"), _training),
    ),
    Claim(
        "training 40 % faster in lower precision",
        "1.4 × over the whole interval",
        {"train": _autocast, "formats": _formats},
    ),
    Claim("−75 % storage by int8", "−75 % in whole percents", {"allocation": _storage}),
    Claim(
        "2–3 × by int8 under a point",
        "2 × over the whole interval, less than a point lost",
        {"allocation": _int8, "precision": _int8_speeds},
    ),
)

"""A training over its steps: curves, switches, gradient sizes; the curve of a rate finder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy

from ..records import RateCurve, TrainingRun
from ..records.table import Table
from ..records.training_run import LOWEST_EXPONENT, RANGE_BINS, RANGE_WIDTH
from .picture import (
    Axis,
    Boxes,
    Column,
    Cursor,
    Dots,
    Fact,
    Heat,
    Labels,
    Line,
    Mark,
    Panel,
    Picture,
    Rules,
    Spoken,
    Tips,
    Values,
)

MOST_POINTS = 1000  # of a curve: a page has no more pixels
MOST_RANKS = 16  # rows; the table has all
HIGHEST_EXPONENT = LOWEST_EXPONENT + RANGE_WIDTH * RANGE_BINS
LEAST_NORMAL = -14  # of fp16: smaller values lose digits


def picture(run: TrainingRun) -> Picture:
    """The loss above; below it the rate, the gradient's norm, the scale, times, and the sizes."""
    every = max(1, -(-len(run.losses) // MOST_POINTS))
    columns = {"loss": run.losses, "learning rate": run.rates, "gradient norm": run.gradient_norms}
    if set(run.scales) - {1.0}:
        columns["loss scale"] = run.scales
    columns["ms a step"] = run.step_ms
    curves = {name: thinned(values, every) for name, values in columns.items()}
    steps = range(0, len(run.losses), every)
    epochs = [Table(("epochs",), run.table(), ("what was switched",))] if run.losses else []
    return Picture(
        title=run.title,
        label="step of the training",
        rows=tuple((_curve(run, name, steps, of),) for name, of in curves.items()),
        facts=tuple(Fact(value, name) for name, value in run.facts.items()),
        spoken=_spoken(run),
        note=" · ".join(run.notes),
        items=tuple((f"{at}  step {one.step}", one.what) for at, one in enumerate(run.events, 1)),
        items_name="what was switched",
        tables=(*run.sections, *epochs),
        cursor=_cursor(steps, curves) if run.losses else None,
        below=(_ranks(run),) if run.ranks else (),
        by_layer=_sizes(run) if run.ranges else (),
        choice="gradient sizes",
    )


def thinned(values: Sequence[float], every: int) -> list[float]:
    """The mean of every few values that are finite; NaN where none is."""
    rows = [values[start : start + every] for start in range(0, len(values), every)]
    finite = [[value for value in row if math.isfinite(value)] for row in rows]
    return [sum(row) / len(row) if row else math.nan for row in finite]


def _spoken(run: TrainingRun) -> Spoken:
    ended = "Done" if len(run.losses) >= run.steps else "Stopped"
    state = "Running" if run.is_running else ended
    loss = f"{run.losses[-1]:.3g}" if run.losses else "–"
    line = f"{state}: step {len(run.losses)} of {run.steps}, loss {loss}"
    if run.events:
        line += f"; last switch: {run.events[-1].what}"
    return Spoken(line, f"{state}, {len(run.events)} switches")


def _cursor(steps: range, curves: dict[str, list[float]]) -> Cursor:
    heading = Values("step", [step + 1 for step in steps], "count")
    figures = tuple(Values(name, of, _readable(name, of)) for name, of in curves.items())
    return Cursor(steps, Tips(heading, figures=figures), max(0, len(steps) - 1))


def _readable(name: str, values: Sequence[float]) -> str:
    """A loss scale is a power of two, of which every digit is told."""
    return "count" if name == "loss scale" and min(values) >= 1 else "digits"


def _across(run: TrainingRun, label: str = "") -> Axis:
    """The steps done, or while it runs all that are planned; those of the last panel are named."""
    last = max(len(run.losses), run.steps) if run.is_running else len(run.losses)
    axis = Axis.linear(0, max(1, last - 1), label, "count")
    return axis if label else Axis(axis.low, axis.high)


def _curve(run: TrainingRun, name: str, steps: range, values: list[float]) -> Panel:
    is_loss = name == "loss"
    is_log = name not in ("loss", "learning rate")
    low, high = range_of(values, is_log=is_log)
    most = 4 if is_loss else 2
    scale = Axis.log if is_log else Axis.linear
    up = scale(low, high, name, _readable(name, values), most=most)
    numbers = [str(number) for number in range(1, len(run.events) + 1)] if is_loss else []
    at = [event.step for event in run.events]
    marks: list[Mark] = [*(_of_the_loss(run, low, high) if is_loss else []), Line(steps, values)]
    marks.append(Rules("x", at, numbers, tone="soft", style="dashed"))
    is_last = name == "ms a step"
    across = _across(run, "step" if is_last else "")
    return Panel(across, up, tuple(marks), 190 if is_loss else 108 if is_last else 84)


def range_of(values: Sequence[float], *, is_log: bool) -> tuple[float, float]:
    """From where to where a curve is drawn: a few steps far above the others would flatten it."""
    known = sorted(value for value in values if math.isfinite(value) and (value > 0 or not is_log))
    if not known:
        return (1.0, 10.0) if is_log else (0.0, 1.0)
    high = known[int((len(known) - 1) * 0.995)]
    if is_log:
        return known[0] / 1.3, max(high, known[0]) * 1.3
    return min(0.0, known[0]), high + 0.06 * abs(high) or 1.0


def _of_the_loss(run: TrainingRun, low: float, high: float) -> list[Mark]:
    """Where it computed in lower precision, and the steps that were skipped."""
    starts, ends = spans(run.is_lower)
    skipped = [step for step, is_skipped in enumerate(run.is_skipped) if is_skipped][:MOST_POINTS]
    marks: list[Mark] = [
        Boxes(starts, ends, [low] * len(starts), [high] * len(starts), is_tint=True)
    ]
    if starts:
        foot = low + 0.06 * (high - low)
        marks.append(Labels(starts[:1], [foot], [run.precision], tone="soft"))
    marks.append(Dots(skipped, [low] * len(skipped), "cross", 5, tone="bad"))
    return marks


def spans(flags: Sequence[bool]) -> tuple[list[int], list[int]]:
    """The first and the last step of each stretch of true flags."""
    known = [False, *flags, False]
    starts = [at for at in range(len(flags)) if known[at + 1] and not known[at]]
    ends = [at for at in range(len(flags)) if known[at + 1] and not known[at + 2]]
    return starts, ends


def _ranks(run: TrainingRun) -> Picture:
    """A row for each rank: what it computes and waits for in a step, in the middle."""
    ranks = run.ranks[:MOST_RANKS]
    computed = [median(rank.computed_ms or (0.0,)) for rank in ranks]
    ends = [at + median(rank.waited_ms or (0.0,)) for at, rank in zip(computed, ranks, strict=True)]
    words = [f"{rank.row['sent']} sent, waited {rank.row['waited']}" for rank in ranks]
    more = len(run.ranks) - len(ranks)
    label = f"ms a step: computed, then waited{f'; {more} more ranks' if more else ''}"
    marks = (
        Boxes.in_rows([0] * len(ranks), computed, half=0.35, tone="compute"),
        Boxes.in_rows(computed, ends, half=0.35, tone="memory"),
        Labels(ends, range(len(ranks)), words, tone="ink"),
    )
    names = [f"rank {rank.rank}" for rank in ranks]
    across = Axis.beside([max(end, 1e-9) for end in ends], words, names, label)
    panel = Panel(across, Axis.band(names), marks, 50 + 22 * len(ranks))
    return Picture(title="ranks", label="ms a step of each rank", rows=((panel,),),
                   legend=(("compute", "computes"), ("memory", "waits")))  # fmt: skip


def _sizes(run: TrainingRun) -> tuple[tuple[str, Picture], ...]:
    """How many elements of the gradient have each size: of all layers, then of each."""
    counts = numpy.asarray([row.counts for row in run.ranges], float)
    named = [("", "all layers", counts.sum(1))]
    for index, layer in enumerate(run.layers):
        title = f"{layer} · no gradient" if layer in run.dead_layers else layer
        named.append((layer, title, counts[:, index]))
    return tuple((layer, _size(run, title, of)) for layer, title, of in named)


def _size(run: TrainingRun, title: str, counts: numpy.ndarray) -> Picture:
    steps = [row.step for row in run.ranges]
    edges = [*steps, max(len(run.losses) - 1, steps[-1] + 1)]
    sizes = [LOWEST_EXPONENT + RANGE_WIDTH * row for row in range(RANGE_BINS + 1)]
    ticks = range(-32, HIGHEST_EXPONENT, 8)
    up = Axis(LOWEST_EXPONENT, HIGHEST_EXPONENT, "", "linear", ticks, [f"2^{at}" for at in ticks])
    marks = (
        Heat(edges, sizes, shades(counts)),
        Rules("y", [LEAST_NORMAL], tone="ink", style="dotted"),
    )
    words = f"last: {range_words(counts[-1])} · below the dotted line fp16 loses digits"
    panel = Panel(_across(run, "step"), up, marks, 190)
    label = f"gradient sizes of {title} over the steps; {words}"
    return Picture(title=title, label=label, sentence=words, rows=((panel,),))


def shades(counts: numpy.ndarray) -> bytes:
    """The shade of each size's share of a step: a third of the next one's; zeros have none."""
    share = counts[:, 1:] / numpy.maximum(counts.sum(1, keepdims=True), 1)
    with numpy.errstate(divide="ignore"):
        steps = numpy.clip(numpy.floor(10 + numpy.log(share) / math.log(3)), 1, 9)
    return numpy.where(share > 0, steps, 0).astype("u1").tobytes()


def range_words(counts: numpy.ndarray) -> str:
    """What a gradient was in a step, in words."""
    used = numpy.flatnonzero(counts[1:])
    if not len(used):
        return "its gradient is zero"
    first, last = (LOWEST_EXPONENT + RANGE_WIDTH * int(at) for at in (used[0], used[-1] + 1))
    return f"sizes from 2^{first} to 2^{last}, {counts[0] / counts.sum():.0%} zero"


def picture_of_rates(curve: RateCurve) -> Picture:
    """The loss over the learning rate, with the suggested one."""
    lowest, start = min(curve.smooth), curve.smooth[0]
    low = min(lowest, start) - 0.1 * abs(start)
    high = max(start, lowest) + 0.5 * abs(start) + 1e-9
    shown: Column = [loss if loss <= high else math.nan for loss in curve.losses]
    marks = (
        Line(curve.rates, shown, tone="faint", width=1),
        Line(curve.rates, curve.smooth, width=1.8),
        Rules("x", [curve.suggested], [f"suggested {curve.suggested:.2g}"], tone="good",
              style="dashed"),
    )  # fmt: skip
    across = Axis.log(min(curve.rates), max(curve.rates), "learning rate")
    panel = Panel(across, Axis.linear(low, high, "loss"), marks, 240)
    return Picture(title=curve.title, label="learning rates", rows=((panel,),))

"""The predicted step of each way to train on several processes; a pipeline's stages over time."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import ParallelPlan, PipelineSchedule, PipelineSlot, readable_bytes
from ..records.text import three_figures
from .picture import Axis, Boxes, Key, Labels, Mark, Panel, Picture, Tips

ROW = 26  # pixels
WIDEST_NAME = 20  # characters of a stage's first layer
NUMBERED = 0.025  # of the time: a narrower box has no number


def picture(plan: ParallelPlan) -> Picture:
    """A bar for each strategy, the fastest first; those that are not possible have none."""
    computes = [option.compute_ms if option.step_ms is not None else 0.0 for option in plan.options]
    ends = [max(done, option.step_ms or 0.0)
            for done, option in zip(computes, plan.options, strict=True)]  # fmt: skip
    texts = []
    for option in plan.options:
        sent = f", {readable_bytes(round(option.sent_bytes))} sent" if option.sent_bytes else ""
        took = option.step_ms
        texts.append("not possible" if took is None else f"{three_figures(took)} ms{sent}")
    marks = (
        Boxes.in_rows([0.0] * len(ends), computes, tone="compute"),
        Boxes.in_rows(computes, ends, tone="overhead"),
        Labels(ends, range(len(ends)), texts, tone="ink"),
    )
    across = Axis.linear(0, 1.4 * (max(ends, default=1.0) or 1.0), "ms of a step, predicted")
    names = [option.strategy for option in plan.options]
    panel = Panel(across, Axis.band(names), marks, 46 + ROW * len(ends))
    legend = (Key("compute", "computes"), Key("overhead", "waits"))
    return Picture(plan.title, "predicted steps", ((panel,),), legend=legend)


def picture_of_pipeline(schedule: PipelineSchedule) -> Picture:
    """The predicted step above, the measured one below it, on one axis of time."""
    parts = [("predicted", schedule.predicted)]
    parts += [("measured", schedule.measured)] if schedule.measured else []
    end = max((slot.end_ms - _origin(slots) for _, slots in parts for slot in slots), default=1.0)
    rows = tuple((_stages(schedule, name, slots, end),) for name, slots in parts)
    legend = (Key("compute", "forward"), Key("memory", "backward"))
    return Picture(schedule.title, "stages over time", rows, legend=legend)


def _stages(
    schedule: PipelineSchedule, name: str, slots: Sequence[PipelineSlot], end: float
) -> Panel:
    origin = _origin(slots)
    begins, ends = ([getattr(slot, side) - origin for slot in slots]
                    for side in ("begin_ms", "end_ms"))  # fmt: skip
    words = [
        f"stage {slot.stage}, microbatch {slot.microbatch}, "
        f"{'backward' if slot.is_backward else 'forward'}: "
        f"{three_figures(slot.end_ms - slot.begin_ms)} ms"
        for slot in slots
    ]
    wide = [(begin + until) / 2 if until - begin > NUMBERED * end else None
            for begin, until in zip(begins, ends, strict=True)]  # fmt: skip
    numbered = [(at, slot) for at, slot in zip(wide, slots, strict=True) if at is not None]
    marks: tuple[Mark, ...] = (
        Boxes.in_rows(
              begins, ends, [slot.stage for slot in slots], half=0.4,
              tone=["memory" if slot.is_backward else "compute" for slot in slots],
              tips=Tips(words)),
        Labels([at for at, _ in numbered], [slot.stage for _, slot in numbered],
               [str(slot.microbatch) for _, slot in numbered], "middle", tone="ink"),
    )  # fmt: skip
    firsts = [row.first_layer or "the model itself" for row in schedule.stages]
    names = [f"{name} {stage}: {first[:WIDEST_NAME]} …" for stage, first in enumerate(firsts)]
    across = Axis.linear(0, 1.01 * end, "ms since the step began")
    return Panel(across, Axis.band(names), marks, 50 + 30 * len(names))


def _origin(slots: Sequence[PipelineSlot]) -> float:
    return min((slot.begin_ms for slot in slots), default=0.0)

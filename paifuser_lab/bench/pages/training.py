"""Blocks about training: what `lab.enable()` gains."""

from __future__ import annotations

from statistics import fmean

from ..train import CHOSEN, EAGER, TrainBench, TrainLoss, TrainRow
from .folder import Block, Records
from .text import number, paragraph, percent, ratio, table

HEADER = (
    "model",
    "eager, steps/s",
    "`enable()`",
    "the best way",
    "its name",
    "loss, plain → `enable()`",
)


def train(records: Records) -> str:
    """A row for each model: eager, what the judge chose, and the best of all ways."""
    measured = records.get("train", TrainBench)
    if measured is None or not measured.rows:
        return ""
    models = list(dict.fromkeys(row.model for row in measured.rows))
    threads = "one thread" if measured.threads == 1 else f"{measured.threads} threads"
    losses = {loss.model: loss for loss in measured.losses}
    lines = [
        _line([row for row in measured.rows if row.model == model], losses.get(model))
        for model in models
    ]
    caption = paragraph(
        f"`paifuser-lab bench train` on {measured.machine}, {threads}: × over eager fp32 with its",
        "95 % interval, all ways of a model in interleaved blocks of steps. The last column is the",
        "mean loss at the end of 200 steps, its range over seeds.",
        *(f"{name}: {why}." for name, why in (measured.absent | measured.failures).items()),
    )
    return f"{caption}\n\n{table(HEADER, lines)}"


def _line(rows: list[TrainRow], loss: TrainLoss | None) -> list[str]:
    by_way = {row.way: row for row in rows}
    best = max(rows, key=lambda row: row.ratio)
    chosen = by_way.get(CHOSEN)
    return [
        best.model,
        number(by_way[EAGER].steps_per_s) if EAGER in by_way else "–",
        ratio(chosen.ratio, chosen.interval) if chosen else "–",
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


BLOCKS: dict[str, Block] = {"train": train}

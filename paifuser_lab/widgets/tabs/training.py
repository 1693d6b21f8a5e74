"""The section of a training: its losses and gradients step by step; `TrainingMonitor` shows them
while it runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy

from ...progress import is_static
from ...records import TrainingRun
from ...records.training_run import LOWEST_EXPONENT, RANGE_WIDTH
from ..panel import Panel
from ..section import Section, packed
from ..wire import floats, integers

MOST_POINTS = 1000  # of a curve: a page has no more pixels


def pack(run: TrainingRun) -> dict[str, Any]:
    """The curves, thinned to what a page can show, and the gradients' sizes by layer."""
    every = max(1, -(-len(run.losses) // MOST_POINTS))
    columns = {
        "loss": run.losses,
        "rate": run.rates,
        "norm": run.gradient_norms,
        "scale": run.scales,
        "underflow": run.underflow_shares,
        "ms": run.step_ms,
    }
    counts = numpy.asarray([row.counts for row in run.ranges], "<i4")
    return {
        "title": run.title,
        "facts": [{"name": name, "value": value} for name, value in run.facts.items()],
        "notes": list(run.notes),
        "precision": run.precision,
        "is_running": run.is_running,
        "done": len(run.losses),
        "steps": run.steps,
        "every": every,
        "columns": {name: floats(_thinned(values, every)) for name, values in columns.items()},
        "lower": _spans(run.is_lower),
        "skipped": [step for step, skipped in enumerate(run.is_skipped) if skipped][:MOST_POINTS],
        "events": [event.model_dump() for event in run.events],
        "epochs": run.table(),
        "ranks_title": run.ranks_title if run.ranks else "",
        "ranks": [
            {
                "cells": rank.row,
                "computed": median(rank.computed_ms or (0.0,)),
                "waited": median(rank.waited_ms or (0.0,)),
            }
            for rank in run.ranks
        ],
        "layers": list(run.layers),
        "dead": list(run.dead_layers),
        "range_steps": integers(row.step for row in run.ranges),
        "ranges": counts.tobytes(),
        "lowest_exponent": LOWEST_EXPONENT,
        "bin_width": RANGE_WIDTH,
    }


def _thinned(values: Sequence[float], every: int) -> list[float]:
    """The mean of every few values that are finite; NaN where none is."""
    rows = [values[start : start + every] for start in range(0, len(values), every)]
    finite = [[value for value in row if math.isfinite(value)] for row in rows]
    return [sum(row) / len(row) if row else math.nan for row in finite]


def _spans(flags: Sequence[bool]) -> list[list[int]]:
    """The stretches of true flags, as pairs of their first step and the step after them."""
    spans: list[list[int]] = []
    for step, flag in enumerate(flags):
        if flag and spans and spans[-1][1] == step:
            spans[-1][1] = step + 1
        elif flag:
            spans.append([step, step + 1])
    return spans


class TrainingMonitor(Panel):
    """A live view of a training: `lab.train(work, monitor=monitor)` with a displayed monitor.

    Where widgets cannot run, the record's figure stands in its place; a training prints lines of
    progress there.
    """

    def __init__(self, record: TrainingRun | None = None) -> None:
        super().__init__("training", record)

    def __call__(self, record: TrainingRun) -> None:
        """Show the record so far."""
        self.record = record
        if not is_static():
            self.data = packed(record)

    def twin(self) -> str:
        return super().twin() if self.record is not None else "<p>No step has been done yet.</p>"

    def brief_twin(self) -> str:
        return super().brief_twin() if self.record is not None else self.twin()


SECTION = Section("training", record=TrainingRun, pack=pack, panel=TrainingMonitor)

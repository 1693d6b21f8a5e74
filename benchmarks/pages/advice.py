"""The block about advice: what was predicted of each step, and what it achieved."""

from __future__ import annotations

from statistics import median

from paifuser_lab.profiler.expected import KINDS

from ..advice import AdviceBench
from .folder import Block, Records
from .text import paragraph, percent, table


def advice(records: Records) -> str:
    """A row per kind of step, then the correlations over all models."""
    measured = records.get("advice", AdviceBench)
    if measured is None or not measured.predicted:
        return ""
    rows = [_row(measured, kind) for kind in KINDS]
    header = ("step", "models", "time left, predicted", "achieved (median, range)", "usual error")
    own, middle = measured.correlations, measured.correlations_of_medians
    caption = paragraph(
        f"`python -m benchmarks advice` on {measured.machine}, one thread, batch 1:",
        f"{len(measured.models)} models of the zoo, each step timed in turn with the unchanged "
        "model. Every prediction is by coefficients that were fitted to the other architectures.",
        f"Rank correlation of predicted with achieved over all {len(measured.predicted)} pairs: "
        f"{own[0]:.2f}; over the steps of one model {own[1]:.2f} on average.",
        "The median of each step over the other architectures, without looking at the model, has "
        f"{middle[0]:.2f} and {middle[1]:.2f}.",
        _caution(measured),
    )
    return f"{caption}\n\n{table(header, [row for row in rows if row])}"


def _row(measured: AdviceBench, kind: str) -> list[str]:
    own = [each for each in measured.predicted if each.row.kind == kind]
    if not own:
        return []
    left = [each.row.left for each in own]
    expected = [each.left for each in own]
    return [
        kind,
        str(len(own)),
        _spread(expected),
        _spread(left),
        f"± {percent(measured.error(kind), 0)}",
    ]


def _spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def _caution(measured: AdviceBench) -> str:
    """How many rows were measured on a machine that was not quiet."""
    busy = sum(row.machine_was not in ("quiet", None) for row in measured.rows)
    if not busy:
        return ""
    return f"The machine was busy during {busy} of {len(measured.rows)} measurements."


BLOCKS: dict[str, Block] = {"advice": advice}

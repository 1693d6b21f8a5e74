"""The table of results in the README: speed-ups by model, all of one processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from paifuser_lab.bench.models import ModelsBench
from paifuser_lab.bench.text import power, times

from ..fuse import FROZEN, FuseBench, fastest
from ..measured import Records
from ..precision import FP32, INT8_OPENVINO, LIVE, NNCF, PrecisionBench
from .sources import records_of

SECTIONS = {"models": "`lab.plan`", "fuse": "`fuse` and Inductor", "precision": "int8 and OpenVINO"}
HEADERS = (
    *("`lab.plan`, fp32", "`fuse`, fp32", "`fuse`, replayed"),
    *("Inductor frozen, fp32", "OpenVINO, fp32"),
    *("int8, eager", "int8 → OpenVINO (error)", "NNCF int8 → OpenVINO (error)"),
)
PLAN, FUSED, REPLAYED, COMPILED, *QUANTIZED = HEADERS
Cells = dict[str, dict[str, str]]  # header → model → speed-up


class Speedups(NamedTuple):
    """The table's rows, its processor, and what was measured on another one."""

    rows: list[dict[str, str]]
    processor: str
    elsewhere: list[str]


def speedups(records: Records) -> Speedups:
    """A row per model, a column per way of running it; the first record there is the processor."""
    known = [name for name in records_of("summary") if records.has(name)]
    processor = records.processor(known[0]) if known else ""
    cells: Cells = {}
    elsewhere = []
    for name in known:
        if records.processor(name) == processor:
            cells |= CELLS[name](records.get(name))
        else:
            elsewhere.append(f"{SECTIONS[name]} on {records.processor(name)}")
    rows = [
        {"speed-up over eager fp32": model}
        | {header: cells.get(header, {}).get(model, "–") for header in HEADERS}
        for model in dict.fromkeys(model for column in cells.values() for model in column)
    ]
    return Speedups(rows, processor, elsewhere)


def _planned(measured: ModelsBench) -> Cells:
    eager = {
        name: min(ms for call, ms in hand.all_ms.items() if "eager" in call)
        for name, hand in measured.by_hand.items()
    }
    # of the rounds that eager was in, too
    planned = {name: measured.by_hand[name].all_ms["plan"] for name in eager}
    return {PLAN: {name: times(ms / planned[name]) for name, ms in eager.items()}}


def _fused(measured: FuseBench) -> Cells:
    cells: Cells = {FUSED: {}, REPLAYED: {}, COMPILED: {}}
    for comparison in measured.comparisons:
        frozen = next((row for row in comparison.rows if row.name == FROZEN), None)
        fused, replayed = fastest(comparison), fastest(comparison, is_replayed=True)
        for header, row in ((FUSED, fused), (REPLAYED, replayed), (COMPILED, frozen)):
            if row is not None and row.speedup:
                cells[header][comparison.workload] = times(row.speedup)
    return cells


def _int8(measured: PrecisionBench) -> Cells:
    cells: Cells = {header: {} for header in QUANTIZED}
    for model in measured.models:
        eager = model.fastest(FP32[0])
        for header, name in zip(QUANTIZED, (FP32[2], LIVE, INT8_OPENVINO, NNCF), strict=True):
            row = model.fastest(name)
            if eager and row:
                error = f" ({power(row.error)})" if "error" in header else ""
                cells[header][model.workload] = times(eager.ms / row.ms) + error
    return cells


CELLS: dict[str, Callable[[Any], Cells]] = {"models": _planned, "fuse": _fused, "precision": _int8}

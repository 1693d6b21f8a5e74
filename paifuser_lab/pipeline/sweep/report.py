"""The figures of a run, from its report.json: a record of this package or plain JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

from ..._files import read_text
from ...errors import FileError
from ...records import Comparison, Measurement, Record, SweepRun
from ..notebook import REPORT
from .grid import Run

FIGURES = (
    "latency_ms",
    "speedup",
    "parameters",
    "size_bytes",
    "flops",
    "peak_bytes",
    "relative_error",
)


def reported(run: Run, folder: Path) -> SweepRun:
    """The run with its figures: the last row of a comparison, a whole measurement, or the top-level
    numbers of other JSON.
    """
    path = folder / REPORT
    row = SweepRun(name=run.name, parameters=run.parameters)
    if not path.is_file():
        return row.model_copy(update={"note": f"it left no {REPORT}"})
    try:
        return row.model_copy(update=_figures(path))
    except FileError as error:
        return row.model_copy(update={"note": str(error)})


def _figures(path: Path) -> dict[str, object]:
    try:
        content = json.loads(read_text(path))
    except ValueError as error:
        raise FileError(f"its {path.name} is not JSON") from error
    if not isinstance(content, dict):
        raise FileError(f"its {path.name} holds no figures by name")
    if "record" not in content:
        return {
            "figures": {name: float(value) for name, value in content.items() if _is_number(value)}
        }
    record = Record.load(path)
    if isinstance(record, Comparison) and record.rows:
        return _row_figures(record.rows[-1], record.metric_name or "metric")
    if isinstance(record, Measurement):
        return _row_figures(record, "metric")
    return {"note": f"its {path.name} is a {type(record).__name__}, which is no model's figures"}


def _row_figures(row: Measurement, metric_name: str) -> dict[str, object]:
    figures = {metric_name: row.metric} | {name: getattr(row, name) for name in FIGURES}
    note = row.failure or (f"refused: {row.refused}" if row.refused else "")
    return {
        "figures": {name: float(value) for name, value in figures.items() if _is_number(value)},
        "note": note,
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

"""Try every target with one model on this machine; nothing is said to work that did not run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import PaifuserError, ShouldStop, first_line, stop_if_asked
from ..machine import hardware
from ..progress import progress
from ..records import ExporterRow, Exporters
from ..workload import Workload
from ..workload.seeding import preserve_rng
from .export import export
from .exportable import Exportable
from .registry import target_names, target_of

SIDE = 16  # of the example's images


def exporters(
    subject: Any = None,
    names: Sequence[str] | None = None,
    *,
    seconds: float = 0.5,
    should_stop: ShouldStop | None = None,
) -> Exporters:
    """Export a model to every target on this machine, into a temporary folder: what converts, what
    runs and with which error, size and latency, and what the others need.

    Without a model it is a small one of convolutions, so that the table is about the targets.
    """
    exportable = Exportable.of(subject if subject is not None else small_model())
    rows = []
    chosen = tuple(names or target_names())
    with progress("exporting", len(chosen)) as shown:
        for name in chosen:
            stop_if_asked(should_stop)
            rows.append(_row(exportable, name, seconds))
            shown.advance(doing=name)
    return Exporters(model=exportable.name, machine=hardware().label, rows=tuple(rows))


def small_model() -> Workload:
    """Two convolutions and a linear layer with random weights, which every target can express."""
    with preserve_rng(torch.device("cpu")):
        torch.manual_seed(0)
        layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(8 * (SIDE // 4) ** 2, 10),
        )
        return Workload(layers.eval(), torch.randn(1, 3, SIDE, SIDE), name="small")


def _row(exportable: Exportable, name: str, seconds: float) -> ExporterRow:
    target = target_of(name)
    row: dict[str, Any] = {"target": name, "title": target.title, "extra": target.extra}
    if obstacle := target.obstacle():
        return ExporterRow(**row, obstacle=obstacle)
    with tempfile.TemporaryDirectory(prefix="paifuser-export-") as folder:
        path = Path(folder) / f"model{target.suffix}"
        try:
            report = export(exportable, name, path, seconds=seconds)
        except PaifuserError as error:
            return ExporterRow(**row, refused=first_line(error))
    return ExporterRow(**row, report=report.model_copy(update={"path": path.name}))

"""What `python -m benchmarks widgets` runs in a notebook: a panel of many rows, and time stamps."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paifuser_lab.profiler import profile
from paifuser_lab.widgets import Panel, show
from paifuser_lab.workload import Workload

from .profile import timed

LAYERS_PER_BLOCK = 9  # the block itself is a row as well
CREATIONS = 7
PAUSE_S = 0.15  # between changes, so that each is painted before the next


class Probe:
    """A profile of about `rows` rows and its panel; time stamps are in ms since the epoch, as the
    page's clock gives them.
    """

    def __init__(self, rows: int) -> None:
        blocks = [
            nn.Sequential(*(nn.Linear(8, 8) for _ in range(LAYERS_PER_BLOCK)))
            for _ in range(rows // (LAYERS_PER_BLOCK + 1))
        ]
        work = Workload(nn.Sequential(*blocks), torch.randn(1, 8), name=f"chain of {rows}")
        self.profile = profile(work, runs=1, seconds=0.1, threads=1)
        self.create_ms = statistics.median(self._creation_ms() for _ in range(CREATIONS))
        self.panel: Panel
        self.shown_at = 0.0
        self.clicked: list[tuple[str, float]] = []
        self.changed: list[tuple[str, float]] = []

    def display(self) -> None:
        """Create the panel and show it under the cell."""
        from IPython.display import display

        self.shown_at = _now_ms()
        self.panel = show(self.profile)
        display(self.panel)  # type: ignore[no-untyped-call]
        self.panel.observe(self._note, "selected")

    def change(self, count: int) -> None:
        """Select one layer after another from Python, among the first rows."""
        self.panel.unobserve(self._note, "selected")
        for row in self.profile.layers[1 : count + 1]:
            self.changed.append((row.layer, _now_ms()))
            self.panel.selected = row.layer
            time.sleep(PAUSE_S)

    def save(self, path: str) -> None:
        """Save the time stamps for the benchmark to read."""
        twin_s, twin = timed(self.panel.brief_twin)
        stamps = {
            "rows": len(self.profile),
            "create_ms": self.create_ms,
            "data_bytes": _wire_bytes(self.panel.data),
            "code_bytes": len(str(self.panel._esm).encode()),
            "style_bytes": len(str(self.panel._css).encode()),
            "twin_bytes": len(twin.encode()),
            "twin_ms": twin_s * 1e3,
            "shown_at": self.shown_at,
            "clicked": self.clicked,
            "changed": self.changed,
        }
        Path(path).write_text(json.dumps(stamps), encoding="utf-8")

    def _creation_ms(self) -> float:
        elapsed_s, panel = timed(lambda: show(self.profile))
        panel.close()
        return elapsed_s * 1e3

    def _note(self, change: Any) -> None:
        self.clicked.append((change["new"], _now_ms()))


def _now_ms() -> float:
    return time.time() * 1e3


def _wire_bytes(value: Any) -> int:
    """The bytes that a trait takes on the wire: buffers as they are, the rest as JSON."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(len(json.dumps(key)) + 2 + _wire_bytes(item) for key, item in value.items())
    return len(json.dumps(value, ensure_ascii=False).encode())

"""Searches among a few points of a small model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paifuser_lab import Workload
from paifuser_lab.planner import SearchResult, screening, searches, searching
from paifuser_lab.planner.space import Point, Space
from paifuser_lab.records import Candidate
from tests.support.models import Small, images

FOLD, LAYOUT, BF16 = Point(), Point(engine="channels last"), Point(format="bf16")
LABELS = {FOLD: "Fold batch-norm", LAYOUT: "Channels last", BF16: "bf16 everywhere"}


def row(label: str = "a", **changes: Any) -> Candidate:
    speedup = changes.pop("speedup", 2.0)
    values: dict[str, Any] = {
        "steps": ({"fold": {}},),
        "why": "",
        "status": "measured",
        "speedup": speedup,
        "latency_ms": 10 / speedup,
        "relative_error": 0.0,
        "word": "faster",
        "sentence": "10 → 5 ms · 2.0 × faster",
    }
    return Candidate(label=label, **(values | changes))


@pytest.fixture
def work() -> Workload:
    torch.manual_seed(0)
    return Workload(Small().eval(), images(), name="small")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a database of studies, which the first search makes."""
    return f"sqlite:///{tmp_path / 'searches.db'}"


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Searches among a few points, with two rounds each."""

    def run(work: Workload, *points: Point, **options: Any) -> list[SearchResult]:
        of = Space.of

        def few(*given: Any, **named: Any) -> Space:
            space = of(*given, **named)
            monkeypatch.setattr(Space, "points", lambda self: iter(points))
            monkeypatch.setattr(Space, "singles", lambda self: [self.change(p) for p in points])
            return space

        monkeypatch.setattr(Space, "of", few)
        monkeypatch.setattr(screening, "SCREEN_ROUNDS", 2)
        monkeypatch.setattr(searching, "LEADER_ROUNDS", 3)
        found = list(searches(work, **({"seconds": 30.0} | options)))
        monkeypatch.setattr(Space, "of", of)
        return found

    return run

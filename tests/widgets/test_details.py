"""The steps that the workbench offers beside the table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paifuser_lab import Recipe
from paifuser_lab.profiler import expected
from paifuser_lab.session.state import State
from paifuser_lab.widgets.details import offers
from tests.support.advised import normalised, plain_calibration, profile, row


def test_offers_are_the_steps_with_the_largest_expected_saving_and_its_usual_error(monkeypatch):
    monkeypatch.setattr(expected, "calibration", lambda: plain_calibration(error=0.1))
    small = row("head", "Other", 7.0, macs=0, verdict="overhead", overhead_ms=7.0)
    found = profile(*normalised(), small)
    state = State(recipe=Recipe([]), profile=found, baseline=found)
    engine, fold = offers(state)
    assert (engine["step"], fold["step"]) == ({"backend": {"name": "onnxruntime"}}, {"fold": {}})
    assert engine["saves_ms"] > fold["saves_ms"] == pytest.approx(1.0)
    assert fold["basis"] == "estimated ± 95%" and "are expected to become" in fold["why"]
    assert set(fold) == {"label", "step", "saves_ms", "basis", "why", "is_taken"}
    assert offers(replace(state, profile=found.model_copy(update={"engine": "other"}))) == []

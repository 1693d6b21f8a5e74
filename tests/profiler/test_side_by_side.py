"""Two profiles, matched by path: what became of each layer, and of what was promised."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Profile, Workload
from paifuser_lab.errors import ForwardError, MeasureError, WorkloadError
from paifuser_lab.profiler import side_by_side
from paifuser_lab.records import LayerProfile, Quality, Reason, SideBySide
from tests.support import advised
from tests.support.models import Small, images, unchecked

QUICK: dict[str, Any] = {"runs": 2, "seconds": 0.1}


def profile(workload: str, latency: float, **layers: dict[str, Any]) -> Profile:
    """A profile with these layers, each given what is known of it."""
    rows = [LayerProfile(layer="", kind="Model", total_ms=latency)]
    rows += [
        LayerProfile(**({"layer": layer, "kind": "Conv2d", "calls": 1} | facts))
        for layer, facts in layers.items()
    ]
    return advised.profile(*rows, workload=workload, latency_ms=latency, rounds_ms=(latency,))


def notes(pair: SideBySide) -> dict[str, str]:
    return {row.layer: row.note for row in pair.rows}


def test_layers_are_matched_by_path_and_their_changes_are_noted() -> None:
    before = profile(
        "model",
        10.0,
        same={"self_ms": 2.0},
        gone={"self_ms": 1.0},
        norm={"kind": "BatchNorm2d", "self_ms": 1.0},
        cast={"dtype": "float32"},
        pruned={"weight_shape": (8, 3, 3, 3)},
        laid={},
        swapped={},
    )
    after = profile(
        "variant",
        6.0,
        same={"self_ms": 1.5},
        norm={"kind": "Identity"},
        cast={"dtype": "bfloat16"},
        pruned={"weight_shape": (4, 3, 3, 3)},
        laid={"is_channels_last": True},
        swapped={"kind": "Fast"},
        added={"self_ms": 0.5},
    )
    pair = side_by_side(before, after)
    assert notes(pair) == {
        "": "",
        "same": "",
        "gone": "gone",
        "norm": "folded away",
        "cast": "float32 → bfloat16",
        "pruned": "8×3×3×3 → 4×3×3×3",
        "laid": "channels-last",
        "swapped": "Conv2d → Fast",
        "added": "new",
    }
    assert pair.frame.loc["same", "saved_ms"] == 0.5 and pair.frame.loc["added", "saved_ms"] == -0.5
    assert {row.layer for row in pair.largest[:2]} == {"gone", "norm"}
    assert pair.achieved_ms == 4.0 and pair.speedup is None, (
        "two profiles that were not measured in turn give no ratio"
    )


def test_a_speedup_from_a_busy_machine_or_a_stopped_run_says_so() -> None:
    busy = Quality(others_share=0.9)
    after = profile("variant", 5.0).model_copy(update={"quality": busy, "is_interrupted": True})
    pair = side_by_side(profile("model", 10.0), after)
    pair = pair.model_copy(update={"speedup": 2.0, "speedup_interval": (1.9, 2.1)})
    assert pair.title.endswith(", ≈ 2.00 × (1.90–2.10) · stopped early")
    assert busy.sentence in pair.captions


def test_an_estimate_is_shown_beside_the_result() -> None:
    reason = Reason(
        topic="folding", sentence="It could.", step={"fold": {}}, saves_ms=3.0, basis="estimated"
    )
    pair = side_by_side(profile("model", 10.0), profile("variant", 10.5), predicted=reason)
    assert pair.promise == "predicted −3.000 ms (estimated), achieved +0.500 ms"
    assert pair.promise in str(pair) and pair.promise in pair._repr_html_()
    assert side_by_side(profile("model", 10.0), profile("variant", 6.0)).promise == ""


def test_a_change_of_layout_is_noted_where_it_shows() -> None:
    work = Workload(Small(), images())
    pair = side_by_side(work, lab.apply(work, lab.Recipe(["layout"])), **QUICK)
    assert notes(pair) == {
        "": "",
        "conv": "channels-last",
        "norm": "channels-last",
        "relu": "channels-last",
        "head": "",
    }


def test_layers_inside_one_row_of_an_engine_are_inside_it() -> None:
    pair = side_by_side(profile("before", 2.0, conv={}), profile("after", 1.0))
    assert notes(pair)["conv"] == "inside Model" and pair.rows[1].after_ms is None


def test_a_profile_and_a_workload_are_no_pair() -> None:
    work = Workload(Small(), images())
    for pair in ((profile("model", 1.0), work), (work, profile("model", 1.0))):
        with pytest.raises(
            MeasureError, match="One of the two is a profile and the other is not; give two"
        ):
            side_by_side(*pair)
    with pytest.raises(WorkloadError, match="A Small is not a workload"):
        side_by_side(work, Small())  # type: ignore[arg-type]


def test_a_model_that_fails_is_no_half_of_a_pair() -> None:
    broken = unchecked(nn.Linear(5, 5), torch.ones(1, 4), name="broken")
    with pytest.raises(ForwardError, match="broken fails on its example inputs"):
        side_by_side(broken, broken, **QUICK)

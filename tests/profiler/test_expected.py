"""What a step is expected to save, from profiles made by hand and coefficients in round numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

import paifuser_lab as lab
from paifuser_lab.profiler import expected, explain
from paifuser_lab.profiler.expected import KINDS, best_of, expected_of, terms_of
from paifuser_lab.records import ENGINE_ROW, Alternative, Ceiling, Profile
from tests.support.advised import activation, normalised, plain_calibration, profile, row

ENGINE = {"backend": {"name": "onnxruntime"}}
BF16 = {"precision": {"default": "bf16"}}


@pytest.fixture(autouse=True)
def round_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)


def use(monkeypatch: pytest.MonkeyPatch, **coefficients: float) -> None:
    monkeypatch.setattr(expected, "calibration", lambda: plain_calibration(**coefficients))


def called(count: int = 10) -> Profile:
    """A model of many small layers, whose time is what their calls cost."""
    return profile(
        *(
            row(f"layer{index}", "Linear", flops=0, macs=1, overhead_ms=0.9, verdict="overhead")
            for index in range(count)
        )
    )


def computing(ceiling: Ceiling | None = None) -> Profile:
    """A model of products at the machine's ceiling, where an engine has nothing to save."""
    weighty: dict[str, Any] = {"flops": int(1e8), "weight_shape": (16, 16)}
    rows = [row(f"layer{index}", "Linear", **weighty) for index in range(10)]
    return profile(*rows, **({"ceiling": ceiling} if ceiling else {}))


def saves(found: Profile, step: str) -> float:
    return next(each.saves_ms for each in expected_of(found) if KINDS[step] == each.kind)


def test_an_engine_comes_first_where_calls_take_the_time() -> None:
    explanation = explain(called())
    assert explanation.steps[0] == ENGINE
    assert explanation.reasons[1].saves_ms == pytest.approx(10 - 0.1 * 9 - 0.2), (
        "a tenth of the calls, and the bytes of the products at the ceiling"
    )


def test_an_engine_is_not_offered_where_products_run_at_the_ceiling() -> None:
    assert "backend" not in [each.kind.name for each in expected_of(computing()) if each.is_likely]
    assert ENGINE not in explain(computing()).steps


def test_pruning_comes_before_an_engine_where_arithmetic_takes_the_time(monkeypatch: Any) -> None:
    use(monkeypatch, fp32=0.5)
    found = computing(Ceiling(threads=1, fp32_gflops=100.0, bandwidth_gbs=10.0))
    assert [next(iter(step)) for step in explain(found).steps] == ["backend", "prune"]
    use(monkeypatch, fp32=1.0)
    assert explain(found).steps == ()


def test_lower_precision_saves_more_the_faster_the_machine_computes_in_it() -> None:
    ceilings = [
        Ceiling(threads=1, fp32_gflops=100.0, bf16_gflops=rate, bandwidth_gbs=10.0)
        for rate in (200.0, 400.0)
    ]
    less, more = (saves(computing(ceiling), "bf16") for ceiling in ceilings)
    assert (less, more) == (pytest.approx(5.0), pytest.approx(7.5))
    assert BF16 not in [each.kind.step for each in expected_of(computing())], "no rate is known"


def test_conversions_count_against_lower_precision(monkeypatch: Any) -> None:
    use(monkeypatch, conversions=1000.0)
    fast = Ceiling(threads=1, fp32_gflops=100.0, bf16_gflops=400.0, bandwidth_gbs=10.0)
    assert saves(computing(fast), "bf16") == pytest.approx(7.5 - 10 * 1.0)
    assert BF16 not in explain(computing(fast)).steps


def test_a_layer_timed_alone_counts_as_it_was_timed() -> None:
    tried = Alternative(step=BF16, here_ms=1.0, there_ms=0.25)
    found = profile(row("a", ms=4.0, alternatives=(tried,)), row("b", "ReLU", ms=2.0, macs=0))
    assert terms_of(found, KINDS["bf16"], found.layers)["alone"] == pytest.approx(1.0)
    assert saves(found, "bf16") == pytest.approx(3.0)


def test_no_saving_is_offered_that_is_negative_or_smaller_than_its_usual_error(
    monkeypatch: Any,
) -> None:
    found = profile(*normalised())  # folding saves 1 of 3 ms
    assert {"fold": {}} in explain(found).steps
    use(monkeypatch, error=0.5)
    reason = next(each for each in expected_of(found) if each.kind.name == "fold")
    assert reason.error_ms == pytest.approx(2 * math.expm1(0.5)) and not reason.is_likely
    assert {"fold": {}} not in explain(found).steps
    assert "expected to help less than others, or not at all" in str(explain(found))
    use(monkeypatch, rest=3.0)
    assert all((each.saves_ms or 0) > 0 for each in explain(found).advice)


def test_an_estimate_is_given_with_its_usual_error(monkeypatch: Any) -> None:
    use(monkeypatch, error=0.1)
    reason = explain(profile(*normalised())).advising("fold")
    assert reason.saves_ms == pytest.approx(1.0) and reason.error_ms == pytest.approx(
        0.21, abs=0.01
    )
    assert reason.advice == "fold saves about 1 ± 0.21 ms (estimated)"
    assert reason.certainty == "estimated ± 21%"
    assert (
        "3.00 ms are expected to become 2.00, usually 1.81–2.21 (by 3 models that were measured)"
        in str(reason)
    )


def test_of_steps_of_one_kind_the_best_is_offered_and_what_keeps_the_output_is_preferred() -> None:
    fast = Ceiling(threads=1, fp32_gflops=100.0, bf16_gflops=400.0, bandwidth_gbs=10.0)
    found = {each.kind.step["backend"]["name"]: each for each in _engines(fast)}
    assert list(found) == ["openvino"] and found["openvino"].kind.step["backend"]["bf16"]
    near = Ceiling(threads=1, fp32_gflops=100.0, bf16_gflops=105.0, bandwidth_gbs=10.0)
    assert not any("bf16" in each.kind.step["backend"] for each in _engines(near))


def _engines(ceiling: Ceiling) -> list[Any]:
    return [
        each for each in best_of(expected_of(computing(ceiling))) if each.kind.name == "backend"
    ]


def test_only_what_can_be_done_here_is_expected_to_help(monkeypatch: Any) -> None:
    names = {each.kind.name for each in expected_of(called())}
    assert names == {"backend"}, "no batch-norm, image, activation, second weight or format"
    with_all = profile(*normalised(), activation().model_copy(update={"reads_from": ("norm",)}))
    assert {"fold", "fuse"} < {each.kind.name for each in expected_of(with_all)}
    monkeypatch.setattr(expected, "available_engines", lambda: ("eager",))
    assert expected_of(called()) == []


def test_nothing_is_expected_on_a_device_or_of_what_an_engine_runs() -> None:
    small = called()
    for other in ({"device": "cuda:0"}, {"engine": "ONNX Runtime"}):
        assert expected_of(small.model_copy(update=other)) == []


def test_rows_of_an_engine_without_a_time_of_their_own_have_no_reasons() -> None:
    joined = row("relu", "ReLU", 1.0, joined_into="conv")
    itself = row(ENGINE_ROW, "engine", 2.0, verdict="compute")
    found = profile(row("conv"), joined, itself)
    assert explain(found, "relu").reasons == explain(found, ENGINE_ROW).reasons == ()
    assert explain(found, "conv").reasons


def test_what_was_pruned_is_not_advised_to_be_pruned_again(monkeypatch: Any) -> None:
    use(monkeypatch, setup=0.5, fp32=0.5)
    assert any("prune" in step for step in explain(computing()).steps)
    once = computing().model_copy(update={"applied": ({"prune": {"ratio": 0.1}},)})
    assert not any("prune" in step for step in explain(once).steps)


def test_every_kind_has_terms_a_topic_and_a_step_that_a_recipe_takes() -> None:
    found = computing()
    for kind in KINDS.values():
        assert set(terms_of(found, kind, found.layers)) == set(kind.terms) and kind.topic
        assert len(lab.Recipe([kind.step])) == 1


def test_the_coefficients_of_this_version_are_those_of_every_kind_and_not_negative() -> None:
    fitted = expected.Calibration.load(expected.FILE)
    assert set(fitted.steps) == set(KINDS)
    for name, kind in KINDS.items():
        assert set(fitted.steps[name].left) == set(kind.terms)
        assert min(fitted.steps[name].left.values()) >= 0 and fitted.steps[name].error > 0


def test_fusing_is_offered_for_what_the_step_fuses_alone() -> None:
    def offered(kind: str, *others: Any) -> bool:
        first = row("first", kind, weight_shape=(16, 16, 3, 3))
        found = profile(first, activation().model_copy(update={"reads_from": ("first",)}), *others)
        return "fuse" in {each.kind.name for each in expected_of(found)}

    assert offered("Conv2d") and offered("Linear")
    assert not offered("Conv1d") and not offered("ConvTranspose2d")
    assert not offered("Conv2d", row("sum", "Add", reads_from=("first",))), "another reader"

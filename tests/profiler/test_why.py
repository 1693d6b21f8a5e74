"""Why a layer is not faster: each reason from a profile made by hand, each step one that a recipe
takes.
"""

from __future__ import annotations

from typing import Any

import pytest

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError
from paifuser_lab.profiler import expected, explain
from paifuser_lab.records import (
    Alternative,
    Ceiling,
    Explanation,
    LayerProfile,
    Quality,
    Reason,
)
from tests.support.advised import (
    activation,
    normalised,
    operator,
    plain_calibration,
    profile,
    row,
)
from tests.support.models import Small, images

LAYOUT: dict[str, dict[str, Any]] = {"layout": {}}
BF16: dict[str, dict[str, Any]] = {"precision": {"default": "bf16"}}
BACKEND = {"backend": {"name": "onnxruntime"}}


@pytest.fixture(autouse=True)
def round_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "calibration", plain_calibration)


def text(explanation: Explanation) -> str:
    return "\n".join(str(reason) for reason in explanation.reasons)


def only(explanation: Explanation, topic: str) -> Reason:
    matching = [reason for reason in explanation.reasons if reason.topic == topic]
    assert len(matching) == 1, f"{topic!r} stands {len(matching)} times: {text(explanation)}"
    return matching[0]


def topics(explanation: Explanation) -> list[str]:
    return [reason.topic for reason in explanation.reasons]


def test_a_layer_bound_by_computing_says_how_far_it_is_from_the_roof() -> None:
    explanation = explain(profile(row("conv")), "conv")
    assert topics(explanation) == [
        "roof"
    ] and "Limited by arithmetic: 50 GFLOP/s, 50% of what 1 thread can do here" in text(explanation)
    assert (explanation.ms, explanation.share, explanation.steps) == (1.0, 0.1, ())
    assert "the device" in text(explain(profile(row("conv"), device="cuda:0"), "conv"))


def test_reasons_based_on_ceilings_of_a_busy_machine_say_so() -> None:
    busy = Ceiling(
        threads=1,
        fp32_gflops=100.0,
        bandwidth_gbs=10.0,
        warnings=("fp32: 1 thread had 0.40 cores",),
    )
    seen = profile(row("conv"), ceiling=busy)
    note = "measured on a busy machine, may be too low"
    assert f"what 1 thread can do here ({note})" in text(explain(seen, "conv"))
    assert note in seen.accuracy and note in str(seen) and note in seen._repr_html_()
    assert note not in text(explain(profile(row("conv")), "conv")) + profile(row("conv")).accuracy


def test_a_layer_bound_by_memory_says_how_far_and_where_its_data_are() -> None:
    near = row("norm", "LayerNorm", verdict="memory", macs=0, flops=1000)
    assert "Limited by memory: it reads and writes 200 kB at 0.2 GB/s, 50% of what" in text(
        explain(profile(near), "norm")
    )
    cached = near.model_copy(update={"roof_ms": 2.0})
    assert "200% of what 1 thread can do here; more than memory delivers" in text(
        explain(profile(cached), "norm")
    )


ADD = row(
    "add",
    "Add",
    verdict="overhead",
    overhead_ms=0.8,
    roof_ms=0.001,
    macs=0,
    operators=(operator("add", 0.2, 7),),
)


def test_work_too_small_for_its_calls_says_so_and_advises_an_engine() -> None:
    reason = only(explain(profile(ADD), "add"), "overhead")
    assert "0.8 of 1 ms are spent around its 7 operator calls" in reason.sentence
    assert (reason.step, reason.basis) == (BACKEND, "estimated")
    assert reason.saves_ms == pytest.approx(0.8), "never more than the overhead itself"
    on_device = only(explain(profile(ADD, device="cuda:0"), "add"), "overhead")
    assert on_device.step == {"backend": {"name": "inductor"}} and on_device.saves_ms == 0.8


SLOW = row(
    "pool",
    "MaxPool2d",
    8.0,
    verdict="memory",
    roof_ms=0.4,
    overhead_ms=0.01,
    operators=(operator("max_pool2d", 8.0),),
)


def test_a_slow_path_is_named_with_what_it_costs_beside_the_convolutions() -> None:
    explanation = explain(profile(row("conv", ms=2.0), SLOW), "pool")
    reason = only(explanation, "slow path")
    assert "max_pool2d" in reason.sentence and "5.0% of what" in reason.sentence
    assert "4.0 times the model's median convolution" in reason.sentence
    assert "roof" not in topics(explanation), "it is bound by neither"


def test_a_handful_of_tiny_operators_is_no_slow_path() -> None:
    tiny = row(
        "experts",
        "Experts",
        0.1,
        verdict="overhead",
        roof_ms=0.001,
        overhead_ms=0.03,
        operators=(operator("index", 0.1, 20),),
    )
    explanation = explain(profile(tiny), "experts")
    assert topics(explanation) == ["overhead"], (
        "what its operators need to set themselves up is the cost of calling them"
    )


@pytest.mark.parametrize(
    ("there", "words"), [(0.5, "2.0 × faster"), (1.0, "no faster"), (2.0, "slower")]
)
def test_alternatives_measured_on_a_layer_are_reported(there: float, words: str) -> None:
    tried = row(
        "conv", ms=4.0, alternatives=(Alternative(step=LAYOUT, here_ms=1.0, there_ms=there),)
    )
    reason = only(explain(profile(tried), "conv"), "layout")
    assert words in reason.sentence
    assert (reason.step, reason.saves_ms, reason.basis) == (
        (LAYOUT, 2.0, "measured") if there == 0.5 else (None, None, None)
    )


def test_a_batch_norm_behind_a_convolution_can_be_folded() -> None:
    reason = only(explain(profile(*normalised()), "norm"), "folding")
    assert (reason.step, reason.saves_ms, reason.basis) == (
        {"fold": {}},
        1.0,
        "estimated",
    ) and "'conv'" in reason.sentence


@pytest.mark.parametrize(
    "rows",
    [
        (*normalised(), row("other", reads_from=("conv",))),
        (row("conv", calls=2), normalised(calls=2)[1]),
        (row("conv", "ReLU"), normalised()[1]),
        (row("conv"), normalised()[1].model_copy(update={"reads_from": ("conv", "other")})),
        (row("conv"), normalised()[1].model_copy(update={"kind": "LayerNorm"})),
    ],
    ids=["read elsewhere", "called twice", "behind a relu", "reads two", "no batch-norm"],
)
def test_a_norm_that_cannot_be_folded_is_not_advised_to_be(rows: tuple[LayerProfile, ...]) -> None:
    assert "folding" not in topics(explain(profile(*rows), "norm"))


def test_pointwise_work_could_be_fused_with_what_it_reads() -> None:
    reason = only(explain(profile(row("conv"), activation()), "relu"), "fusion")
    assert "reads and writes 200 kB" in reason.sentence and "fused with 'conv'" in reason.sentence
    assert (reason.step, reason.saves_ms, reason.basis) == ({"fuse": {}}, 1.0, "estimated")


def test_what_a_container_adds_between_its_layers_could_be_fused_too() -> None:
    add = operator("add", 0.4, flops=25_000, read_bytes=200_000, written_bytes=100_000)
    block = row(
        "block", "Block", 0.5, verdict="memory", operators=(add, operator("view", 0.1)), macs=0
    )
    explanation = explain(profile(block, row("block.conv"), row("head")), "block")
    reason = explanation.advising("backend")
    assert reason.topic == "fusion" and "Fusion: 1 layer ('block' 0.4 ms)" in reason.sentence
    assert reason.saves_ms == pytest.approx(0.8 * 0.5 + (1 - 0.5)), "the roof of its product"


def test_copies_in_and_around_a_layer_are_reported() -> None:
    whole = row(
        "", "Model", 1.0, total_ms=10.0, operators=(operator("clone", 0.5),), verdict="memory"
    )
    copying = row(
        "conv", ms=2.0, operators=(operator("convolution", 1.5), operator("_to_copy", 0.5))
    )
    sentences = [
        reason.sentence
        for reason in explain(profile(whole, copying), "conv").reasons
        if reason.topic == "conversion"
    ]
    assert (
        len(sentences) == 2
        and "copies in it (_to_copy)" in sentences[0]
        and "copies around it (clone)" in sentences[1]
    )


def test_a_change_of_layout_between_two_layers_is_reported_where_it_is_distinct() -> None:
    before, after = row("one", is_channels_last=True), row("two", reads_from=("one",))
    assert only(explain(profile(before, after), "two"), "conversion").step == LAYOUT
    pixel = after.model_copy(update={"output_shapes": ((1, 16, 1, 1),)})
    assert "conversion" not in topics(explain(profile(before, pixel), "two"))


@pytest.mark.parametrize(
    ("kind", "shape", "output", "words"),
    [
        (
            "Conv2d",
            (24, 8, 3, 3),
            (1, 24, 8, 8),
            "24 output channels are no multiple of 16, the hardware's vector width: 25.0% of",
        ),
        ("Linear", (10, 8), (1, 10), "10 output channels"),
        ("ConvTranspose2d", (32, 12, 2, 2), (1, 12, 8, 8), "12 output channels"),
        ("ConvTranspose2d", (12, 32, 2, 2), (1, 32, 8, 8), None),
        ("Conv2d", (32, 8, 3, 3), (1, 32, 8, 8), None),
    ],
)
def test_channels_that_do_not_fill_the_vector_width_are_reported(
    kind: str, shape: tuple[int, ...], output: tuple[int, ...], words: str | None
) -> None:
    explanation = explain(
        profile(row("layer", kind, weight_shape=shape, output_shapes=(output,))), "layer"
    )
    assert ("width" in topics(explanation)) == (words is not None)
    assert words is None or words in only(explanation, "width").sentence


FAST_BF16 = Ceiling(threads=1, fp32_gflops=100.0, bf16_gflops=400.0, bandwidth_gbs=10.0)


def test_a_faster_number_format_is_advised_where_computing_binds() -> None:
    reason = only(
        explain(profile(row("linear", "Linear"), ceiling=FAST_BF16), "linear"), "precision"
    )
    assert (reason.step, reason.saves_ms, reason.basis) == (
        BF16,
        0.75,
        "estimated",
    ) and "4.0 × faster in bf16" in reason.sentence
    assert "precision" not in topics(explain(profile(row("linear", "Linear")), "linear"))
    halved = row("linear", "Linear", dtype="bfloat16")
    assert "precision" not in topics(explain(profile(halved, ceiling=FAST_BF16), "linear"))


def test_what_was_tried_is_not_estimated_too() -> None:
    tried = row("conv", alternatives=(Alternative(step=BF16, here_ms=1.0, there_ms=1.0),))
    assert (
        "no faster"
        in only(explain(profile(tried, ceiling=FAST_BF16), "conv"), "precision").sentence
    )


# What has parts is the sum over them.


def alternative(here: float, there: float) -> tuple[Alternative, ...]:
    return (Alternative(step=LAYOUT, here_ms=here, there_ms=there),)


def test_a_step_is_worth_what_it_saves_in_all_layers_less_what_it_costs() -> None:
    rows = (
        row("a", ms=4.0, alternatives=alternative(1.0, 0.5)),
        row("b", ms=2.0, alternatives=alternative(1.0, 0.75)),
        row("c", ms=1.0, alternatives=alternative(1.0, 1.5)),
    )
    reason = explain(profile(*rows)).advising("layout")
    assert reason.saves_ms == pytest.approx(2.0 + 0.5 - 0.5) and reason.basis == "estimated"
    assert "2 layers ('a' 2, 'b' 0.5 ms), less 0.5 ms that it would cost others" in reason.sentence


def test_a_step_that_costs_more_than_it_saves_is_reported_and_not_advised() -> None:
    rows = (
        row("a", alternatives=alternative(1.0, 0.5)),
        row("b", ms=4.0, alternatives=alternative(1.0, 2.0)),
    )
    explanation = explain(profile(*rows))
    assert explanation.advising("layout").saves_ms == pytest.approx(
        -3.5
    ) and "costs about 3.5 ms" in text(explanation)
    assert LAYOUT not in explanation.steps


def test_a_layer_counts_once_for_a_step_however_many_reasons_there_are() -> None:
    both = activation(overhead_ms=0.3).model_copy(update={"kind": "Softplus"})
    small = row("add", "Add", verdict="overhead", overhead_ms=0.8, roof_ms=0.001, macs=0)
    reason = explain(profile(row("conv"), both, small)).advising("backend")
    assert reason.topic == "fusion and overhead" and "2 layers ('relu' 0.83, " in reason.sentence


def test_what_was_measured_counts_before_what_is_estimated() -> None:
    measured = row(
        "conv", ms=4.0, alternatives=(Alternative(step=BF16, here_ms=1.0, there_ms=2.0),)
    )
    estimated = row("linear", "Linear", ms=4.0)
    reason = explain(profile(measured, estimated, ceiling=FAST_BF16)).advising("precision")
    assert reason.saves_ms == pytest.approx(3.0 - 4.0) and reason.basis == "estimated"


def test_the_whole_says_where_its_time_goes_and_the_best_step_first() -> None:
    explanation = explain(
        profile(
            *normalised(), activation().model_copy(update={"self_ms": 3.0, "reads_from": ("norm",)})
        )
    )
    assert (
        topics(explanation)[0] == "where"
        and "'relu' 3 ms, 'conv' 2 ms, 'norm' 1 ms" in explanation.reasons[0].sentence
    )
    assert explanation.steps == (BACKEND, {"fuse": {}}, {"fold": {}})
    assert explanation.frame["topic"].tolist() == topics(explanation) and explanation.ms == 10.0


def test_every_step_that_is_advised_is_one_that_a_recipe_takes() -> None:
    rows = (
        *normalised(),
        activation().model_copy(update={"reads_from": ("norm",)}),
        SLOW,
        row("linear", "Linear"),
        row(
            "tried",
            alternatives=(
                *alternative(1.0, 0.5),
                Alternative(step=BF16, here_ms=1.0, there_ms=0.1),
            ),
        ),
        row("add", "Add", verdict="overhead", overhead_ms=0.8, roof_ms=0.001),
    )
    model_profile = profile(*rows, ceiling=FAST_BF16)
    steps = [step for item in model_profile for step in explain(model_profile, item.layer).steps]
    assert {next(iter(step)) for step in steps} == {
        "fold",
        "fuse",
        "backend",
        "layout",
        "precision",
    }
    for step in steps:
        assert len(lab.Recipe([step])) == 1


# Names and baselines.


def test_an_unknown_layer_names_those_near_it() -> None:
    model_profile = profile(row("layer1.conv1"), row("layer1.conv2"))
    with pytest.raises(
        MeasureError, match=r"No layer 'conv1' ran in model; did you mean layer1\.conv1\?"
    ):
        explain(model_profile, "conv1")
    with pytest.raises(MeasureError, match=r"No layer 'nothing' ran in model\."):
        explain(model_profile, "nothing")


def test_a_layer_inside_an_engine_cannot_be_seen() -> None:
    engine = profile(row("", "OnnxEngine", 5.0), workload="fast")
    with pytest.raises(
        MeasureError, match="run as a whole by OnnxEngine, in which 'conv' cannot be distinguished"
    ):
        explain(engine, "conv", against=profile(row("conv")))


def against(before: LayerProfile, after: LayerProfile, **facts: Any) -> list[Reason]:
    explanation = explain(profile(after, **facts), after.layer, against=profile(before, **facts))
    return [reason for reason in explanation.reasons if reason.topic in ("change", "not faster")]


CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"ms": 4.0}, {"ms": 2.0}, "It took 4 ms and takes 2 ms now: 2.00 × faster."),
    ({"ms": 2.0}, {"ms": 4.0}, "0.50 × as fast, that is slower."),
    ({"ms": 2.0}, {"ms": 2.02}, "by as much: no difference beyond the noise."),
    (
        {"ms": 2.0, "total_spread_ms": (1.0, 3.0)},
        {"ms": 1.5},
        "by as much: no difference beyond the noise.",
    ),
    (
        {"ms": 2.0, "kind": "BatchNorm2d"},
        {"ms": 0.1, "kind": "Identity"},
        "It is gone, and its 2 ms with it: a BatchNorm2d before",
    ),
]


@pytest.mark.parametrize(("before", "after", "words"), CHANGES)
def test_the_effect_of_a_change_is_reported(
    before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    assert words in against(row("layer", **before), row("layer", **after))[0].sentence


WHY_NOT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {},
        {"dtype": "bfloat16"},
        "This machine computes 400 GFLOP/s in bfloat16 and 100 in float32.",
    ),
    ({}, {"operators": (operator("_to_copy", 0.5),)}, "0.5 ms more than before go into copies"),
    (
        {},
        {"verdict": "overhead", "overhead_ms": 0.9},
        "0.9 of its own 1 ms are overhead, which the change did not touch.",
    ),
    (
        {"verdict": "memory"},
        {"verdict": "memory"},
        "It is limited by memory, and moves as many bytes as before.",
    ),
    ({}, {}, "It is limited by arithmetic, and computes as much as before in the same dtype."),
]


@pytest.mark.parametrize(("before", "after", "words"), WHY_NOT)
def test_facts_that_kept_a_layer_from_getting_faster_are_reported(
    before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    explanation = against(row("layer", **before), row("layer", **after), ceiling=FAST_BF16)
    assert words in "\n".join(
        reason.sentence for reason in explanation if reason.topic == "not faster"
    )


# The record.


# What the model has already.


@pytest.mark.parametrize(
    ("applied", "is_advised"),
    [
        (({"backend": {"name": "onnxruntime"}},), False),
        (({"backend": {"name": "inductor", "freeze": True}},), False),
        (({"backend": {"name": "eager", "threads": 1}},), True),
        (({"layout": {}},), True),
        ((), True),
    ],
)
def test_no_engine_is_advised_where_one_runs(
    applied: tuple[dict[str, dict[str, Any]], ...], is_advised: bool
) -> None:
    reason = only(explain(profile(ADD, applied=applied), "add"), "overhead")
    assert (reason.step == BACKEND, reason.saves_ms == 0.8, bool(reason.advice)) == (
        is_advised,
    ) * 3
    assert "7 operator calls" in reason.sentence, "the fact stays"


def test_what_was_measured_to_help_is_not_advised_again_with_the_options_that_it_has() -> None:
    tried = row("conv", ms=4.0, alternatives=(Alternative(step=BF16, here_ms=1.0, there_ms=0.5),))
    done = {"precision": {"default": "bf16", "layers": {"head": "fp32"}}}
    other = {"precision": {"layers": {"head": "bf16"}}}
    assert BF16 in explain(profile(tried, applied=(other,))).steps
    explanation = explain(profile(tried, applied=(done,)))
    assert BF16 not in explanation.steps and "bf16" not in "".join(map(repr, explanation.steps))


def test_a_variant_s_profile_knows_what_was_applied() -> None:
    work = lab.Workload(Small(), images())
    recipe = lab.Recipe(["fold", {"precision": {"default": "bf16"}}])
    assert lab.profile(lab.apply(work, recipe), runs=1).applied == ({"fold": {}}, BF16)
    assert lab.profile(work, runs=1).applied == ()
    engine = explain(lab.profile(lab.apply(work, lab.Recipe([BACKEND])), runs=1))
    assert not [step for step in engine.steps if "backend" in step]


def test_on_a_busy_machine_no_change_is_called_faster() -> None:
    busy = Quality(others_share=0.6)
    before, after = row("layer", ms=4.0), row("layer", ms=1.0)
    for now, then in ((busy, None), (None, busy), (busy, busy)):
        explanation = explain(
            profile(after, quality=now), "layer", against=profile(before, quality=then)
        )
        told = [reason.sentence for reason in explanation.reasons if reason.topic == "change"]
        assert len(told) == 1 and "cannot be told" in told[0] and "faster:" not in told[0]
        assert not any(reason.topic == "not faster" for reason in explanation.reasons)
    assert "4.00 × faster" in against(before, after, quality=Quality())[0].sentence

"""Why a layer is not faster: each reason by a profile made by hand, each step for a recipe."""

from __future__ import annotations

from typing import Any

import pytest

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError
from paifuser_lab.profiler import expected, explain
from paifuser_lab.records import Alternative, Ceiling, Explanation, LayerProfile, Quality, Reason
from tests.support.advised import activation, normalised, operator, plain_calibration, profile, row
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


# Each reason: the rows, of which the last is explained, its topic, words, step and saving.

FAST_BF16 = Ceiling(threads=1, fp32_gflops=100.0, bf16_gflops=400.0, bandwidth_gbs=10.0)
ADD = row(
    "add",
    "Add",
    verdict="overhead",
    overhead_ms=0.8,
    roof_ms=0.001,
    macs=0,
    operators=(operator("add", 0.2, 7),),
)
SLOW = row(
    "pool",
    "MaxPool2d",
    8.0,
    verdict="memory",
    roof_ms=0.4,
    overhead_ms=0.01,
    operators=(operator("max_pool2d", 8.0),),
)
NORM = row("norm", "LayerNorm", verdict="memory", macs=0, flops=1000)
TINY = row(
    "experts",
    "Experts",
    0.1,
    verdict="overhead",
    roof_ms=0.001,
    overhead_ms=0.03,
    operators=(operator("index", 0.1, 20),),
)


def tried(step: dict[str, dict[str, Any]], there_ms: float, ms: float = 4.0) -> LayerProfile:
    return row(
        "conv", ms=ms, alternatives=(Alternative(step=step, here_ms=1.0, there_ms=there_ms),)
    )


def wide(kind: str, shape: tuple[int, ...], *output: int) -> LayerProfile:
    return row("layer", kind, weight_shape=shape, output_shapes=(output,))


def norm(**facts: Any) -> LayerProfile:
    return normalised()[1].model_copy(update=facts)


Rows = tuple[LayerProfile, ...]
NONE: dict[str, dict[str, Any]] | None = None
REASONS: list[tuple[Rows, str, str, dict[str, dict[str, Any]] | None, float | None]] = [
    ((row("conv"),), "roof", "arithmetic: 50 GFLOP/s, 50% of what 1 thread can do", NONE, None),
    ((row("conv", flops=25 * 10**8),), "roof", "arithmetic: 2,500 GFLOP/s", NONE, None),
    ((NORM,), "roof", "memory: it reads and writes 200 kB at 0.2 GB/s, 50% of what", NONE, None),
    ((NORM.model_copy(update={"roof_ms": 2.0}),), "roof", "more than memory delivers", NONE, None),
    ((ADD,), "overhead", "0.8 of 1 ms are spent around its 7 operator calls", BACKEND, 0.8),
    ((TINY,), "overhead", "its 20 operator calls", BACKEND, None),
    ((row("conv", ms=2.0), SLOW), "slow path", "4.0 times the model's median conv", NONE, None),
    ((tried(LAYOUT, 0.5),), "layout", "2.0 × faster", LAYOUT, 2.0),
    ((tried(LAYOUT, 1.0),), "layout", "no faster", NONE, None),
    ((tried(LAYOUT, 2.0),), "layout", "slower", NONE, None),
    (normalised(), "folding", "'conv'", {"fold": {}}, 1.0),
    ((row("conv"), activation()), "fusion", "fused with 'conv'", {"fuse": {}}, 1.0),
    (
        (row("one", is_channels_last=True), row("two", reads_from=("one",))),
        "conversion",
        "differ in memory layout",
        LAYOUT,
        None,
    ),
    ((wide("Conv2d", (24, 8, 3, 3), 1, 24, 8, 8),), "width", "16, the hardware's", NONE, None),
    ((wide("Linear", (10, 8), 1, 10),), "width", "10 output channels", NONE, None),
    ((wide("ConvTranspose2d", (32, 12, 2, 2), 1, 12, 8, 8),), "width", "12 output", NONE, None),
    ((row("linear", "Linear"),), "precision", "4.0 × faster in bf16", BF16, 0.75),
    ((tried(BF16, 1.0, ms=1.0),), "precision", "no faster", NONE, None),
]


@pytest.mark.parametrize(("rows", "topic", "words", "step", "saves_ms"), REASONS)
def test_a_reason_says_what_binds_a_layer_and_which_step_would_help(
    rows: Rows, topic: str, words: str, step: Any, saves_ms: float | None
) -> None:
    ceiling = {"ceiling": FAST_BF16} if topic == "precision" else {}
    reason = only(explain(profile(*rows, **ceiling), rows[-1].layer), topic)
    assert words in reason.sentence and reason.step == step
    assert saves_ms is None or reason.saves_ms == pytest.approx(saves_ms)


NO_REASON: list[tuple[Rows, str]] = [
    ((row("conv"), row("other", reads_from=("conv",)), norm()), "folding"),
    ((row("conv", calls=2), normalised(calls=2)[1]), "folding"),
    ((row("conv", "ReLU"), norm()), "folding"),
    ((row("conv"), norm(reads_from=("conv", "other"))), "folding"),
    ((row("conv"), norm(kind="LayerNorm")), "folding"),
    ((row("conv"), activation().model_copy(update={"reads_from": ("conv", "skip")})), "fusion"),
    ((TINY,), "slow path"),
    ((row("conv", ms=2.0), SLOW), "roof"),
    (
        (
            row("one", is_channels_last=True),
            row("two", reads_from=("one",), output_shapes=((1, 16, 1, 1),)),
        ),
        "conversion",
    ),
    ((wide("ConvTranspose2d", (12, 32, 2, 2), 1, 32, 8, 8),), "width"),
    ((wide("Conv2d", (32, 8, 3, 3), 1, 32, 8, 8),), "width"),
    ((row("linear", "Linear", dtype="bfloat16"),), "precision"),
]


@pytest.mark.parametrize(("rows", "topic"), NO_REASON)
def test_a_reason_is_not_given_where_it_does_not_hold(rows: Rows, topic: str) -> None:
    ceiling = {"ceiling": FAST_BF16} if topic == "precision" else {}
    assert topic not in topics(explain(profile(*rows, **ceiling), rows[-1].layer))


def test_on_a_device_its_own_ceilings_and_engine_count() -> None:
    assert "the device" in text(explain(profile(row("conv"), device="cuda:0"), "conv"))
    on_device = only(explain(profile(ADD, device="cuda:0"), "add"), "overhead")
    assert on_device.step == {"backend": {"name": "inductor"}} and on_device.saves_ms == 0.8


def test_a_share_of_a_ceiling_names_the_threads_that_the_ceiling_was_measured_with() -> None:
    between = explain(profile(row("conv"), threads=4), "conv")
    assert "50% of what 1 thread can do here" in text(between)


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
        and "'relu' 3.00 ms, 'conv' 2.00 ms, 'norm' 1.00 ms" in explanation.reasons[0].sentence
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
    ({"ms": 4.0}, {"ms": 2.0}, "It took 4.00 ms and takes 2.00 ms now: 2.00 × faster."),
    ({"ms": 2.0}, {"ms": 4.0}, "0.50 × as fast, that is slower."),
    ({"ms": 2.0}, {"ms": 2.02}, "by as much: no difference beyond the noise."),
    ({"ms": 2.0}, {"ms": 0.0}, "It took 2.00 ms, and no time is measured in it now."),
    (
        {"ms": 2.0, "total_spread_ms": (1.0, 3.0)},
        {"ms": 1.5},
        "by as much: no difference beyond the noise.",
    ),
    (
        {"ms": 2.0, "kind": "BatchNorm2d"},
        {"ms": 0.1, "kind": "Identity"},
        "It is gone, and its 2.00 ms with it: a BatchNorm2d before",
    ),
    (
        {"ms": 2.0, "kind": "BatchNorm2d"},
        {"ms": 0.0, "kind": "Identity", "unknown_why": {"self_ms": "it was optimised away"}},
        "It is gone, and its 2.00 ms with it: a BatchNorm2d before",
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
        "0.9 of its own 1.00 ms are overhead, which the change did not touch.",
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
        assert len(told) == 1 and "timed too roughly" in told[0] and "faster:" not in told[0]
        assert not any(reason.topic == "not faster" for reason in explanation.reasons)
    assert "4.00 × faster" in against(before, after, quality=Quality())[0].sentence

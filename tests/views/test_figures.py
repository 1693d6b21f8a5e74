"""Figures show the content of records, in both themes, without pyplot."""

from __future__ import annotations

import sys

import pytest
from matplotlib.text import Text

import paifuser_lab as lab
from paifuser_lab.records import (  # fmt: skip
    AccelerationStatus,
    Allocation,
    AllocationPoint,
    AttentionCost,
    AttentionLayer,
    Bargain,
    BatchingCurve,
    BatchingPoint,
    BatchRow,
    BatchSweep,
    Ceiling,
    Estimate,
    Fit,
    FitRemedy,
    Fusion,
    FusionMap,
    GradientRange,
    Importance,
    Latency,
    LayerImportance,
    LayerPair,
    LayerProfile,
    LayerSensitivity,
    Link,
    MemoryPlan,
    MemoryPoolUse,
    MemorySnapshot,
    MemoryTimeline,
    OutOfMemory,
    PackedBuffer,
    ParallelOption,
    ParallelPlan,
    PeakBytes,
    PipelineSchedule,
    PipelineSlot,
    PipelineStageLayers,
    PoolCalls,
    PredictedPeak,
    Profile,
    RateCurve,
    Record,
    ResultRow,
    Results,
    Sensitivity,
    SideBySide,
    SnapshotMap,
    Staircase,
    StepOptions,
    StreamEvent,
    StreamReport,
    SwitchStatus,
    TraceSummary,
    TradeOff,
    TrainingEvent,
    TrainingRun,
)
from paifuser_lab.views import DRAWERS
from paifuser_lab.views.style import DARK, LIGHT
from tests.support.colours import contrast


def row(name, latency, interval, **more):
    known = {
        "threads": 1,
        "latency_ms": latency,
        "spread_ms": (latency, latency),
        "speedup": 1.0,
        "speedup_interval": interval,
    }
    return lab.Measurement(name=name, **known, **more)


COMPARISON = lab.Comparison(
    workload="net",
    machine="a machine",
    baseline="baseline",
    rounds=3,
    rows=(row("baseline", 4.0, (1, 1)), row("fold", 2.0, (1.9, 2.1)), row("bf16", 8.0, (0.4, 0.6)),
          lab.Measurement(name="openvino", threads=1, failure="not installed")),
)  # fmt: skip
HARDWARE = lab.Hardware(
    name="a machine",
    source="measured",
    physical_cores=2,
    logical_cores=2,
    memory_bytes=1,
    ceilings=(Ceiling(threads=1, fp32_gflops=9, bandwidth_gbs=2),),
)
LAYER = LayerProfile(
    layer="conv",
    kind="Conv2d",
    self_ms=2,
    total_ms=2,
    share=1.0,
    flops=10**8,
    read_bytes=10**6,
    verdict="compute",
)
PROFILE = Profile(
    workload="net",
    machine="a machine",
    threads=1,
    ceiling=HARDWARE.ceilings[0],
    latency_ms=2,
    latency_spread_ms=(2, 2),
    rounds_ms=(2,),
    slowdown_while_profiling=0.1,
    watching_us=1,
    call_us=1,
    operator_us=1,
    layers=(LayerProfile(layer="", kind="Net", total_ms=2, share=1.0), LAYER),
)
ROW = LayerPair(layer="conv", kind_before="Conv2d", kind_after="Conv2d", before_ms=2, after_ms=1)
POINT = AllocationPoint(
    name="all in int8",
    formats={"conv": "int8"},
    around="fp32",
    loss=0.01,
    loss_error=0.002,
    latency_ms=1.0,
    size_bytes=10,
    recipe_steps=(),
)
STAIRCASE = Staircase(
    likeness="convolution 3×3",
    machine="a machine",
    threads=1,
    torch_version="2",
    reads=(8, 16),
    makes=(8, 16, 24, 32),
    ms=((1.0, 1.0, 1.9, 1.9), (2.0, 2.0, 3.9, 3.8)),
)
ACCELERATION = AccelerationStatus(
    is_enabled=True,
    model="Net$x_{$",
    optimizer="AdamW",
    steps=140,
    judged_steps=90,
    judging_share=0.021,
    clock="cpu",
    rows=(
        SwitchStatus(name="$bf16_{", state="on", ratio=2.1, interval=(1.9, 2.2),
                     why="faster by more than its interval"),
        SwitchStatus(name="channels_last", state="taken back", ratio=0.8, interval=(0.7, 1.02),
                     why="not faster by more than its interval in the $time_{ it may take"),
        SwitchStatus(name="fused_optimizer", state="judging", ratio=1.1, interval=(0.9, 1.3)),
        SwitchStatus(name="memory_pool", state="waiting"),
        SwitchStatus(name="compile", state="not offered", why="the loop compiles its own model"),
    ),
)  # fmt: skip
RECORDS = {
    "AccelerationStatus": ACCELERATION,
    "StreamReport": StreamReport(
        source="a $x_{$ clip.mp4",
        engine="threads",
        state="running",
        stages=("decode", "$infer_{"),
        frames=40,
        elapsed_s=2.0,
        frames_per_s=20.0,
        latency=Latency(name="frame", p50_ms=9, p95_ms=20, p99_ms=40, count=40),
        stage_latency=(Latency(name="$infer_{", p50_ms=5, p95_ms=8, p99_ms=12, count=40),),
        events=(StreamEvent(at_s=1.0, kind="hedged", node="thread-0", group=2),),
        rates=((0.5, 10.0), (1.0, 30.0), (1.5, 20.0)),
    ),
    "BatchingCurve": BatchingCurve(
        call="a sleep",
        points=tuple(
            BatchingPoint(
                count=count,
                delay_ms=5.0,
                offered_per_s=rate,
                answered_per_s=rate,
                p50_ms=count + rate / 50,
                p95_ms=count + rate / 20,
                p99_ms=count + rate / 10,
                mean_batch=1.5,
            )
            for count in (1, 8)
            for rate in (100.0, 400.0)
        ),
    ),
    "Allocation": Allocation(
        workload="net",
        machine="a machine",
        threads=1,
        unit="loss",
        axis="latency_ms",
        limits={"latency_ms": 2.0},
        baseline_ms=2.0,
        baseline_bytes=40,
        points=(POINT,),
        chosen=0,
        reason="the only one",
    ),
    "AttentionCost": AttentionCost(
        workload="net",
        machine="a machine",
        kind="topk",
        keeps=(1.0, 0.25),
        errors=(0.0, 0.1),
        latency_ms=(4.2, 3.0),
        dense_ms=4.0,
        layers=(
            AttentionLayer(layer="a", heads=2, queries=8, keys=8, errors=(0.0, 0.1)),
            AttentionLayer(
                layer="b", heads=2, queries=8, keys=8, errors=(), reason="it returns its weights"
            ),
        ),
    ),
    "BatchSweep": BatchSweep(
        workload="net",
        machine="a machine",
        threads=1,
        memory_limit_bytes=9,
        plateau=0.85,
        knee=1,
        reason="the only one",
        rows=(
            BatchRow(
                batch=1, latency_ms=2.0, spread_ms=(2, 2), throughput_per_s=500.0, peak_bytes=8
            ),
        ),
    ),
    "Comparison": COMPARISON,
    "FusionMap": FusionMap(
        workload="net",
        machine="a machine",
        fusions=(
            Fusion(
                layers=("a", "b"),
                pattern="convolution + relu",
                runs="oneDNN",
                apart_ms=2.0,
                fused_ms=1.5,
            ),
            Fusion(
                layers=("c",),
                pattern="linear",
                standing="slower",
                apart_ms=1.0,
                fused_ms=1.5,
                reason="too narrow",
            ),
            Fusion(layers=("d",), pattern="linear", standing="apart", reason="it is read twice"),
        ),
    ),
    "Hardware": HARDWARE,
    "Importance": Importance(
        workload="net",
        machine="a machine",
        method="taylor",
        unit="A sentence.",
        examples=8,
        rows=(
            LayerImportance(
                layer="a", kind="Linear", channels=2, values=(0.1, 0.2), errors=(0.01, 0.02)
            ),
            LayerImportance(layer="b", kind="Linear", channels=2, note="it never ran"),
        ),
    ),
    "MemorySnapshot": MemorySnapshot(
        name="run.pickle",
        device=0,
        categories=("weights", "activations"),
        time_ms=(0.0, 1.0, 2.0),
        held_bytes=((4, 4, 4), (0, 8, 0)),
        reserved_bytes=(20, 20, 20),
        peak_ms=1.0,
        peak_bytes=12,
        peak_reserved_bytes=20,
        maps=(
            SnapshotMap(
                moment="at the peak",
                time_ms=1.0,
                segment_bytes=(20,),
                segment_allocated_bytes=(12,),
                segment_stream=(0,),
                segment_is_large=(True,),
                segment_is_expandable=(False,),
                sites=("net.py:3 forward",),
                categories=("weights", "activations"),
                block_segment=(0, 0),
                block_offset_bytes=(0, 4),
                block_bytes=(4, 8),
                block_site=(0, 0),
                block_category=(0, 1),
            ),
        ),
        out_of_memory=OutOfMemory(
            time_ms=1.5,
            requested_bytes=30,
            site="net.py:3 forward",
            free_on_device_bytes=4,
            reserved_bytes=20,
            allocated_bytes=12,
            largest_free_bytes=8,
        ),
    ),
    "MemoryPlan": MemoryPlan(
        workload="net",
        machine="a machine",
        device="cpu",
        operators=2,
        buffers=(
            PackedBuffer(
                layer="conv", operator="conv", size_bytes=8, begin=0, end=1, offset_bytes=0
            ),
            PackedBuffer(
                layer="relu", operator="relu", size_bytes=8, begin=1, end=1, offset_bytes=8
            ),
        ),
        method="best fit by size",
        best_fit_bytes=16,
        is_optimal=True,
        referenced_bytes=16,
        held_bytes=20,
    ),
    "ParallelPlan": ParallelPlan(
        workload="net",
        machine="a machine",
        processes=2,
        threads=2,
        link=Link(latency_us=20, gbit_per_s=10),
        options=(
            ParallelOption(
                strategy="DDP",
                step_ms=4.0,
                compute_ms=3.0,
                wait_ms=1.0,
                sent_bytes=8e6,
                reason="it overlaps",
            ),
            ParallelOption(strategy="one process", step_ms=6.0, compute_ms=6.0, reason="alone"),
            ParallelOption(strategy="pipeline, 1f1b", reason="torch.export cannot trace it"),
        ),
    ),
    "PipelineSchedule": PipelineSchedule(
        workload="net",
        schedule="gpipe",
        split="profile",
        microbatches=1,
        stages=(
            PipelineStageLayers(first_layer="a", last_layer="b", forward_ms=1, backward_ms=2),
            PipelineStageLayers(first_layer="c", last_layer="$c$", forward_ms=1, backward_ms=2),
        ),
        predicted=(
            PipelineSlot(stage=0, microbatch=0, is_backward=False, begin_ms=0, end_ms=1),
            PipelineSlot(stage=1, microbatch=0, is_backward=False, begin_ms=1, end_ms=2),
        ),
        measured=(
            PipelineSlot(stage=0, microbatch=0, is_backward=False, begin_ms=5, end_ms=6.5),
            PipelineSlot(stage=1, microbatch=0, is_backward=False, begin_ms=7, end_ms=8),
        ),
    ),
    "Fit": Fit(
        predicted=PredictedPeak(
            workload="net",
            device="cpu",
            batch=4,
            options=StepOptions(),
            held=PeakBytes(weights_bytes=40, activations_bytes=50, inputs_bytes=10),
            moment="the call",
        ),
        limit_bytes=90,
        largest_batch=2,
        remedies=(
            FitRemedy(
                change="bf16",
                how="a step",
                options=StepOptions(precision="bf16"),
                batch=4,
                peak_bytes=50,
            ),
        ),
    ),
    "PoolCalls": PoolCalls(
        workload="net",
        machine="a machine",
        calls=5,
        faults_without=1200.0,
        faults_with=3.0,
        use=MemoryPoolUse(device="cpu", held_bytes=10, kept_bytes=20, is_in_force=True),
    ),
    "MemoryTimeline": MemoryTimeline(
        workload="net",
        machine="a machine",
        device="cpu",
        duration_ms=1.0,
        layers=("conv",),
        weights_bytes=(4,),
        time_ms=(0.1, 0.9),
        change_bytes=(8, -8),
        layer_index=(0, 0),
        is_workspace=(False, False),
    ),
    "Profile": PROFILE,
    "RateCurve": RateCurve(
        workload="net",
        optimizer="adamw",
        rates=(1e-3, 1e-2, 1e-1),
        losses=(2.0, 1.0, 3.0),
        smooth=(2.0, 1.5, 2.5),
        suggested=1e-3,
        reason="The lowest.",
    ),
    "Results": Results(
        workload="net",
        machine="a machine",
        current=1,
        rows=(
            ResultRow(number=0, label="As it came", latency_ms=4.0, speedup=1.0),
            ResultRow(
                number=1,
                label="fold",
                steps=({"fold": {}},),
                step_labels=("fold",),
                latency_ms=2.0,
                before_ms=4.0,
                speedup=2.0,
                speedup_interval=(1.9, 2.1),
            ),
            ResultRow(
                number=2,
                label="layout",
                steps=({"layout": {}},),
                step_labels=("layout",),
                latency_ms=4.0,
                before_ms=4.0,
                speedup=1.0,
                speedup_interval=(0.9, 1.1),
            ),
            ResultRow(number=3, label="openvino", failure="not installed"),
        ),
    ),
    "Roofline": PROFILE.roofline,
    "Sensitivity": Sensitivity(
        workload="net",
        machine="a machine",
        unit="loss",
        formats=("int8",),
        method="quadratic",
        examples=1,
        rows=(
            LayerSensitivity(
                layer="a",
                kind="Linear",
                parameters=4,
                scores={"int8": {"quadratic": Estimate(value=0.1)}},
            ),
        ),
    ),
    "SideBySide": SideBySide(
        before="net", after="net · layout", before_ms=2, after_ms=1, rows=(ROW,)
    ),
    "Staircase": STAIRCASE,
    "TraceSummary": TraceSummary(name="run.json", span_ms=3.0, events=2),
    "TradeOff": TradeOff(
        title="net",
        unit="accuracy",
        bargains=(Bargain(name="as it is", latency_ms=2.0, size_bytes=40, worth=0.9),),
    ),
    "TrainingRun": TrainingRun(
        workload="net",
        machine="a machine",
        losses=(3.0, float("nan"), 2.0),
        rates=(0.1, 0.1, 0.05),
        scales=(4.0, 4.0, 2.0),
        gradient_norms=(1.0, float("nan"), 1.0),
        step_ms=(1.0, 1.0, 1.0),
        wait_ms=(0.0, 0.0, 0.0),
        is_lower=(False, True, True),
        is_skipped=(False, True, False),
        epoch_ends=(3,),
        steps=3,
        layers=("conv",),
        ranges=(GradientRange(step=0, counts=((1, *range(24)),)),),
        events=(TrainingEvent(step=1, what="bf16 from here"),),
    ),
}


def test_every_drawer_has_a_record_here():
    assert set(DRAWERS) == set(RECORDS)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_is_drawn_in_both_themes(record, dark):
    drawing = lab.figure(record, dark=dark)
    assert drawing.png().startswith(b"\x89PNG")
    assert drawing.get_facecolor()[:3] == pytest.approx(
        tuple(int((DARK if dark else LIGHT).paper[i : i + 2], 16) / 255 for i in (1, 3, 5))
    )


def test_a_figure_follows_the_theme_of_the_notebook_and_is_a_plain_picture_in_static_mode(
    monkeypatch,
):
    shown = lab.figure(HARDWARE)._repr_mimebundle_()
    assert shown["text/html"].count("<img") == 2
    assert "data-jp-theme-light" in shown["text/html"]
    monkeypatch.setenv("PAIFUSER_STATIC", "1")
    assert set(lab.figure(HARDWARE)._repr_mimebundle_()) == {"image/png", "text/plain"}


def test_text_from_a_model_is_never_markup():
    named = COMPARISON.model_copy(update={"workload": "<script>alert(1)</script>"})
    assert "<script" not in lab.figure(named)._repr_mimebundle_()["text/html"]


def test_a_comparison_shows_what_was_timed_and_leaves_out_what_failed():
    words = [text.get_text() for text in lab.figure(COMPARISON).axes[0].texts]
    assert {"baseline", "fold", "bf16"} <= set(words)
    assert "openvino" not in words
    assert any("1.90–2.10" in word for word in words)


def test_every_switch_has_its_state_in_words_its_speedup_and_its_reason_beside_it():
    axes = lab.figure(ACCELERATION).axes[0]
    words = [text.get_text() for text in axes.texts]
    for row in ACCELERATION.rows:
        assert row.name in words and row.state in words
        assert row.why[:20] in " ".join(words)
    assert {"2.10 × (1.90–2.20)", "0.80 × (0.70–1.02)", "1 ×"} <= set(words)
    markers = {line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1}
    assert {"o", "x", "D", "_"} <= markers, "a state is told by its shape as well"
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    (one, faster), (also_one, slower), _ = spans
    assert one == also_one and slower < one < faster, "bars begin at 1 ×"
    assert lab.figure(AccelerationStatus(is_enabled=False)).png()


def test_what_a_limit_refused_is_no_dot_of_the_results():
    results = RECORDS["Results"]
    refused = results[1].model_copy(update={"number": 4, "refused": "too much is lost"})
    both = results.model_copy(update={"rows": (*results.rows, refused)})
    dots = [text.split(".")[0] for text in lab.figure(both).hover.values()]
    assert dots == ["0", "1", "2"]


@pytest.mark.parametrize(("limit", "is_drawn"), [(90, True), (100_000, False)])
def test_a_limit_is_a_line_where_it_is_near_and_named_where_it_is_not(limit, is_drawn):
    drawing = lab.figure(RECORDS["Fit"].model_copy(update={"limit_bytes": limit}))
    axes = drawing.axes[0]
    lines = [line for line in axes.lines if set(line.get_xdata()) == {limit}]
    assert bool(lines) == is_drawn and ("is beyond" in axes.get_xlabel()) != is_drawn
    verdicts = [text.get_text() for text in axes.texts]
    assert verdicts == ["100 B, too much" if is_drawn else "100 B, fits", "50 B, fits"]


def test_a_record_without_a_drawing_is_named():
    class Unknown(Record):
        ms: float

    with pytest.raises(TypeError, match="no drawing of a Unknown"):
        lab.figure(Unknown(ms=1.0))
    del Record.kinds["Unknown"]


def test_pyplot_is_not_imported():
    lab.figure(HARDWARE)
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_of_text_and_marks_stands_out_from_the_paper(theme):
    assert contrast(theme.ink, theme.paper) > 7
    assert all(
        contrast(colour, theme.paper) > 3
        for colour in (theme.faint, theme.main, theme.good, theme.bad)
    )


FORMULA = "$x_{$"
NAMES = (
    "call",
    "layer",
    "layers",
    "workload",
    "name",
    "machine",
    "baseline",
    "before",
    "after",
    "step",
    "steps",
    "note",
    "reason",
    "site",
    "sites",
    "categories",
)


def with_formula(value, key=""):
    """A record's data with the beginning of a formula in every name."""
    if isinstance(value, dict):
        return {name: with_formula(inner, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_formula(item, key) for item in value]
    return f"{value}{FORMULA}" if isinstance(value, str) and value and key in NAMES else value


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_dollar_sign_in_a_name_is_not_a_formula(record):
    named = type(record).model_validate(with_formula(record.model_dump()))
    assert FORMULA in repr(named.model_dump())
    drawing = lab.figure(named)
    texts = [text for text in drawing.findobj(Text) if "x_{" in text.get_text()]
    assert drawing.png() and drawing.svg()
    assert not [text.get_text() for text in texts if text.get_parse_math()]


def test_the_legend_of_the_memory_figure_names_a_layer_with_a_dollar_sign():
    timeline = RECORDS["MemoryTimeline"]
    # built anew: a copy would keep cached properties of the old names
    named = type(timeline).model_validate(timeline.model_dump() | {"layers": (FORMULA,)})
    drawing = lab.figure(named)
    assert drawing.png() and FORMULA in drawing.svg()

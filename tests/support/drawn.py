"""A small record of every kind that has a drawing, and the fields that hold names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import paifuser_lab as lab
from paifuser_lab.planner.result import SearchResult
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
    CallTimeline,
    Candidate,
    Ceiling,
    Estimate,
    Fit,
    FitRemedy,
    Fusion,
    FusionMap,
    GenerationComparison,
    GenerationRow,
    GradientRange,
    GraphOperator,
    GraphTensor,
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
    ModelGraph,
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
from paifuser_lab.records.generation import Phase

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


def renamed(record: Any, text: str, names: Collection[str] = NAMES) -> Any:
    """The record with a text behind each value that has one of these names."""

    def behind(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: behind(inner, name) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [behind(item, key) for item in value]
        return f"{value}{text}" if isinstance(value, str) and value and key in names else value

    return type(record).model_validate(behind(record.model_dump()))


def row(name, latency, interval, **more):
    known = {
        "threads": 1,
        "latency_ms": latency,
        "spread_ms": (latency, latency),
        "speedup": 1.0,
        "speedup_interval": interval,
    }
    return lab.Measurement(name=name, **known, **more)


def comparison_of(*rows: lab.Measurement, **more: Any) -> lab.Comparison:
    """Rows beside the first, which is the baseline."""
    known = NET | {"baseline": rows[0].name, "rounds": 3, "rows": rows}
    return lab.Comparison(**known | more)


def candidate(label: str, ms: float | None = None, **more: Any) -> Candidate:
    """A recipe of a search that was measured at so many ms, where the model as it is takes 10."""
    known = {"label": label, "steps": ({"fold": {}},), "why": "", "status": "measured"}
    return Candidate(**known | {"latency_ms": ms, "speedup": ms and 10 / ms} | more)


def search_result(*rows: Candidate, **more: Any) -> SearchResult:
    """A search for latency that is done and found these."""
    limits = {"goal": "latency", "metric_drop": 0.01, "may_train": False, "seconds": 1, "took_s": 1}
    known = NET | limits | {"planned": len(rows), "is_done": True, "rows": rows}
    return SearchResult(**known | more)


NET = {"workload": "net", "machine": "a machine"}
COMPARISON = lab.Comparison(
    **NET,
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
    **NET,
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
TIMELINE = CallTimeline(
    **NET,
    latency_ms=8,
    duration_ms=10,
    lanes=("thread 1", "device 0, stream 7"),
    layers=("body", "body.conv", "", "head"),
    operators=("", "aten::conv2d", "aten::empty", "aten::relu", "a kernel"),
    lane_index=(0, 0, 0, 0, 0, 1, 0, 0),
    layer_index=(0, 1, 1, 1, 2, 1, 3, 3),
    operator_index=(0, 0, 1, 2, 3, 4, 0, 3),
    start_ms=(0, 0.1, 0.5, 0.6, 4.5, 5, 7, 7.5),
    end_ms=(4, 3.9, 3.5, 0.61, 5.5, 9, 9, 8.5),
    operators_ms=5,
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
GRAPH = ModelGraph(
    workload="a $x_{$ net",
    operators=(
        GraphOperator(name="input", layer=""),
        GraphOperator(name="convolution", layer="a.$conv_{"),
        GraphOperator(name="relu", layer="a"),
        GraphOperator(name="output", layer=""),
    ),
    tensors=(
        GraphTensor(source=0, target=1, name=0, shape=(1, 3, 8, 8), bytes=768),
        GraphTensor(source=1, target=2, name=1, shape=(1, 4, 6, 6), bytes=576),
        GraphTensor(source=2, target=3, name=2, shape=(1, 4, 6, 6), bytes=576),
    ),
    classes={"": "Net", "a": "Block", "a.$conv_{": "Conv2d"},
)

RECORDS = {
    "ModelGraph": GRAPH,
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
        **NET,
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
        **NET,
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
        **NET,
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
    "CallTimeline": TIMELINE,
    "Comparison": COMPARISON,
    "GenerationComparison": GenerationComparison(
        **NET,
        prompt_tokens=8,
        new_tokens=4,
        bytes_per_token=64,
        rounds=2,
        prompt="Where?",
        rows=(
            GenerationRow(
                name="net",
                engine="torch",
                threads=1,
                prefill=Phase(ms=8, tokens_per_s=1000),
                decode=Phase(ms=10, tokens_per_s=100),
                size_bytes=4000,
                loss=3.0,
                text="The cat sat",
            ),
            GenerationRow(
                name="int8-weights",
                engine="llama.cpp",
                threads=1,
                prefill=Phase(ms=4, tokens_per_s=2000, speedup=2.0, interval=(1.9, 2.1)),
                decode=Phase(ms=5, tokens_per_s=200, speedup=2.0, interval=(1.9, 2.1)),
                size_bytes=1000,
                loss=3.1,
                text="The cow sat",
                parts_at=4,
                pace=((9, 5.0), (10, 4.0), (12, 8.0)),
            ),
            GenerationRow(name="bf16", engine="openvino", threads=1, failure="it was not read"),
        ),
    ),
    "FusionMap": FusionMap(
        **NET,
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
        **NET,
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
        **NET,
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
        **NET,
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
    "SearchResult": search_result(
        candidate(
            "$x_{$ fast",
            2.5,
            metric_lost=0.008,
            rank=1,
            at_s=20.0,
            sentence="10 → 2.5 ms · 4 × faster",
        ),
        candidate("exact", 5.0, metric_lost=0.0, rank=2, at_s=10.0),
        candidate("beaten", 8.0, metric_lost=0.0, rank=3, at_s=30.0),
        candidate(
            "past", 2.6, metric_lost=0.03, status="outside the limits", reason="too much is lost"
        ),
        candidate("no", status="refused", reason="fails"),
        seconds=60,
        took_s=41,
        metric_name="accuracy",
        planned=4,
        baseline_ms=10.0,
        importance={"engine": 0.7, "keep": 0.3, "memory": 0.001},
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
        **NET,
        calls=5,
        faults_without=1200.0,
        faults_with=3.0,
        use=MemoryPoolUse(device="cpu", held_bytes=10, kept_bytes=20, is_in_force=True),
    ),
    "MemoryTimeline": MemoryTimeline(
        **NET,
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
        **NET,
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
        **NET,
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
        **NET,
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


def changed(kind: str, **values: Any) -> Any:
    """The record of this kind with other values, built anew: a copy would keep what it cached."""
    record = RECORDS[kind]
    return type(record).model_validate(record.model_dump() | values)


def point(name: str, formats: dict[str, str], **values: Any) -> AllocationPoint:
    """A point of an allocation, whose step gives its layers these formats."""
    steps = ({"precision": {"layers": formats}},)
    own: dict[str, Any] = {"name": name, "formats": formats, "recipe_steps": steps}
    return AllocationPoint(**POINT.model_dump() | own | values)

"""The profile of a model in an engine: the rows are its layers, and they add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch

import paifuser_lab as lab
from paifuser_lab import Profile, Recipe, Workload
from paifuser_lab.converter import Part
from paifuser_lab.engines import Engine, EngineNode, NodeRecorder
from paifuser_lab.errors import MeasureError
from paifuser_lab.profiler import explain, profile_in_turn, side_by_side
from paifuser_lab.records import ENGINE_ROW, Ceiling
from paifuser_lab.widgets.tabs.layers import packed_profile
from tests.support.advised import paper
from tests.support.engines import EXPORTED, Block
from tests.support.models import Small, images

each_engine = pytest.mark.parametrize("engine", EXPORTED)


def profiled(work: Workload, engine: str, *steps: Any, threads: int = 1) -> Profile:
    recipe = Recipe([*steps, {"backend": {"name": engine, "threads": threads}}])
    return lab.profile(lab.apply(work, recipe), runs=3)


def small() -> Workload:
    return Workload(Small(), images(2))


@each_engine
def test_the_rows_are_the_model_s_layers_and_the_engine_itself(engine: str) -> None:
    profile = profiled(small(), engine)
    assert [row.layer for row in profile] == ["", "conv", "norm", "relu", "head", ENGINE_ROW]
    assert profile["conv"].kind == "Conv2d" and profile["conv"].macs == 2 * 8 * 36 * 27
    assert profile["conv"].runs_as.startswith("Conv + BatchNorm + Relu")
    assert profile["norm"].joined_into == profile["relu"].joined_into == "conv"
    assert profile["norm"].self_ms == profile["relu"].self_ms == 0
    assert profile["head"].joined_into is None and profile["head"].weight_shape == (5, 8)
    assert profile[ENGINE_ROW].kind == profile.engine
    assert profile.latency_ms > 0 and profile["conv"].kernels


@each_engine
@pytest.mark.parametrize("threads", [1, 2])
def test_every_total_is_the_sum_of_the_rows_inside(engine: str, threads: int) -> None:
    work = Workload(Block(), torch.randn(2, 4, 8))
    profile = profiled(work, engine, threads=threads)
    assert profile.threads == threads and profile.total_ms > 0
    for row in profile:
        below = profile.children(row.layer)
        assert row.total_ms == pytest.approx(row.self_ms + sum(child.total_ms for child in below))
        assert row.total_bytes == row.moved_bytes + sum(child.total_bytes for child in below)
        assert row.total_flops == row.flops + sum(child.total_flops for child in below)
    assert profile.root.share == pytest.approx(1)
    assert sum(row.self_ms for row in profile) == pytest.approx(profile.total_ms)


@each_engine
def test_an_int8_model_keeps_its_layers(engine: str) -> None:
    profile = profiled(lab.load("resnet18-tiny"), engine, {"precision": {"default": "int8"}})
    convolutions = [row for row in profile if row.kind == "Int8Convolution"]
    assert len(convolutions) == 20 and all("Conv" in row.runs_as for row in convolutions)
    assert {row.dtype for row in convolutions} == {"int8"}


def test_an_engine_that_cannot_be_seen_into_is_one_row_with_the_reason() -> None:
    class Opaque(Engine):
        title, opaque = "Opaque", "nobody knows what is inside"

    work = small()
    work.model = Opaque(work.model, work.inputs, 1)
    profile = lab.profile(work, runs=1)
    assert profile.root.unknown_why["layers"] == "nobody knows what is inside"
    assert profile.root.verdict is None and profile.engine == "Opaque"


def test_gradients_of_an_engine_are_refused_before_anything_is_timed() -> None:
    work = small()
    variant = lab.apply(work, Recipe([{"backend": {"name": "onnxruntime"}}]))
    with pytest.raises(MeasureError, match="ONNX Runtime computes no gradients"):
        lab.profile(variant, backward=True)


# An engine whose nodes are made up, so that every figure is known.


class Told(NodeRecorder):
    title, no_memory = "Told", "it was not asked for its memory"

    def __init__(self, *nodes: EngineNode) -> None:
        self.told, self.ran = list(nodes), 0

    def run(self, tensors: Any) -> None:
        self.ran += 1

    def nodes(self) -> list[EngineNode]:
        """Each told run after one that warms up."""
        return [replace(one, ms=tuple(ms for ms in one.ms for _ in (0, 1))) for one in self.told]


def told(monkeypatch: pytest.MonkeyPatch, *nodes: EngineNode, latency_ms: float) -> Profile:
    """The profile of the small model, whose calls take a known time and have these nodes."""
    from paifuser_lab.profiler import layers

    work = small()
    variant = lab.apply(work, Recipe([{"backend": {"name": "onnxruntime", "threads": 1}}]))
    with monkeypatch.context() as patched:
        patched.setattr(type(variant.model), "recorder", lambda self, inputs: Told(*nodes))
        patched.setattr(layers, "timed_ms", lambda call, device: latency_ms)
        return lab.profile(variant, runs=len(nodes[0].ms))


def node(layers: str, *ms: float, op: str = "Conv", **figures: Any) -> EngineNode:
    return EngineNode(
        op.lower(), op, "plain", ms, tuple(Part(layer, op) for layer in layers.split()), **figures
    )


def test_rows_add_up_to_the_latency_by_what_lies_between_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [node("conv norm", 3, 5, 4), node("head", 1, 1, 1), node("", 2, 2, 2, op="Reorder")]
    nodes[2] = EngineNode("r", "Reorder", "plain", (2.0, 2.0, 2.0))
    profile = told(monkeypatch, *nodes, latency_ms=10.0)
    assert profile["conv"].self_ms == 4 and profile["head"].self_ms == 1
    assert profile[ENGINE_ROW].self_ms == pytest.approx(5), "a node of 2 ms, and 3 in none"
    assert profile.total_ms == pytest.approx(profile.latency_ms) and profile.watching_us == 0
    assert "3 ms of it are in no node" in profile[ENGINE_ROW].unknown_why["bound"]
    assert "50% nothing known" in explain(profile).reasons[0].sentence
    assert profile["conv"].total_spread_ms == (3.5, 4.5)
    assert profile["conv"].unknown_why == {"peak_bytes": "it was not asked for its memory"}
    assert profile.root.unknown_why == {}, "the whole model is the sum of its rows"


def test_beside_an_engine_each_turn_waits_for_its_threads_and_warms_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from paifuser_lab.profiler import layers

    waits: list[int] = []
    monkeypatch.setattr(layers, "wait_until_quiet", lambda: waits.append(1))
    work, recorder = small(), Told(node("conv", 3, 3))
    variant = lab.apply(work, Recipe([{"backend": {"name": "onnxruntime", "threads": 1}}]))
    monkeypatch.setattr(type(variant.model), "recorder", lambda self, inputs: recorder)
    profile_in_turn([work, variant], runs=2)
    assert len(waits) == 2 * 4 and recorder.ran == 2 * 2, "two turns of each model in each round"
    lab.profile(work, runs=2)
    assert len(waits) == 2 * 4, "eager torch alone has no other threads to wait for"


def test_the_cost_of_recording_is_taken_out_of_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("conv", 4, 4), node("head", 1, 1)]
    profile = told(monkeypatch, *nodes, latency_ms=4.0)
    assert profile["conv"].self_ms == 3.5 and profile["head"].self_ms == 0.5
    assert profile.total_ms == pytest.approx(4) and profile.watching_us == 500
    assert "500 µs a node were taken out" in profile.accuracy


def test_recording_costs_at_most_what_the_smallest_node_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = told(monkeypatch, node("conv", 8), node("head", 1), latency_ms=3.0)
    assert profile["conv"].self_ms == 7, "the rest of the excess stays visible"
    assert profile.rows_to_latency == pytest.approx(7 / 3)


def test_a_model_whose_engine_names_nothing_is_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = told(monkeypatch, EngineNode("", "Mystery", "k", (2.0,)), latency_ms=2.0)
    assert profile[ENGINE_ROW].self_ms == profile.total_ms == 2
    assert profile[ENGINE_ROW].runs_as == "Mystery"
    assert "no node of Told carries its name" in profile["conv"].unknown_why["self_ms"]
    assert profile["conv"].verdict is None and profile["conv"].joined_into is None


def test_a_row_is_bound_by_its_arithmetic_or_by_the_bytes_that_the_engine_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heavy = node("conv norm relu", 5, read_bytes=8, written_bytes=8, held_bytes=1000)
    moving = node("head", 5, op="Gemm", read_bytes=10**9, written_bytes=0, held_bytes=3000)
    profile = told(monkeypatch, heavy, moving, latency_ms=10.0)
    assert profile["head"].verdict == "memory" and profile["head"].read_bytes == 10**9
    assert profile["conv"].verdict in ("compute", "overhead")
    assert profile["conv"].overhead_ms < 0.1, "far below the 5 ms of the node"
    flops = [profile[name].flops for name in ("conv", "norm", "relu")]
    assert sum(flops) > max(flops), "arithmetic of the layers that run in its row counts"
    rate = profile.ceiling.rate(profile["conv"].dtype)
    assert profile["conv"].roof_ms == pytest.approx(sum(flops) / rate / 1e6)
    assert (profile["conv"].peak_bytes, profile.root.peak_bytes) == (1000, 3000)


def test_what_an_engine_computes_in_bf16_has_that_roof_and_raises_no_fp32_ceiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from paifuser_lab.profiler import layers, rows

    low = Ceiling(threads=1, fp32_gflops=0.02, bf16_gflops=0.025, bandwidth_gbs=1e6)
    raised: list[Any] = []
    monkeypatch.setattr(layers, "hardware", lambda: paper(low))
    monkeypatch.setattr(rows, "keep_faster", lambda *facts: raised.append(facts))
    monkeypatch.setattr(Engine, "computes_in_bf16", True)
    profile = told(monkeypatch, node("conv", *[1.0] * 5), latency_ms=2.0)
    conv = profile["conv"]
    assert conv.gflops and conv.gflops > 1.03 * 0.025, "beyond both ceilings"
    assert raised == [] and conv.dtype == "bfloat16"
    assert conv.roof_ms == pytest.approx(conv.flops / 0.025 / 1e6)


# Shown.


def both(monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Two layers in one row, one that was optimised away, and a name that could be HTML."""
    fused = EngineNode("f", "<b>", "k", (4.0,), (Part("conv", "Conv"), Part("norm", "<i>")))
    return told(monkeypatch, fused, node("head", 1, op="Gemm"), latency_ms=6.0)


def test_the_table_says_what_runs_where(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = both(monkeypatch)
    lines = {line["layer"].strip(): line for line in profile.table()}
    assert lines["conv"]["runs as"] == "Conv + <i>"
    assert (lines["norm"]["runs as"], lines["norm"]["self ms"]) == ("in conv", "joined")
    assert lines["relu"]["self ms"] == "–" and lines["conv"]["peak"] == "–"
    assert lines[ENGINE_ROW]["self ms"] == "1.000"
    assert "runs as" in str(profile)


def test_the_tree_in_a_notebook_escapes_what_an_engine_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = both(monkeypatch)._repr_html_()
    assert "<i>" not in text.replace('<i class="pf-', "") and "Conv + &lt;i&gt;" in text
    assert "it runs in the row of &#39;conv&#39;" in text and "pf-runs-as" in text
    assert "runs as" not in lab.profile(small(), runs=1)._repr_html_()


def test_the_page_gets_what_each_layer_runs_as(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = packed_profile(both(monkeypatch))
    layers = packed["layer"]

    def texts(column: dict[str, Any]) -> dict[str, str]:
        codes = numpy.frombuffer(column["codes"], "<u2")
        return {layer: column["names"][code] for layer, code in zip(layers, codes, strict=True)}

    assert packed["engine"] == "ONNX Runtime"
    assert texts(packed["runs_as"])["conv"] == "Conv + <i>"
    into = numpy.frombuffer(packed["joined_into"], "<i4")
    assert into[layers.index("norm")] == layers.index("conv")
    assert into[layers.index("conv")] == -1
    assert "row of 'conv'" in texts(packed["unknown_why"]["self_ms"])["norm"]
    assert texts(packed["unknown_why"]["peak_bytes"])["conv"] == Told.no_memory


def test_beside_the_baseline_a_joined_layer_says_where_it_went(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, after = lab.profile(small(), runs=1), both(monkeypatch)
    pair = {row.layer: row.note for row in side_by_side(before, after).rows}
    assert pair["norm"] == "joined into conv" and pair[ENGINE_ROW] == "in no layer's node"
    conv = next(row for row in lab.explain(before, after).rows if row.layer == "conv")
    assert "convolution" in conv.ran_as and conv.runs_as == after["conv"].kernels[0].name
    assert "runs as" in str(lab.explain(before, after))
    (reason, *_) = explain(after, "norm", against=before).reasons
    assert "runs inside 'conv' now" in reason.sentence
    (reason, *_) = explain(after, "relu", against=before).reasons
    assert "before; now no node of Told carries its name" in reason.sentence
    assert "slower" not in reason.sentence
    (reason, *_) = explain(before, "relu", against=after).reasons
    assert reason.sentence.startswith("It had no time of its own before, and takes ")
    assert explain(after, ENGINE_ROW, against=before) is not None

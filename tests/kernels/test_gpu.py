"""The same kernels on a GPU: functions against PTX's tables, numbers against float64, streams,
graphs, and a full graph compiled.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from paifuser_lab.kernels import (
    KERNELS,
    attend_to_blocks,
    choose_blocks,
    compile,
    depthwise_int8,
    pointwise_int8,
)
from paifuser_lab.kernels.cupy_runner import CupyRunner
from tests.support.cuda_on_cpu.emulator import HERE
from tests.support.kernel_cases.block_sparse_attention import assert_exact as assert_exact_lists
from tests.support.kernel_cases.block_sparse_attention import inputs_of as lists
from tests.support.kernel_cases.depthwise import CASES, assert_exact
from tests.support.kernel_cases.depthwise import inputs_of as images
from tests.support.kernel_cases.depthwise_int8 import CASES as INT8_IMAGES
from tests.support.kernel_cases.depthwise_int8 import inputs_of as int8_images
from tests.support.kernel_cases.pointwise import CASES as POINTWISE
from tests.support.kernel_cases.pointwise import assert_exact as assert_exact_rows
from tests.support.kernel_cases.pointwise import inputs_of as rows
from tests.support.kernel_cases.pointwise_int8 import CASES as INT8_ROWS
from tests.support.kernel_cases.pointwise_int8 import inputs_of as int8_rows
from tests.support.kernel_cases.window_attention import ENTRIES, TYPES
from tests.support.kernel_cases.window_attention import assert_exact as assert_exact_windows
from tests.support.kernel_cases.window_attention import inputs_of as windows
from tests.support.kernel_checks import exact
from tests.support.kernel_probes import CHECKS, launched
from tests.support.quantized_kernels import assert_rounded_once

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]


def on_gpu(inputs):
    return tuple(value.cuda() if isinstance(value, Tensor) else value for value in inputs)


def output_of(name, inputs):
    """The operator's output on the GPU; a fallback would warn, and a warning is an error."""
    output = getattr(torch.ops.paifuser, name)(*on_gpu(inputs))
    torch.cuda.synchronize()
    return output.cpu()


@pytest.fixture
def probe(monkeypatch):
    """A runner that finds the probes in the emulator's folder."""
    shipped = compile.asset
    monkeypatch.setattr(
        compile,
        "asset",
        lambda name: HERE / "probe.cu" if name == "kernels/probe.cu" else shipped(name),
    )
    return CupyRunner()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_functions_do_what_ptx_specifies(check, probe):
    assert launched
    check(probe, "cuda")


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("shift", [(0, 0), (3, 3), (0, 5)])
def test_window_attention_equals_float64(entry, shift):
    kind, window, size, *_ = entry.partition("<")[2].rstrip(">").split(", ")
    inputs = windows(
        TYPES[kind],
        window=int(window),
        size=int(size),
        batch=2,
        down=3,
        across=2,
        heads=3,
        shift=shift,
    )
    allowed = 1.1 * torch.finfo(TYPES[kind]).eps * inputs[0][..., 2, :, :].abs().max().item()
    expected = exact(KERNELS["window_attention"], inputs)
    torch.testing.assert_close(
        output_of("window_attention", inputs).double(), expected, rtol=0, atol=allowed
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("has_residual", [False, True])
def test_depthwise_equals_float64(case, has_residual):
    inputs = images(*case, batch=3, channels=136, height=29, width=17, has_residual=has_residual)
    assert_exact(output_of("depthwise", inputs), inputs)


@pytest.mark.parametrize("case", POINTWISE)
@pytest.mark.parametrize("depth", [24, 64, 520])
def test_pointwise_equals_float64(case, depth):
    kind, wide, activation = case
    inputs = rows(
        kind, activation, rows=(5, 201), depth=depth, columns=wide + (8 if wide == 128 else -8)
    )
    assert_exact_rows(output_of("pointwise", inputs), inputs)


@pytest.mark.parametrize("case", INT8_IMAGES)
@pytest.mark.parametrize("residual", [False, True])
def test_depthwise_int8_rounds_the_exact_sums(case, residual):
    inputs = int8_images(*case, batch=3, channels=144, height=29, width=17, residual=residual)
    assert_rounded_once(output_of("depthwise_int8", inputs), inputs, depthwise_int8.float_output)


@pytest.mark.parametrize("case", INT8_ROWS)
@pytest.mark.parametrize("depth", [32, 64, 528])
def test_pointwise_int8_rounds_the_exact_sums(case, depth):
    for wide in (48, 144):
        inputs = int8_rows(*case, rows=(5, 201), depth=depth, wide=wide)
        assert_rounded_once(
            output_of("pointwise_int8", inputs), inputs, pointwise_int8.float_output
        )


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths", [None, [600, 333]])
def test_block_sparse_attention_equals_float64(kind, size, is_causal, lengths):
    inputs = lists(
        kind,
        size,
        batch=2,
        heads=3,
        queries=650,
        keys=650,
        most=6,
        ends=(2, 6, 0),
        is_causal=is_causal,
        lengths=lengths,
    )
    assert_exact_lists(output_of("block_sparse_attention", inputs), inputs)


TILED = {
    "window_attention": (partial(windows, batch=2, down=3, heads=3), assert_exact_windows),
    "depthwise": (
        partial(images, side=7, batch=3, channels=136, height=29, width=17, has_residual=True),
        assert_exact,
    ),
    "pointwise": (
        partial(rows, activation="relu", rows=(5, 201), depth=200, columns=264),
        assert_exact_rows,
    ),
    "block_sparse_attention": (
        partial(lists, queries=650, keys=650, most=6, ends=(2, 6, 0), is_causal=True),
        assert_exact_lists,
    ),
}


@pytest.mark.parametrize("name", TILED)
def test_every_tile_equals_float64(name):
    make, assert_correct = TILED[name]
    kernel, inputs, run = KERNELS[name], make(), CupyRunner()
    for tile in kernel.tiles:
        out = kernel.empty(*on_gpu(inputs)).fill_(float("nan"))
        run(kernel.plan(out, *on_gpu(inputs), tile=tile))
        assert_correct(out.cpu(), inputs)


def test_choosing_blocks_never_synchronizes():
    query, key = torch.randn(2, 1, 2, 512, 64, device="cuda").bfloat16()
    torch.cuda.set_sync_debug_mode("error")
    try:
        attend_to_blocks(
            query, key, key, choose_blocks(query, key, density=0.25, is_causal=True), is_causal=True
        )
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_kernel_runs_on_the_current_stream():
    inputs = on_gpu(images(channels=64, height=256, width=256))
    operator = torch.ops.paifuser.depthwise
    expected = operator(*inputs)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        late = inputs[0] * 0
        torch.cuda._sleep(20_000_000)
        late += inputs[0]
        output = operator(late, *inputs[1:])
    stream.synchronize()
    assert output.equal(expected)


def test_a_cuda_graph_replays_the_kernel():
    x, *rest = on_gpu(images())
    operator = partial(torch.ops.paifuser.depthwise)
    operator(x, *rest)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = operator(x, *rest)
    x.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert output.equal(operator(x, *rest))


def test_a_launch_never_synchronizes():
    inputs = on_gpu(windows())
    torch.ops.paifuser.window_attention(*inputs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.ops.paifuser.window_attention(*inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_operator_compiles_in_a_full_graph():
    inputs = on_gpu(windows())
    operator = torch.ops.paifuser.window_attention
    compiled = torch.compile(lambda qkv, *rest: operator(qkv * 1, *rest) * 2, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), operator(*inputs) * 2)

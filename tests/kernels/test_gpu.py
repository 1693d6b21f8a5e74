"""The same kernels on a GPU: functions against PTX's tables, numbers against float64, streams,
graphs, and a full graph compiled.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from paifuser_lab.bench.kernels.cases import unwritten
from paifuser_lab.kernels import attend_to_blocks, choose_blocks
from paifuser_lab.kernels.runners import CupyRunner
from tests.support.cuda_on_cpu.emulator import HERE
from tests.support.kernel_probes import CHECKS
from tests.support.kernel_table import DEPTHWISE, ROWS, WINDOW_ATTENTION

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


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_functions_do_what_ptx_specifies(check):
    source = (HERE / "probe.cu").read_text(encoding="utf-8")
    check(CupyRunner(lambda kernel: source), "cuda")


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, row in ROWS.items() for case in row.cases]
)
def test_every_kernel_equals_float64(name, case):
    for options in ROWS[name].on_gpu:
        inputs = ROWS[name].inputs(**case | options)
        assert ROWS[name].error(output_of(name, inputs), inputs) <= 1, options


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.kernel.tiles.choices])
def test_every_tile_equals_float64(name):
    row, run = ROWS[name], CupyRunner()
    for tiled in row.every_tile[:2]:
        inputs = row.inputs(**tiled.options | row.on_gpu[-1])
        moved = on_gpu(inputs)
        for tile in row.kernel.tiles:
            out = unwritten(row.kernel, moved)
            run(row.kernel.plan(out, *moved, tile=tile))
            assert row.error(out.cpu(), inputs) <= 1, tile


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
    inputs = on_gpu(DEPTHWISE.inputs(shape=(1, 64, 256, 256)))
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
    x, *rest = on_gpu(DEPTHWISE.inputs())
    operator = torch.ops.paifuser.depthwise
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
    inputs = on_gpu(WINDOW_ATTENTION.inputs())
    torch.ops.paifuser.window_attention(*inputs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.ops.paifuser.window_attention(*inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_operator_compiles_in_a_full_graph():
    inputs = on_gpu(WINDOW_ATTENTION.inputs())
    operator = torch.ops.paifuser.window_attention
    compiled = torch.compile(lambda qkv, *rest: operator(qkv * 1, *rest) * 2, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), operator(*inputs) * 2)

"""The emulator of a GPU: its functions do what PTX specifies, and it stops kernels that would hang
a GPU or corrupt its memory.
"""

from __future__ import annotations

import pytest
import torch

from paifuser_lab.kernels.kernel import Launch
from tests.support.cuda_on_cpu.emulator import HERE, EmulationError, Emulator
from tests.support.kernel_checks import built, needs_compiler
from tests.support.kernel_probes import CHECKS, ENTRIES

pytestmark = needs_compiler
HEAD = '#include "common.cuh"\n'


def run(
    source: str,
    *arguments: torch.Tensor,
    block: int = 32,
    shared_bytes: int = 0,
    check: str = "none",
    order: int = 0,
) -> None:
    launch = Launch("made_up", "kernel<0>", (1, 1, 1), (block, 1, 1), shared_bytes, arguments)
    built(HEAD + "template <int> " + source, ("kernel<0>",), check, order)(launch)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("order", [0, 1, 7])
def test_the_functions_do_what_ptx_specifies(check, order):
    check(built((HERE / "probe.cu").read_text(), ENTRIES, "none", order))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("if (threadIdx.x < 20) __syncthreads();", "deadlock in block .* 20 of 32 threads"),
        (
            "if (threadIdx.x < 20) __syncwarp(); else __ballot_sync(~0u, 1);",
            "comes to __ballot_sync .* its warp waits at __syncwarp",
        ),
        ("__shfl_sync(0xffu, 1, 9);", "not in its own mask|which is not in the mask"),
        (
            "if (threadIdx.x < 8) __shfl_sync(0xffu, 1, 9, 32);",
            "reads lane 9, which is not in the mask",
        ),
        ("copy_async(out + 1, out, true);", "not a multiple of 16 bytes"),
        ("*reinterpret_cast<volatile int*>(16) = 1;", "ended with signal 11"),
    ],
)
def test_a_kernel_that_would_hang_a_gpu_is_stopped(body, words):
    with pytest.raises(EmulationError, match=f"(?s){words}"):
        run(f"__global__ void kernel(float* out) {{ {body} }}", torch.zeros(32))


def test_shared_memory_is_not_a_number_until_it_is_written():
    out = torch.zeros(32)
    source = """struct Tile { float x[32]; };
    template <int> __global__ void kernel(float* out) {
        SHARED(Tile, tile); out[threadIdx.x] = tile.x[threadIdx.x]; }"""
    built(HEAD + source, ("kernel<0>",))(
        Launch("made_up", "kernel<0>", (1, 1, 1), (32, 1, 1), 128, (out,))
    )
    assert out.isnan().all()


def test_only_a_warps_barrier_orders_its_memory():
    exchange = """struct Tile {{ float x[32]; }};
    template <int> __global__ void kernel(float* out) {{
      SHARED(Tile, tile);
      tile.x[threadIdx.x] = threadIdx.x;
      {between}
      out[threadIdx.x] = tile.x[31 - threadIdx.x];
    }}"""
    launch = Launch("made_up", "kernel<0>", (1, 1, 1), (32, 1, 1), 128, (torch.zeros(32),))
    built(HEAD + exchange.format(between="__syncwarp();"), ("kernel<0>",), "races")(launch)
    with pytest.raises(EmulationError, match="data race"):
        built(HEAD + exchange.format(between="__ballot_sync(~0u, 1);"), ("kernel<0>",), "races")(
            launch
        )


def test_a_write_behind_shared_memory_is_caught():
    source = """struct Tile { float x[32]; };
    template <int> __global__ void kernel(float* out) {
        SHARED(Tile, tile); tile.x[threadIdx.x + 1] = out[0]; }"""
    launch = Launch("made_up", "kernel<0>", (1, 1, 1), (32, 1, 1), 128, (torch.zeros(1),))
    with pytest.raises(EmulationError, match="heap-buffer-overflow"):
        built(HEAD + source, ("kernel<0>",), "bounds")(launch)


def test_the_order_of_threads_may_be_changed():
    source = "__global__ void kernel(int* out) { out[threadIdx.x] = out[64]++; }"
    outputs = []
    for order in (0, 1, 7):
        out = torch.zeros(65, dtype=torch.int32)
        run(source, out, block=64, order=order)
        outputs.append(out[:64].tolist())
    assert outputs[0] == list(range(64))
    assert outputs[1] == list(reversed(range(64)))
    assert sorted(outputs[2]) == outputs[0] != outputs[2]


def test_a_compile_error_names_the_line():
    with pytest.raises(EmulationError, match=r"the\.cu:2:.*nonsense"):
        Emulator("\nnonsense", ())

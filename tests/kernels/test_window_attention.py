"""Window attention: the CUDA source, run on the CPU, against float64, torch's own path and Swin's
model.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import attend_windows
from paifuser_lab.kernels.launch import DeclinedError
from paifuser_lab.kernels.window_attention import HEADS, KERNEL, WINDOWS, compose
from paifuser_lab.zoo.swin import Block
from tests.support.cuda_on_cpu.emulator import source_of
from tests.support.kernel_cases.window_attention import ENTRIES, TYPES, assert_exact, inputs_of
from tests.support.kernel_checks import (
    built,
    check_caught,
    check_clean,
    check_operator,
    check_tiles,
    emulated,
    emulator_for_cpu,
    exact,
    needs_compiler,
    planned,
)


@needs_compiler
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_kernel_equals_float64_at_every_shape(data):
    window, size, kind = (
        data.draw(st.sampled_from(WINDOWS)),
        data.draw(st.sampled_from(HEADS)),
        data.draw(st.sampled_from([*TYPES])),
    )
    shift = data.draw(st.tuples(*[st.integers(0, window - 1)] * 2))
    counts = {name: data.draw(st.integers(1, 2)) for name in ("batch", "down", "across")} | {
        "heads": data.draw(st.integers(1, 3))
    }
    inputs = inputs_of(TYPES[kind], window=window, size=size, shift=shift, **counts)
    assert_exact(emulated(KERNEL, ENTRIES, inputs, order=data.draw(st.integers(0, 9))), inputs)


@needs_compiler
@pytest.mark.parametrize(("window", "size"), [(7, 32), (12, 64)])
def test_every_tile_gives_the_same_output(window, size):
    torch.manual_seed(0)
    check_tiles(KERNEL, inputs_of(window=window, size=size, across=1), KERNEL.tiles, assert_exact)


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
@pytest.mark.parametrize("sizes", [(2, 0, 24), (4, 1, 0), (1, 1, 40)])
def test_the_sanitizers_find_nothing_in_other_tiles(sizes, check):
    tile = dict(zip(KERNEL.tiles.choices, sizes, strict=True))
    check_clean(KERNEL, inputs_of(across=1, heads=1), check, tile=tile)


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
@pytest.mark.parametrize("window", [7, 8])
def test_the_sanitizers_find_nothing(window, check):
    check_clean(KERNEL, inputs_of(window=window, across=1), check)


@needs_compiler
@pytest.mark.parametrize(
    ("check", "text", "planted", "words"),
    [
        ("races", "__syncthreads();", "", "data race.*the.cu"),
        ("races", "if (row < W::TOKENS)", "", "data race.*the.cu"),
        (
            "bounds",
            "* heads + head) * HEAD, mixed",
            "* heads + head + 1) * HEAD, mixed",
            "heap-buffer-overflow.*the.cu",
        ),
        ("none", "await_copies<IS_LATE ? 1 : 0>();", "", "never waited for"),
        ("none", "__syncthreads();", "if (warp < 3) __syncthreads();", "deadlock"),
        (
            "none",
            "int token[ROWS];",
            "int token[ROWS + 16];",
            "bytes of shared memory, the kernel takes",
        ),
        (
            "none",
            "float scale)",
            "double scale)",
            "argument 8 .* is 8 bytes wide, the launch gives 4",
        ),
    ],
)
def test_planted_mistakes_are_caught(check, text, planted, words):
    check_caught(
        KERNEL, inputs_of(down=1, across=1, shift=(0, 0)), check, text, planted, f"(?s){words}"
    )


@needs_compiler
@pytest.mark.parametrize(
    ("check", "text", "words"),
    [
        ("none", "    await_copies<0>();", "never waited for"),
        (
            "races",
            "__syncthreads();                                     // of values",
            "data race.*the.cu",
        ),
    ],
)
def test_values_that_are_read_too_early_are_caught(check, text, words):
    tile = {**KERNEL.tiles.default, "late": 1}
    check_caught(KERNEL, inputs_of(down=1, across=1), check, text, "//", f"(?s){words}", tile=tile)


@needs_compiler
def test_a_kernel_without_barriers_is_detected():
    inputs = inputs_of()
    out, launch = planned(KERNEL, inputs)
    built(source_of(KERNEL.name).replace("__syncthreads();", ""), (launch.entry,))(launch)
    assert out.isnan().any()


@needs_compiler
def test_nan_and_infinity_propagate_as_in_torch():
    qkv, *rest = inputs_of()
    qkv[0, 0, 0, 2, 0, 3] = float("nan")  # a value: every token of its window and head, one element
    qkv[0, 0, 7, 0, 1, 0] = float("nan")  # a query: its own output alone
    qkv[0, 7, 7, 1, 0, 5] = float("inf")  # a key
    inputs = (qkv, *rest[:2], [0, 0], rest[3])
    output = emulated(KERNEL, ENTRIES, inputs)
    assert output.isnan().equal(exact(KERNEL, inputs).isnan())
    assert 0 < output.isnan().sum() < output.numel() / 2


@needs_compiler
def test_the_operator_is_sound():
    check_operator(KERNEL, ENTRIES, inputs_of(heads=1))


@needs_compiler
def test_permuted_and_misaligned_inputs_are_accepted():
    qkv, bias, window, shift, scale = inputs_of()
    expected = compose(qkv.double(), bias.double(), window, shift, scale)
    permuted = qkv.permute(3, 0, 1, 2, 4, 5).contiguous().permute(1, 2, 3, 0, 4, 5)
    misaligned = torch.cat([qkv.new_zeros(1), qkv.flatten()])[1:].view(qkv.shape)
    assert misaligned.data_ptr() % 16 == 2
    with emulator_for_cpu(KERNEL, ENTRIES) as launches:
        for variant in (permuted, misaligned):
            output = attend_windows(variant, bias, window=window, shift=(3, 3))
            torch.testing.assert_close(output.double(), expected, rtol=0, atol=0.05)
            assert output.is_contiguous()
    assert len(launches) == 2


def test_the_composition_equals_the_models_attention():
    torch.manual_seed(1)
    block = Block(64, 2, side=14, window=7, is_shifted=True).eval()
    x = torch.randn(2, 14, 14, 64)
    attention = block.attention
    with torch.no_grad():
        qkv = attention.qkv(x).unflatten(-1, (3, 2, 32))
        output = attention.project(
            attend_windows(qkv, attention.position_bias.t(), window=7, shift=(3, 3))
        )
        torch.testing.assert_close(output, block._attend(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": torch.float32}, "bfloat16, torch.float16, not torch.float32"),
        ({"window": 5, "shift": (1, 1)}, "a window of 12, 7, 8, not 5"),
        ({"size": 48}, "a head of 32, 64, not 48"),
    ],
)
def test_unsupported_inputs_are_declined(change, words):
    inputs = inputs_of(**change)
    with pytest.raises(DeclinedError, match=words):
        KERNEL.plan(KERNEL.empty(*inputs), *inputs)


@pytest.mark.parametrize(
    ("index", "value", "words"),
    [
        (0, torch.zeros(1, 14, 14, 192), "takes qkv as"),
        (0, torch.zeros(1, 14, 15, 3, 2, 32), "cannot cut an image of 14 × 15 into windows of 7"),
        (1, torch.zeros(169, 2), "a bias of 2 heads × 169 distances"),
        (3, [7, 0], "two shifts from 0 to 6"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(index, value, words):
    inputs = list(inputs_of())
    inputs[index] = value
    with pytest.raises(KernelError, match=words):
        torch.ops.paifuser.window_attention(*inputs)

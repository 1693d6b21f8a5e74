"""A linear layer and what follows it: the CUDA source, run on the CPU, against float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import convolve_pointwise, project
from paifuser_lab.kernels.launch import DeclinedError
from paifuser_lab.kernels.pointwise import KERNEL
from tests.support.cuda_on_cpu.emulator import source_of
from tests.support.kernel_cases.pointwise import CASES, ENTRIES, assert_exact, inputs_of
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
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_kernel_equals_float64_at_every_shape(data):
    kind, wide, activation = data.draw(st.sampled_from(CASES))
    inputs = inputs_of(
        kind,
        activation,
        rows=data.draw(st.sampled_from([(1,), (3, 5), (127,), (129,), (2, 3, 11)])),
        depth=8 * data.draw(st.integers(1, 21)),
        columns=8 * data.draw(st.integers(1, 8) if wide == 64 else st.integers(9, 20)),
        has_bias=data.draw(st.booleans()),
        has_residual=data.draw(st.booleans()),
    )
    assert_exact(emulated(KERNEL, ENTRIES, inputs, order=data.draw(st.integers(0, 9))), inputs)


@needs_compiler
@pytest.mark.parametrize("rows", KERNEL.tiles.choices["rows"])
def test_every_tile_gives_the_same_output(rows):
    torch.manual_seed(0)
    tiles = [tile for tile in KERNEL.tiles if tile["rows"] == rows]
    check_tiles(
        KERNEL,
        inputs_of(activation="relu", rows=(70,), depth=104, columns=136),
        tiles,
        assert_exact,
    )


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
def test_the_sanitizers_find_nothing(check):
    check_clean(KERNEL, inputs_of(depth=136), check)


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
@pytest.mark.parametrize(
    "sizes", [(256, 64, 32, 2, 2, 2), (64, 128, 64, 3, 2, 2), (128, 256, 32, 4, 4, 1)]
)
def test_the_sanitizers_find_nothing_in_other_tiles(sizes, check):
    tile = dict(zip(KERNEL.tiles.choices, sizes, strict=True))
    check_clean(KERNEL, inputs_of(rows=(70,), depth=136), check, tile=tile)


@needs_compiler
@pytest.mark.parametrize(
    ("check", "text", "planted", "words"),
    [
        (
            "races",
            "__syncthreads();                                     // all copies",
            "// all copies",
            "data race.*the.cu",
        ),
        (
            "bounds",
            "line + more < rows_left",
            "true",
            "heap-buffer-overflow.*the.cu|heap-buffer-overflow",
        ),
        (
            "bounds",
            "const bool is_inside = start + chunk < depth",
            "const bool is_inside = true",
            "heap-buffer-overflow",
        ),
        ("bounds", "? rows_left : 0", "? 128 : 0", "heap-buffer-overflow"),
        (
            "none",
            "OUT_PITCH = COLUMNS + 8",
            "OUT_PITCH = COLUMNS + 16",
            "bytes of shared memory, the kernel takes",
        ),
    ],
)
def test_planted_mistakes_are_caught(check, text, planted, words):
    check_caught(KERNEL, inputs_of(depth=136), check, text, planted, f"(?s){words}")


@needs_compiler
@pytest.mark.parametrize(
    ("check", "text", "words"),
    [
        (
            "races",
            "__syncthreads();                                       // of residual",
            "data race.*the.cu",
        ),
        ("none", "await_copies<0>();", "never waited for"),
    ],
)
def test_a_residual_that_is_read_too_early_is_caught(check, text, words):
    check_caught(KERNEL, inputs_of(depth=24), check, text, "//", f"(?s){words}")


@needs_compiler
def test_a_stage_that_is_not_waited_for_gives_nan():
    inputs = inputs_of(depth=136)
    text = "await_copies<STAGES - 2>();"
    assert text in source_of("pointwise")
    source = source_of("pointwise").replace(text, "await_copies<STAGES - 1>();")
    out, launch = planned(KERNEL, inputs)
    built(source, (launch.entry,))(launch)
    assert out.isnan().any()


@needs_compiler
def test_the_operator_is_sound():
    check_operator(KERNEL, ENTRIES, inputs_of("float16", "relu"))


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_nan_propagates_through_every_activation(case):
    kind, wide, activation = case
    inputs = inputs_of(kind, activation, rows=(20,), columns=wide)
    inputs[0][3, 5] = inputs[2][7] = inputs[3][11, 9] = float("nan")
    output = emulated(KERNEL, ENTRIES, inputs)
    assert output.isnan().equal(exact(KERNEL, inputs).isnan())
    assert output.isnan().sum() == wide + 20 - 1 + 1


@needs_compiler
def test_permuted_and_misaligned_rows_are_accepted():
    inputs = inputs_of("bfloat16", "silu", columns=64)
    x, weight, bias, residual, _ = inputs
    misaligned = torch.cat([x.new_zeros(3), x.flatten()])[3:].view_as(x)
    assert misaligned.data_ptr() % 16 == 6
    with emulator_for_cpu(KERNEL, ENTRIES) as launches:
        for rows in (x, misaligned, x.t().contiguous().t()):
            assert_exact(
                project(rows, weight.t().contiguous().t(), bias, residual, activation="silu"),
                inputs,
            )
    assert len(launches) == 3


@needs_compiler
def test_images_are_convolved_channels_last():
    x, weight = torch.randn(2, 16, 5, 7).bfloat16(), torch.randn(24, 16, 1, 1).bfloat16() / 4
    residual = torch.randn(2, 24, 5, 7).bfloat16()
    with emulator_for_cpu(KERNEL, ENTRIES) as launches:
        output = convolve_pointwise(x, weight, None, residual, activation="silu")
    assert launches
    assert output.is_contiguous(memory_format=torch.channels_last)
    expected = F.silu(F.conv2d(x.double(), weight.double()) + residual.double())
    torch.testing.assert_close(
        output.double(), expected, rtol=0.51 * torch.finfo(torch.bfloat16).eps, atol=1e-4
    )


def test_unsupported_inputs_are_declined():
    for inputs, words in [
        (inputs_of(depth=12), "multiples of eight columns, not 12 in and 72 out"),
        (inputs_of(columns=20), "multiples of eight columns, not 72 in and 20 out"),
        ((torch.randn(2, 72), *inputs_of(has_residual=False)[1:]), "tensors of one dtype"),
    ]:
        with pytest.raises(DeclinedError, match=words):
            KERNEL.plan(KERNEL.empty(*inputs), *inputs)


@pytest.mark.parametrize(
    ("index", "value", "words"),
    [
        (0, torch.zeros(150, 64), r"takes \(…, in\) and a weight of \(out, in\)"),
        (1, torch.zeros(72, 72, 1), r"takes \(…, in\) and a weight of \(out, in\)"),
        (2, torch.zeros(8), "a bias for each of 72 output columns"),
        (3, torch.zeros(150, 64), "a residual of .* the shape of its output"),
        (4, "mish", "pointwise takes the activations none, relu.* not 'mish'"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(index, value, words):
    inputs = list(inputs_of())
    inputs[index] = value
    with pytest.raises(KernelError, match=words):
        torch.ops.paifuser.pointwise(*inputs)


def test_a_weight_larger_than_1x1_is_refused():
    with pytest.raises(KernelError, match="1×1 convolution takes four dimensions"):
        convolve_pointwise(torch.zeros(1, 8, 4, 4), torch.zeros(8, 8, 3, 3))

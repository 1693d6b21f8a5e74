"""A linear layer on int8: the CUDA source, run on the CPU, against exact sums."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import QuantParams, project_int8
from paifuser_lab.kernels.launch import DeclinedError
from paifuser_lab.kernels.pointwise_int8 import KERNEL, float_output
from paifuser_lab.kernels.quantized import Int8Inputs, exact_dtype, int8_entry
from tests.support.cuda_on_cpu.emulator import source_of
from tests.support.kernel_cases.pointwise_int8 import CASES, ENTRIES, inputs_of
from tests.support.kernel_checks import (
    built,
    check_caught,
    check_clean,
    check_operator,
    emulated,
    emulator_for_cpu,
    needs_compiler,
    planned,
)
from tests.support.quantized_kernels import (
    KINDS,
    assert_equal,
    assert_rounded_once,
    steps,
)


@needs_compiler
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_kernel_rounds_the_exact_sums_at_every_shape(data):
    inputs = inputs_of(
        *data.draw(st.sampled_from(CASES)),
        rows=data.draw(st.sampled_from([(1,), (3, 5), (127,), (129,), (2, 3, 11)])),
        depth=16 * data.draw(st.integers(1, 17)),
        wide=16 * data.draw(st.integers(1, 10)),
        bias=data.draw(st.booleans()),
        residual=data.draw(st.booleans()),
        zero=data.draw(st.booleans()),
    )
    assert_rounded_once(
        emulated(KERNEL, ENTRIES, inputs, order=data.draw(st.integers(0, 9))), inputs, float_output
    )


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ["none", "relu", "relu6"])
def test_where_fp32_is_exact_every_output_equals_torchs(kind, activation):
    for depth in (16, 208):
        inputs = inputs_of(kind, kind, activation, depth=depth, wide=144, power=True)
        assert_equal(emulated(KERNEL, ENTRIES, inputs), inputs, KERNEL)


@needs_compiler
def test_halves_round_to_even_and_large_values_saturate():
    x = (
        torch.arange(-128, 128, dtype=torch.int8)[:, None].expand(256, 16)
        * torch.eye(16, dtype=torch.int8)[0]
    )
    weight = torch.ones(16, 16, dtype=torch.int8)
    for scale, zero in ((0.5, 1), (4.0, 0), (0.5, -128)):
        inputs = (
            x.contiguous(),
            0,
            weight,
            torch.full((16,), scale),
            None,
            None,
            None,
            1.0,
            0,
            1.0,
            zero,
            torch.int8,
            "none",
        )
        expected = (torch.arange(-128, 128) * scale).round().add(zero).clamp(-128, 127)
        assert emulated(KERNEL, ENTRIES, inputs)[:, 3].equal(expected.to(torch.int8))


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
def test_the_sanitizers_find_nothing(check):
    check_clean(KERNEL, inputs_of(depth=208), check)


@needs_compiler
def test_the_sanitizers_find_nothing_with_a_float_output():
    check_clean(KERNEL, inputs_of("int8", "float", depth=80), "bounds")


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
            "races",
            "__syncthreads();\n#pragma unroll\n    for (int more",
            "\n#pragma unroll\n    for (int more",
            "data race.*the.cu",
        ),
        ("bounds", "line + more < rows_left", "true", "heap-buffer-overflow"),
        ("bounds", "is_inside = start + chunk < depth", "is_inside = true", "heap-buffer-overflow"),
        (
            "bounds",
            "const bool is_there = column < columns",
            "const bool is_there = true",
            "heap-buffer-overflow",
        ),
        (
            "none",
            "OUT_PITCH = COLUMNS + 16",
            "OUT_PITCH = COLUMNS + 32",
            "bytes of shared memory, the kernel takes",
        ),
    ],
)
def test_planted_mistakes_are_caught(check, text, planted, words):
    check_caught(KERNEL, inputs_of(depth=80), check, text, planted, f"(?s){words}")


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
    check_caught(KERNEL, inputs_of(depth=48), check, text, "//", f"(?s){words}")


@needs_compiler
@pytest.mark.parametrize(
    ("text", "planted"),
    [
        ("await_copies<P::STAGES - 2>();", "await_copies<P::STAGES - 1>();"),
        ("made[eight % 2 * 2 + 1] + shift.y", "made[eight % 2 * 2 + 1]"),
        ("above(more, 1) - base", "above(more, 1) - ABOVE"),
        ("k + lane / 8 % 2 * 16", "k + lane / 8 % 2 * 32"),
    ],
)
def test_planted_errors_of_arithmetic_are_noticed(text, planted):
    inputs = inputs_of(depth=208)
    out, launch = planned(KERNEL, inputs)
    built(source_of("pointwise_int8").replace(text, planted, 1), (launch.entry,))(launch)
    assert text in source_of("pointwise_int8")
    with pytest.raises(AssertionError):
        assert_rounded_once(out, inputs, float_output)


@needs_compiler
@pytest.mark.parametrize("out", ["uint8", "bfloat16"])
def test_the_operator_is_sound(out):
    check_operator(
        KERNEL, ENTRIES, inputs_of("uint8", out, "relu" if out == "uint8" else CASES[12][2])
    )


@needs_compiler
def test_permuted_and_misaligned_rows_are_accepted_and_missing_sums_are_computed():
    inputs = inputs_of("uint8", "uint8", wide=64)
    x, zero, weight, scales, _, bias, residual = inputs[:7]
    misaligned = torch.cat([x.new_zeros(3), x.flatten()])[3:].view_as(x)
    assert misaligned.data_ptr() % 16 == 3
    options = {
        "zero": zero,
        "residual_params": QuantParams(0.013, 7),
        "into": QuantParams(0.0371, 3),
    }
    with emulator_for_cpu(KERNEL, ENTRIES) as launches:
        for rows in (x, misaligned, x.t().contiguous().t()):
            output = project_int8(
                rows, weight.t().contiguous().t(), scales, bias, residual, **options
            )
            assert_rounded_once(output, inputs, float_output)
    assert len(launches) == 3


def test_unsupported_inputs_are_declined_and_computed_by_torch():
    doubled = list(inputs_of())
    doubled[3] = doubled[3].double()
    for inputs, words in [
        (inputs_of(depth=24), "multiples of sixteen columns, not 24 in and 80 out"),
        (inputs_of(wide=24), "multiples of sixteen columns, not 80 in and 24 out"),
        (tuple(doubled), "scales and bias in torch.float32"),
    ]:
        with pytest.raises(DeclinedError, match=words):
            KERNEL.plan(KERNEL.empty(*inputs), *inputs)
        with (
            emulator_for_cpu(KERNEL, ENTRIES),
            pytest.warns(UserWarning, match="pointwise_int8 runs in torch") as warned,
        ):
            twice = [torch.ops.paifuser.pointwise_int8(*inputs) for _ in range(2)]
        assert len(warned) == 1 and twice[0].equal(twice[1])
        assert_rounded_once(twice[0], inputs, float_output)


@pytest.mark.parametrize(
    ("index", "value", "words"),
    [
        (
            0,
            torch.zeros(150, 80),
            r"x in torch.uint8, torch.int8 and a weight in torch.int8, not torch.float32",
        ),
        (
            0,
            torch.zeros(150, 64, dtype=torch.uint8),
            r"takes \(…, in\) and a weight of \(out, in\)",
        ),
        (2, torch.zeros(80, 80, dtype=torch.uint8), "a weight in torch.int8, not .* torch.uint8"),
        (3, torch.ones(8), "scales for each of 80 channels"),
        (4, torch.ones(80), "sums for each of 80 channels, not .* torch.float32"),
        (5, torch.zeros(1, 80), "bias for each of 80 channels"),
        (6, torch.zeros(150, 80), "a residual of .* in torch.uint8"),
        (1, -3, "zero points within torch.uint8, from 0 to 255, not -3"),
        (9, 0.0, "an output scale above 0"),
        (11, torch.int8, "quantized as x, in torch.uint8, or floats, not torch.int8"),
        (12, "mish", "pointwise_int8 takes the activations none, relu.* not 'mish'"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(index, value, words):
    inputs = list(inputs_of())
    inputs[index] = value
    with pytest.raises(KernelError, match=words):
        torch.ops.paifuser.pointwise_int8(*inputs)


def test_a_residual_needs_its_quantization():
    x, weight = steps("uint8", 4, 16), steps("int8", 16, 16)
    with pytest.raises(KernelError, match="pass both or neither"):
        project_int8(x, weight, torch.ones(16), residual=x)


def test_sums_are_exact_however_deep():
    assert exact_dtype(500) == torch.float32 and exact_dtype(600) == torch.float64
    x, weight = (
        torch.full((1, 2064), 255, dtype=torch.uint8),
        torch.full((16, 2064), 127, dtype=torch.int8),
    )
    weight[:, 0] = 126
    output = project_int8(x, weight, torch.ones(16, dtype=torch.float64), into=torch.float32)
    assert (
        output.double()[0, 0]
        == torch.tensor(255.0 * 127 * 2064 - 255, dtype=torch.float32).double()
    )


def test_a_clamp_needs_no_entry_of_its_own():
    def entry(out, activation):
        return int8_entry("p", Int8Inputs(*inputs_of("uint8", out, activation)), 64, is_last=True)

    assert entry("uint8", "relu6") == entry("uint8", "relu") == "p<uint8, uint8, 64, NONE>"
    assert entry("bfloat16", "relu") == "p<uint8, bfloat16, 64, RELU>"

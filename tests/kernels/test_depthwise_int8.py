"""Depthwise convolution on int8: the CUDA source, run on the CPU, against exact sums."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import QuantParams, convolve_depthwise_int8
from paifuser_lab.kernels.depthwise_int8 import KERNEL, SIDES, STRIDES, float_output
from paifuser_lab.kernels.launch import DeclinedError
from tests.support.cuda_on_cpu.emulator import source_of
from tests.support.kernel_cases.depthwise_int8 import CASES, ENTRIES, inputs_of
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
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_kernel_rounds_the_exact_sums_at_every_shape(data):
    case = data.draw(st.sampled_from(CASES))
    side = case[2]
    padding = data.draw(st.integers(0, side // 2 + 1))
    smallest = max(1, side - 2 * padding)
    inputs = inputs_of(
        *case,
        padding=padding,
        batch=data.draw(st.integers(1, 2)),
        channels=16 * data.draw(st.integers(1, 9)),
        height=data.draw(st.integers(smallest, smallest + 18)),
        width=data.draw(st.integers(smallest, smallest + 18)),
        bias=data.draw(st.booleans()),
        residual=data.draw(st.booleans()),
        zero=data.draw(st.booleans()),
    )
    assert_rounded_once(
        emulated(KERNEL, ENTRIES, inputs, order=data.draw(st.integers(0, 9))), inputs, float_output
    )


@needs_compiler
@pytest.mark.parametrize(
    "case", [case for case in CASES if case[1] in KINDS and case[4] in ("none", "relu", "relu6")]
)
def test_where_fp32_is_exact_every_output_equals_torchs(case):
    for residual in (False, True):
        inputs = inputs_of(*case, power=True, residual=residual)
        assert_equal(emulated(KERNEL, ENTRIES, inputs), inputs, KERNEL)


@needs_compiler
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stride", STRIDES)
def test_each_tap_is_where_it_belongs(side, stride):
    case = next(case for case in CASES if case[2:4] == (side, stride))
    x, *rest = inputs_of(*case, channels=16, zero=False, bias=False)
    weight = torch.zeros(16, 1, side, side, dtype=torch.int8)
    for channel in range(16):
        weight[channel, 0, (3 * channel) % side, (5 * channel + channel // side) % side] = (
            1 + channel
        )
    inputs = (x, rest[0], weight, torch.full((16,), 2.0**-6), *rest[3:])
    assert_rounded_once(emulated(KERNEL, ENTRIES, inputs), inputs, float_output)


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
@pytest.mark.parametrize(("side", "stride"), [(3, 2), (7, 1)])
def test_the_sanitizers_find_nothing(side, stride, check):
    check_clean(KERNEL, inputs_of("int8", "int8", side, stride, residual=True), check)


@needs_compiler
@pytest.mark.parametrize(
    ("check", "text", "planted", "words"),
    [
        ("races", "__syncthreads();", "", "data race.*the.cu"),
        (
            "races",
            "i / 4 * D::FOUR + i % 4 * 16);",
            "i / 4 * D::FOUR + (i + 1) % 4 * 16);",
            "data race.*the.cu",
        ),
        ("bounds", "if (left + o < out_width)", "", "heap-buffer-overflow.*the.cu"),
        (
            "bounds",
            "has_row = first_channel + chunk < channels &&",
            "has_row =",
            "heap-buffer-overflow",
        ),
        (
            "bounds",
            "if (channel < channels && tap + b < KERNEL)",
            "if (tap + b < KERNEL)",
            "heap-buffer-overflow",
        ),
        ("none", "await_copies<0>();", "", "never waited for"),
        (
            "none",
            "TAPS = (KERNEL + 3) / 4;",
            "TAPS = (KERNEL + 7) / 4;",
            "bytes of shared memory, the kernel takes",
        ),
    ],
)
def test_planted_mistakes_are_caught(check, text, planted, words):
    check_caught(KERNEL, inputs_of(), check, text, planted, f"(?s){words}")


@needs_compiler
@pytest.mark.parametrize(
    ("text", "planted"),
    [
        ("make_uint4(zeros, zeros, zeros, zeros)", "make_uint4(0, 0, 0, 0)"),
        ("0x7654 - 0x1111 * late", "0x7654"),
        ("sum[o][c] + shift[c]", "sum[o][c]"),
        ("above(more, c) - base", "above(more, c) - ABOVE"),
        ("slot % 4 * 16 + slot / 4 * 4", "slot * 4"),
    ],
)
def test_planted_errors_of_arithmetic_are_noticed(text, planted):
    inputs = inputs_of(side=5, residual=True)
    out, launch = planned(KERNEL, inputs)
    assert text in source_of("depthwise_int8")
    built(source_of("depthwise_int8").replace(text, planted, 1), (launch.entry,))(launch)
    with pytest.raises(AssertionError):
        assert_rounded_once(out, inputs, float_output)


@needs_compiler
@pytest.mark.parametrize("out", ["uint8", "bfloat16"])
def test_the_operator_is_sound(out):
    case = next(case for case in CASES if case[:2] == ("uint8", out))
    check_operator(KERNEL, ENTRIES, inputs_of(*case, residual=True))


@needs_compiler
def test_permuted_and_misaligned_images_are_accepted_and_missing_sums_are_computed():
    inputs = inputs_of()
    x, zero, weight, scales, _, bias = inputs[:6]
    channels_last = x.to(memory_format=torch.channels_last)
    shifted = torch.cat([x.new_zeros(3), channels_last.permute(0, 2, 3, 1).flatten()])[3:]
    misaligned = shifted.view(1, 11, 13, 80).permute(0, 3, 1, 2)
    assert misaligned.data_ptr() % 16 == 3
    with emulator_for_cpu(KERNEL, ENTRIES) as launches:
        for image in (x, channels_last, misaligned, x.transpose(2, 3).contiguous().transpose(2, 3)):
            output = convolve_depthwise_int8(
                image, weight, scales, bias, zero=zero, into=QuantParams(0.0371, 3)
            )
            assert_rounded_once(output, inputs, float_output)
            assert output.is_contiguous(memory_format=torch.channels_last)
    assert len(launches) == 4


def test_unsupported_inputs_are_declined_and_computed_by_torch():
    for inputs, words in [
        (inputs_of(channels=24), "multiples of sixteen channels, not 24"),
        ((*inputs_of()[:13], 3, 1), "a stride of 1, 2, not 3"),
        (inputs_of(side=4), "a side of 3, 5, 7, 9, not 4"),
    ]:
        with pytest.raises(DeclinedError, match=words):
            KERNEL.plan(KERNEL.empty(*inputs), *inputs)
        with (
            emulator_for_cpu(KERNEL, ENTRIES),
            pytest.warns(UserWarning, match="depthwise_int8 runs in torch") as warned,
        ):
            twice = [torch.ops.paifuser.depthwise_int8(*inputs) for _ in range(2)]
        assert len(warned) == 1 and twice[0].equal(twice[1])
        assert_rounded_once(twice[0], inputs, float_output)


@pytest.mark.parametrize(
    ("index", "value", "words"),
    [
        (0, torch.zeros(8, 9, 9, dtype=torch.uint8), "takes images as"),
        (0, torch.zeros(1, 80, 9, 9), "not torch.float32 and torch.int8"),
        (2, torch.zeros(80, 1, 3, 5, dtype=torch.int8), "a square weight for each of 80 channels"),
        (3, torch.ones(8), "scales for each of 80 channels"),
        (
            6,
            torch.zeros(1, 80, 4, 4, dtype=torch.uint8),
            r"a residual of \(1, 80, 11, 13\) in torch.uint8",
        ),
        (13, 0, "a stride from 1"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(index, value, words):
    inputs = list(inputs_of())
    inputs[index] = value
    with pytest.raises(KernelError, match=words):
        torch.ops.paifuser.depthwise_int8(*inputs)


def test_an_image_too_small_is_refused():
    x, weight = steps("uint8", 1, 16, 3, 9), steps("int8", 16, 1, 5, 5)
    with pytest.raises(KernelError, match="cannot apply a kernel of side 5 to images of 3 × 9"):
        convolve_depthwise_int8(x, weight, torch.ones(16), padding=0)

"""Depthwise convolution and what follows it: the CUDA source, run on the CPU, against float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import convolve_depthwise
from paifuser_lab.kernels.depthwise import KERNEL
from paifuser_lab.kernels.launch import DeclinedError
from tests.support.kernel_cases.depthwise import (
    ACTIVATION_OF,
    CASES,
    ENTRIES,
    assert_exact,
    inputs_of,
)
from tests.support.kernel_checks import (
    check_caught,
    check_clean,
    check_operator,
    check_tiles,
    emulated,
    emulator_for_cpu,
    exact,
    needs_compiler,
)


@needs_compiler
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_kernel_equals_float64_at_every_shape(data):
    kind, side, stride = data.draw(st.sampled_from(CASES))
    padding = data.draw(st.integers(0, side // 2 + 1))
    smallest = max(1, side - 2 * padding)
    inputs = inputs_of(
        kind,
        side,
        stride,
        padding=padding,
        batch=data.draw(st.integers(1, 2)),
        channels=8 * data.draw(st.integers(1, 17)),
        height=data.draw(st.integers(smallest, smallest + 18)),
        width=data.draw(st.integers(smallest, smallest + 18)),
        has_bias=data.draw(st.booleans()),
        has_residual=data.draw(st.booleans()),
    )
    assert_exact(emulated(KERNEL, ENTRIES, inputs, order=data.draw(st.integers(0, 9))), inputs)


@needs_compiler
@pytest.mark.parametrize(("side", "stride"), [(7, 1), (5, 2)])
def test_every_tile_gives_the_same_output(side, stride):
    torch.manual_seed(0)
    inputs = inputs_of(
        side=side, stride=stride, channels=40, height=18, width=17, has_residual=True
    )
    check_tiles(KERNEL, inputs, KERNEL.tiles, assert_exact)


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
@pytest.mark.parametrize("sizes", [(4, 16, 32, 2), (16, 8, 64, 2), (8, 16, 32, 1)])
def test_the_sanitizers_find_nothing_in_other_tiles(sizes, check):
    tile = dict(zip(KERNEL.tiles.choices, sizes, strict=True))
    check_clean(KERNEL, inputs_of(has_residual=True), check, tile=tile)


@needs_compiler
@pytest.mark.parametrize("check", ["races", "bounds"])
@pytest.mark.parametrize(("side", "stride"), [(3, 2), (7, 1)])
def test_the_sanitizers_find_nothing(side, stride, check):
    check_clean(KERNEL, inputs_of(side=side, stride=stride, has_residual=True), check)


@needs_compiler
@pytest.mark.parametrize(
    ("check", "text", "planted", "words"),
    [
        ("races", "__syncthreads();", "", "data race.*the.cu"),
        ("bounds", "if (left + o < out_width)", "", "heap-buffer-overflow.*the.cu"),
        (
            "bounds",
            "has_channels = first_channel + chunk < channels",
            "has_channels = true",
            "heap-buffer-overflow",
        ),
        ("none", "await_copies<0>();", "", "never waited for"),
        (
            "none",
            "PITCH = CHANNELS + 2",
            "PITCH = CHANNELS + 4",
            "bytes of shared memory, the kernel takes",
        ),
    ],
)
def test_planted_mistakes_are_caught(check, text, planted, words):
    check_caught(KERNEL, inputs_of(), check, text, planted, f"(?s){words}")


@needs_compiler
def test_the_operator_is_sound():
    check_operator(KERNEL, ENTRIES, inputs_of("bfloat16", 7, 1, has_residual=True))


@needs_compiler
def test_not_a_number_goes_through_every_activation():
    for case, activation in ACTIVATION_OF.items():
        inputs = inputs_of(*case, channels=8)
        inputs[0][0, 3, 5, 5] = float("nan")
        output = emulated(KERNEL, ENTRIES, inputs)
        assert output.isnan().equal(exact(KERNEL, inputs).isnan()), activation
        assert output.isnan().any()


@needs_compiler
def test_permuted_and_misaligned_images_are_accepted():
    inputs = inputs_of("bfloat16", 5, 2)
    x, weight, bias = inputs[:3]
    channels_last = x.to(memory_format=torch.channels_last)
    shifted = torch.cat([x.new_zeros(3), channels_last.permute(0, 2, 3, 1).flatten()])[3:]
    misaligned = shifted.view(1, 11, 13, 72).permute(0, 3, 1, 2)
    assert misaligned.data_ptr() % 16 == 6
    with emulator_for_cpu(KERNEL, ENTRIES) as launches:
        for image in (x, channels_last, misaligned, x.transpose(2, 3).contiguous().transpose(2, 3)):
            output = convolve_depthwise(image, weight, bias, stride=2, activation=inputs[-1])
            assert_exact(output, inputs)
            assert output.is_contiguous(memory_format=torch.channels_last)
    assert len(launches) == 4


def test_unsupported_inputs_are_declined():
    for inputs, words in [
        (inputs_of(channels=12), "multiples of eight channels, not 12"),
        ((torch.randn(1, 8, 9, 9), *inputs_of(channels=8)[1:]), "tensors of one dtype"),
        ((*inputs_of()[:4], 3, 1, "relu"), "a stride of 1, 2, not 3"),
    ]:
        with pytest.raises(DeclinedError, match=words):
            KERNEL.plan(KERNEL.empty(*inputs), *inputs)


@pytest.mark.parametrize(
    ("index", "value", "words"),
    [
        (0, torch.zeros(8, 9, 9), "takes images as"),
        (1, torch.zeros(72, 1, 3, 5), "a square weight for each of 72 channels"),
        (2, torch.zeros(8), "a bias for each of 72 channels"),
        (3, torch.zeros(1, 72, 4, 4), "a residual of .* the shape of its output"),
        (4, 0, "a stride from 1"),
        (6, "mish", "takes the activations none, relu.* not 'mish'"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(index, value, words):
    inputs = list(inputs_of())
    inputs[index] = value
    with pytest.raises(KernelError, match=words):
        torch.ops.paifuser.depthwise(*inputs)


def test_an_image_too_small_is_refused():
    with pytest.raises(KernelError, match="cannot apply a kernel of side 5 to images of 3 × 9"):
        convolve_depthwise(torch.zeros(1, 8, 3, 9), torch.zeros(8, 1, 5, 5), padding=0)

"""The kernels' own functions: layers by their defaults and options, in floats and on int8."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from paifuser_lab.bench.kernels.cases import random_int8
from paifuser_lab.errors import KernelError
from paifuser_lab.kernels import (
    KERNELS,
    QuantParams,
    attend_windows,
    convolve_depthwise,
    convolve_depthwise_int8,
    convolve_pointwise,
    project_int8,
)
from paifuser_lab.kernels.depthwise import SIDES, STRIDES
from paifuser_lab.kernels.quantized import exact_dtype
from paifuser_lab.zoo.swin import Block
from tests.support.kernel_checks import emulator_for_cpu, needs_compiler
from tests.support.kernel_table import ROWS


@needs_compiler
def test_images_are_convolved_channels_last():
    x, weight = torch.randn(2, 16, 5, 7).bfloat16(), torch.randn(24, 16, 1, 1).bfloat16() / 4
    residual = torch.randn(2, 24, 5, 7).bfloat16()
    row = ROWS["pointwise"]
    with emulator_for_cpu(row.kernel, row.entries) as launches:
        output = convolve_pointwise(x, weight, None, residual, activation="silu")
    assert launches
    assert output.is_contiguous(memory_format=torch.channels_last)
    expected = F.silu(F.conv2d(x.double(), weight.double()) + residual.double())
    torch.testing.assert_close(
        output.double(), expected, rtol=0.51 * torch.finfo(torch.bfloat16).eps, atol=1e-4
    )


def test_a_weight_larger_than_1x1_is_refused():
    with pytest.raises(KernelError, match="1×1 convolution takes four dimensions"):
        convolve_pointwise(torch.zeros(1, 8, 4, 4), torch.zeros(8, 8, 3, 3))


@pytest.mark.parametrize("stride", STRIDES)
def test_the_padding_is_half_the_side_by_default(stride):
    x, weight = torch.randn(1, 16, 9, 7), torch.randn(16, 1, 5, 5)
    expected = F.relu(F.conv2d(x, weight, stride=stride, padding=2, groups=16))
    output = convolve_depthwise(x, weight, stride=stride, activation="relu")
    assert output.equal(expected)
    steps, weights = random_int8(torch.int8, *x.shape), random_int8(torch.int8, *weight.shape)
    options = {"stride": stride, "into": torch.float32}
    sums = F.conv2d(steps.float(), weights.float(), stride=stride, padding=2, groups=16)
    assert convolve_depthwise_int8(steps, weights, torch.ones(16), **options).equal(sums)


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


# int8


@needs_compiler
@pytest.mark.parametrize("name", ["depthwise_int8", "pointwise_int8"])
def test_missing_sums_of_the_weights_are_computed(name):
    row = ROWS[name]
    inputs = row.inputs(**row.cases[0])
    assert inputs[1] and inputs[4] is not None
    with emulator_for_cpu(row.kernel, row.entries) as launches:
        output = getattr(torch.ops.paifuser, name)(*inputs[:4], None, *inputs[5:])
    assert launches and row.error(output, inputs) <= 1


@needs_compiler
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stride", STRIDES)
def test_each_tap_is_where_it_belongs(side, stride):
    row = ROWS["depthwise_int8"]
    case = next(case for case in row.cases if (case["side"], case["stride"]) == (side, stride))
    inputs = row.inputs(**case, shape=(1, 16, 11, 13), has_zero=False, has_bias=False)
    weight = torch.zeros(16, 1, side, side, dtype=torch.int8)
    for channel in range(16):
        column = (5 * channel + channel // side) % side
        weight[channel, 0, (3 * channel) % side, column] = 1 + channel
    inputs = (*inputs[:2], weight, torch.full((16,), 2.0**-6), *inputs[4:])
    with emulator_for_cpu(row.kernel, row.entries) as launches:
        output = torch.ops.paifuser.depthwise_int8(*inputs)
    assert launches and row.error(output, inputs) <= 1


@needs_compiler
def test_halves_round_to_even_and_large_values_saturate():
    numbers = torch.arange(-128, 128, dtype=torch.int8)
    x = numbers[:, None] * torch.eye(16, dtype=torch.int8)[0]
    weight = torch.ones(16, 16, dtype=torch.int8)
    row = ROWS["pointwise_int8"]
    for scale, zero in ((0.5, 1), (4.0, 0), (0.5, -128)):
        with emulator_for_cpu(row.kernel, row.entries) as launches:
            output = project_int8(x, weight, torch.full((16,), scale), into=QuantParams(1.0, zero))
        expected = (torch.arange(-128, 128) * scale).round().add(zero).clamp(-128, 127)
        assert launches and output[:, 3].equal(expected.to(torch.int8))


def test_a_residual_needs_its_quantization():
    x, weight = random_int8(torch.uint8, 4, 16), random_int8(torch.int8, 16, 16)
    with pytest.raises(KernelError, match="pass both or neither"):
        project_int8(x, weight, torch.ones(16), residual=x)


def test_sums_are_exact_however_deep():
    assert exact_dtype(500) == torch.float32 and exact_dtype(600) == torch.float64
    x = torch.full((1, 2064), 255, dtype=torch.uint8)
    weight = torch.full((16, 2064), 127, dtype=torch.int8)
    weight[:, 0] = 126
    output = project_int8(x, weight, torch.ones(16, dtype=torch.float64), into=torch.float32)
    expected = torch.tensor(255.0 * 127 * 2064 - 255, dtype=torch.float32)
    assert output.double()[0, 0] == expected.double()


def test_a_clamp_needs_no_entry_of_its_own():
    def entry(into, activation):
        inputs = ROWS["pointwise_int8"].inputs(into=into, activation=activation, columns=64)
        kernel = KERNELS["pointwise_int8"]
        return kernel.plan(kernel.empty(*inputs), *inputs).entry

    clamped = [entry(torch.uint8, activation) for activation in ("none", "relu", "relu6")]
    assert clamped == ["pointwise_int8<uint8, uint8, 64, NONE>"] * 3
    assert entry(torch.bfloat16, "relu") == "pointwise_int8<uint8, bfloat16, 64, RELU>"

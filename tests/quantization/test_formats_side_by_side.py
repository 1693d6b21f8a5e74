"""Layers of every format next to layers of every other, and int8 products on any processor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.model.flops import counter
from paifuser_lab.model.formats import Range
from paifuser_lab.quantization import Requantization, quantized_layer
from paifuser_lab.quantization.layers.int8 import Int8Layer
from tests.support.processor import Processor

FORMATS = ("fp32", "bf16", "fp16", "fp8", "int8", "int8-weights", "int4-weights")
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def difference(actual: Tensor, expected: Tensor) -> float:
    return float(
        (actual.double() - expected.double()).detach().norm() / expected.double().detach().norm()
    )


def two_in_a_row(kind: str) -> Workload:
    torch.manual_seed(0)
    if kind == "linear":
        return Workload(
            nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16)), torch.randn(4, 32)
        )
    layers = (
        nn.Conv2d(4, 16, 1),
        nn.ReLU(),
        nn.Conv2d(16, 8, 1),
    )  # of single points, which fp8 has too
    return Workload(nn.Sequential(*layers), torch.randn(2, 4, 6, 6))


@pytest.mark.parametrize("kind", ["linear", "convolution"])
@pytest.mark.parametrize("first", FORMATS)
def test_a_layer_of_any_format_runs_beside_one_of_any_other(first: str, kind: str) -> None:
    work = two_in_a_row(kind)
    for second in FORMATS:
        options: dict[str, Any] = {"default": first, "layers": {"2": second}}
        if kind == "linear":
            options = {"layers": {"0": first, "2": second}}
        variant = lab.apply(work, Recipe([{"precision": options}]))
        assert variant.model(work.inputs.args[0]).dtype == torch.float32
        assert variant.reports[-1].relative_error < 0.15, second


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_an_int8_layer_outputs_its_input_dtype(dtype: torch.dtype) -> None:
    for make, shape in (
        (nn.Linear(8, 4), (3, 8)),
        (nn.Conv1d(8, 4, 3), (1, 8, 5)),
        (nn.Conv2d(8, 4, 3), (1, 8, 5, 5)),
    ):
        given = torch.rand(shape)
        answer = quantized_layer(make, "int8", Range(0, 1))(given.to(dtype))
        assert answer.dtype == dtype
        assert difference(answer, make(given)) < 0.02


@pytest.fixture(params=["full", "reduced", "full without VNNI"])
def reduced_range(request: pytest.FixtureRequest, processor: Processor) -> bool:
    """int8 weights of 8 and of 7 bits, and those of 8 on a processor that would saturate."""
    if request.param == "full":
        processor.has_vnni()
    else:
        processor.lacks_vnni()
    return bool(request.param == "reduced")


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("channels", [(8, 8, 1), (16, 16, 4), (3, 8, 1), (8, 16, 8), (8, 8, 8)])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_largest_products_of_a_convolution_do_not_saturate(
    dimensions: int, channels: tuple[int, int, int], sign: float, reduced_range: bool
) -> None:
    inputs, outputs, groups = channels
    layer = CONVOLUTIONS[dimensions](inputs, outputs, 3, groups=groups, bias=False)
    nn.init.constant_(layer.weight, sign)
    given = torch.ones(2, inputs, *[5] * dimensions)
    made = quantized_layer(layer, "int8", Range(0, 1), reduced_range=reduced_range)
    assert int(made.values.abs().max()) == (63 if reduced_range else 127)
    assert difference(made(given), layer(given)) < 1e-6


def test_weights_and_steps_of_every_size_give_the_numbers_that_they_stand_for(
    reduced_range: bool,
) -> None:
    torch.manual_seed(1)
    for layer, shape in (
        (nn.Linear(70, 9), (5, 70)),
        (nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2), (2, 6, 9, 9)),
        (nn.Conv2d(5, 7, 3, dilation=2), (5, 9, 9)),
    ):
        given, span = torch.randn(shape), Range(-1.0, 2.0)
        made = quantized_layer(layer, "int8", span, reduced_range=reduced_range)
        assert isinstance(made, Int8Layer)
        assert difference(made(given), made.product(span.rounded(given), made.weight)) < 1e-5


def test_an_int8_product_counts_as_much_arithmetic_as_the_plain_one(
    reduced_range: bool,
) -> None:
    for layer, shape in (
        (nn.Linear(16, 8), (4, 16)),
        (nn.Conv2d(8, 8, 3, groups=2), (2, 8, 9, 9)),
        (nn.Conv1d(8, 8, 3), (2, 8, 9)),
    ):
        given = torch.rand(shape)
        made = quantized_layer(layer, "int8", Range(0, 1), reduced_range=reduced_range)
        made(given)
        counts = []
        for one in (layer, made):
            with counter() as counted, torch.no_grad():
                one(given)
            counts.append(counted.get_total_flops())
        assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("clamp", [(0.0, None), (0.0, 0.5), (-0.25, 0.25)])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_a_clamp_after_a_convolution_is_done_on_the_way_in_any_dimension(
    dimensions: int, clamp: tuple[float, float | None]
) -> None:
    torch.manual_seed(0)
    layer, onward = CONVOLUTIONS[dimensions](4, 8, 3), Range(-1.0, 1.0)
    made = quantized_layer(layer, "int8", Range(0, 1))
    assert isinstance(made, Int8Layer)
    given = torch.rand(1, 4, *[6] * dimensions)
    plain = made(given).clamp(*clamp)
    made.requantization = Requantization(onward, clamp)
    torch.testing.assert_close(made(given).dequantized(), plain, atol=onward.scale, rtol=0)

"""Linear layers in int4 by torch's packed operator: its numbers, when it is used, and what stays
exact.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.model.formats import GROUP, quantize
from paifuser_lab.quantization import quantized_layer
from paifuser_lab.quantization.layers.weights_only import FEW_ROWS, WeightsOnly
from paifuser_lab.quantization.qat.layers import QatWeightsOnly
from tests.support.models import Conv1D
from tests.support.precision import error

MOST = FEW_ROWS[4]
PACKED = "aten._weight_int4pack_mm_for_cpu.default"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Operators(TorchDispatchMode):
    """The names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def multiplies_integers(layer: nn.Module, inputs: Tensor) -> bool:
    with Operators() as seen:
        layer(inputs)
    return PACKED in seen.names


def in_double(layer: nn.Module, inputs: Tensor) -> Tensor:
    """What the operator is to give but for the rounding of its output: its inputs and scales in
    bf16, everything else exact.
    """
    is_turned = not isinstance(layer, nn.Linear)
    numbers = quantize(layer.weight.t() if is_turned else layer.weight, 4)
    weight = type(numbers)(numbers.values, numbers.scales.bfloat16().double(), 0).dequantized()
    return inputs.bfloat16().double() @ weight.t()


SHAPES = {
    "whole groups": (64, 96),
    "outputs filled up": (20, 64),
    "inputs filled up": (32, 100),
    "one of each": (5, 33),
    "less than a group": (16, 7),
    "many classes": (1000, 128),
    "one output": (1, 32),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_few_rows_are_multiplied_by_the_integers_that_the_weight_is(name, dtype):
    outputs, inputs = SHAPES[name]
    layer, given = nn.Linear(inputs, outputs, bias=False), torch.randn(2, 3, inputs, dtype=dtype)
    made = quantized_layer(layer, "int4-weights")
    with torch.no_grad():
        assert multiplies_integers(made, given)
        answer = made(given)
        assert answer.dtype == dtype and answer.shape == (2, 3, outputs)
        assert error(answer, in_double(layer, given)) < 2.0**-8, (
            "the output is rounded to bf16, and nothing else happens to it"
        )
        assert error(answer, given.double() @ made.weight.double().t()) < 6e-3


def test_the_linear_layer_of_gpt2_and_one_with_a_bias_are_packed_too():
    turned, plain = Conv1D(48, 64), nn.Linear(64, 48)
    given = torch.randn(3, 64)
    with torch.no_grad():
        for layer, wanted in (
            (turned, in_double(turned, given) + turned.bias),
            (plain, in_double(plain, given) + plain.bias),
        ):
            made = quantized_layer(layer, "int4-weights")
            assert multiplies_integers(made, given)
            assert error(made(given), wanted) < 2.0**-8


@pytest.mark.parametrize("name", ["int8-weights", "int4-weights"])
def test_rows_that_lie_apart_in_memory_are_read_rightly(name):
    made, given = (
        quantized_layer(nn.Linear(64, 32), name),
        torch.randn(64, 4, dtype=torch.bfloat16).t(),
    )
    with torch.no_grad():
        assert torch.equal(made(given), made(given.contiguous()))


def test_many_rows_convolutions_and_exact_numbers_keep_weights_of_the_dtype_that_is_given():
    linear, image = quantized_layer(nn.Linear(64, 32), "int4-weights"), torch.randn(1, 4, 2, 8)
    convolution = quantized_layer(nn.Conv2d(4, 6, 1), "int4-weights")
    with torch.no_grad():
        assert multiplies_integers(linear, torch.randn(MOST, 64))
        assert not multiplies_integers(linear, torch.randn(MOST + 1, 64))
        assert not multiplies_integers(linear, torch.randn(0, 64))
        assert not multiplies_integers(linear, torch.randn(1, 64, dtype=torch.float64))
        assert not multiplies_integers(convolution, image)
        many = torch.randn(MOST + 1, 64)
        assert torch.equal(linear(many), F.linear(many, linear.weight, linear.bias)), (
            "no rounding but that of the weights"
        )


@pytest.mark.parametrize("name", ["int4-weights", "int8-weights"])
def test_a_gradient_goes_through_few_rows_as_through_plain_weights(name):
    made, weights = quantized_layer(nn.Linear(64, 32), name), torch.randn(2, 32)
    given = torch.randn(2, 64, requires_grad=True)
    (made(given) * weights).sum().backward()
    torch.testing.assert_close(given.grad, weights @ made.weight)
    _, slope = torch.func.jvp(made, (given.detach(),), (torch.ones(2, 64),))
    torch.testing.assert_close(slope, torch.ones(2, 64) @ made.weight.t())


def test_what_was_packed_is_packed_anew_when_the_integers_change():
    one, other = (quantized_layer(nn.Linear(64, 32), "int4-weights") for _ in range(2))
    given = torch.randn(1, 64)
    with torch.no_grad():
        before, wanted = one(given), other(given)
        one.load_state_dict(other.state_dict())
        assert torch.equal(one(given), wanted) and not torch.equal(before, wanted)
        assert torch.equal(copy.deepcopy(one)(given), wanted)
        assert torch.equal(one.to(torch.bfloat16)(given), wanted), (
            "integers and scales stay as they are"
        )


def small() -> Workload:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 64), nn.GELU(), nn.Linear(64, 10)
    )
    images = torch.randn(4, 3, 8, 8)
    return Workload(model, images, train=[(images, torch.randn(4, 10))] * 2)


INT4: dict[str, Any] = {"precision": {"default": "int4-weights"}}


@pytest.mark.parametrize("rows", [1, MOST, MOST + 1])
def test_a_layer_that_learns_answers_as_the_live_one_to_the_bit_with_gradients_and_without(rows):
    learned = QatWeightsOnly(nn.Linear(64, 32), "int4-weights", learns=True)
    given = torch.randn(rows, 64, requires_grad=True)
    with torch.no_grad():
        wanted = learned.converted()(given)
        assert torch.equal(learned(given), wanted)
    answer = learned(given)
    assert torch.equal(answer, wanted)
    answer.sum().backward()
    torch.testing.assert_close(given.grad, torch.ones(rows, 32) @ learned.converted().weight)
    assert learned.weight.grad.abs().sum() > 0


def test_the_notes_name_layers_that_multiply_integers_those_that_do_not_and_the_error_of_bf16():
    variant = lab.apply(small(), Recipe([INT4]))
    packed, made = variant.notes
    assert packed.startswith("2 layers ('2', '4') in int4: multiplied as packed integers in bf16")
    assert f"at most {MOST} rows" in packed
    assert made == (
        "1 layer ('0') in int4: weights made at each call, since torch has no packed operator "
        "for layers of kind Conv2d"
    )
    moved = float(packed.rsplit(" ", 1)[1])
    exact = copy.deepcopy(variant.module)
    for layer in exact.modules():
        if isinstance(layer, WeightsOnly):
            layer.few_rows = 0
    with torch.no_grad():
        images = variant.work.inputs.args[0]
        assert (
            moved == pytest.approx(error(variant.module(images), exact(images)), rel=0.1)
            and 1e-4 < moved < 1e-2
        )
    assert variant.reports[-1].relative_error > 5 * moved, "rounding to four bits is what counts"


def test_the_notes_report_too_many_rows():
    work = Workload(nn.Sequential(nn.Linear(GROUP, 8), nn.ReLU()), torch.randn(MOST + 1, GROUP))
    (note,) = lab.apply(work, Recipe([INT4])).notes
    assert f"the example inputs give a linear layer more than {MOST} rows" in note

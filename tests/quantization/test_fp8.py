"""Layers in fp8: the numbers are those of rounding first and multiplying then; what cannot be says
what it needs.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import StepError
from paifuser_lab.model.formats import FP8, FP8_MAX, fp8_rounded, rounded, to_fp8
from paifuser_lab.model.weights import load_weights, save_weights, weights_bytes
from paifuser_lab.planner.precision import plan_precision, recipe_of
from paifuser_lab.quantization import (
    norms_of,
    obstacle,
    quantized_layer,
    remembered_of,
    restore_layers,
)
from paifuser_lab.quantization.layers import fp8
from tests.support.models import Small, images
from tests.support.precision import chosen, error

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(
        fp8.device_obstacle(torch.device("cpu")) is not None,
        reason="this torch has no product in fp8 for a CPU",
    ),
]


@given(
    shape=st.sampled_from([(3, 5), (1, 1), (2, 3, 4)]),
    scale=st.floats(1e-30, 1e30),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_rounding_to_fp8_changes_no_number_by_more_than_a_sixteenth_or_the_last_step(
    shape, scale, seed
):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
    small, scales = to_fp8(values)
    assert small.dtype == FP8 and float(small.float().abs().max()) <= FP8_MAX
    least = scales * 2.0**-10  # half a step of the numbers nearest to zero
    assert (
        (fp8_rounded(values) - values).abs() <= torch.maximum(values.abs() / 16, least) * 1.0001
    ).all()


def test_zeros_and_what_is_hardly_more_stay_numbers():
    assert torch.equal(fp8_rounded(torch.zeros(2, 3)), torch.zeros(2, 3))
    assert torch.isfinite(fp8_rounded(torch.full((2, 3), 1e-44))).all()
    assert torch.isnan(fp8_rounded(torch.tensor([1.0, float("nan")]))).any()


LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(33, 7), (2, 5, 33)),
    "one row": (lambda: nn.Linear(16, 16, bias=False), (16,)),
    "no rows": (lambda: nn.Linear(16, 8), (0, 16)),
    "point": (lambda: nn.Conv2d(5, 6, 1), (2, 5, 4, 3)),
    "unbatched": (lambda: nn.Conv2d(5, 6, 1, bias=False), (5, 4, 3)),
    "point of a line": (lambda: nn.Conv1d(5, 6, 1, padding="same"), (2, 5, 9)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_in_fp8_is_the_plain_layer_on_rounded_numbers(name, dtype):
    make, shape = LAYERS[name]
    layer, inputs = make(), torch.randn(shape).to(dtype)
    twin, channels = copy.deepcopy(layer), -1 - len(getattr(layer, "kernel_size", ()))
    twin.weight.data = rounded(layer.weight, "fp8")
    with torch.no_grad():
        made = quantized_layer(layer, "fp8")
        wanted = twin(fp8_rounded(inputs.float(), channels))
        assert made(inputs).dtype == dtype and made(inputs).shape == wanted.shape
        close = 1e-5 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(made(inputs).float(), wanted, rtol=close, atol=close)
    torch.testing.assert_close(made.weight, twin.weight)
    rows = layer.weight.shape[0]
    scales_and_bias = 4 * rows if layer.bias is None else 8 * rows
    assert weights_bytes(made) == layer.weight.numel() + scales_and_bias


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("inputs", [16, 33])
def test_products_of_older_and_newer_gpus_give_the_same_numbers(inputs, dtype, monkeypatch):
    layer, given = quantized_layer(nn.Linear(inputs, 7), "fp8"), torch.randn(5, inputs)
    with torch.no_grad():
        exact = layer(given)
        monkeypatch.setattr(fp8, "product_dtype", lambda device: dtype)
        monkeypatch.setitem(fp8.WIDTH_MULTIPLE, "cpu", 16)
        torch.testing.assert_close(
            layer(given), exact, rtol=1e-2 if dtype else 1e-5, atol=1e-2 if dtype else 1e-5
        )


def test_a_layer_takes_its_input_by_name():
    layer, x = quantized_layer(nn.Linear(16, 8), "fp8"), torch.randn(3, 16)
    assert torch.equal(layer(input=x), layer(x))


def test_a_gpu_of_the_capability_it_takes_is_needed(monkeypatch):
    device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert (
        fp8.device_obstacle(device)
        == "fp8 needs a GPU of CUDA capability 8.9 or newer, and this one has 8.0"
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert fp8.device_obstacle(device) is None
    assert "the layer is on meta" in str(fp8.device_obstacle(torch.device("meta")))
    monkeypatch.setattr(fp8, "_cpu_has_product", lambda: False)
    with pytest.raises(
        StepError,
        match=r"none of the chosen layers can be in fp8.*fp8 needs a GPU of CUDA capability",
    ):
        chosen(Workload(nn.Sequential(nn.Linear(2, 2)), torch.randn(1, 2)), default="fp8")


def test_an_unsupported_layer_stays_or_raises_when_named():
    work = Workload(Small(), images())
    variant = chosen(work, default="fp8")
    assert type(variant.module.conv) is nn.Conv2d and isinstance(variant.module.head, fp8.Fp8Linear)
    assert any(
        "layer 'conv' stays as it is: fp8 is for linear layers" in note for note in variant.notes
    )
    with pytest.raises(
        StepError, match=r"layer 'conv' \(Conv2d\) cannot be in fp8: fp8 is for linear layers"
    ):
        chosen(work, layers={"conv": "fp8"})
    assert obstacle(nn.Conv2d(4, 4, 1, stride=2), "fp8") and obstacle(nn.Embedding(3, 3), "fp8")
    assert obstacle(nn.Conv2d(4, 4, 1, groups=2), "fp8")


def mlp() -> Workload:
    """A convolution of points with its batch-norm, and two linear layers."""
    norm = nn.BatchNorm2d(8)
    norm.running_var.uniform_(0.5, 2)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1, bias=False),
        norm,
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 9),
        nn.GELU(),
        nn.Linear(9, 4),
    )
    return Workload(model.eval(), torch.randn(6, 3, 2, 2))


def test_a_batch_norm_behind_a_point_is_folded_and_all_of_it_runs_in_16_bits_too():
    work = mlp()
    for options in (
        {"default": "fp8"},
        {"default": "bf16", "layers": {"*": "fp8"}},
        {"default": "fp8", "compensate": ["bias", "rounding"]},
    ):
        variant = chosen(work, **options)
        assert type(variant.module[1]) is nn.Identity
        assert 0 < error(variant.model(work.inputs.args[0]), work.output()) < 0.1
        assert (
            variant.module[4].values.dtype == torch.uint8
            and variant.module[4].scales.dtype == torch.float32
        )


def test_a_model_in_fp8_is_copied_saved_counted_and_put_in_place_again(tmp_path):
    work = mlp()
    fresh = copy.deepcopy(work.model)
    variant = chosen(work, default="fp8")
    inputs = work.inputs.args[0]
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(variant.module)(inputs), variant.model(inputs))
        restore_layers(fresh, remembered_of(variant.module, {"0", "4", "6"}, norms_of(fresh)))
        save_weights(variant.module, tmp_path / "weights.safetensors")
        load_weights(fresh, tmp_path / "weights.safetensors")
        assert torch.equal(fresh(inputs), variant.model(inputs))
    row, plain = (
        lab.compare(work, fp8=variant, rounds=1)["fp8"],
        lab.compare(work, folded=Recipe(["fold"]), rounds=1)["folded"],
    )
    assert row.parameters == plain.parameters and row.flops == pytest.approx(plain.flops)
    assert row.size_bytes < plain.size_bytes * 0.5


def test_export_to_an_engine_without_fp8_raises():
    with pytest.raises(StepError, match="fp8 cannot be exported"):
        lab.apply(
            mlp(), Recipe([{"precision": {"default": "fp8"}}, {"backend": {"name": "onnxruntime"}}])
        )


def test_a_sensitivity_predicts_fp8_as_it_runs():
    work = mlp()
    seen = lab.sensitivity(work, formats=("fp8", "int8"), methods=("output",))
    for layer in ("4", "6"):
        alone = lab.apply(work, Recipe([{"precision": {"layers": {layer: "fp8"}}}]))
        row = next(row for row in seen.rows if row.layer == layer)
        measured = error(alone.model(work.inputs.args[0]), work.output())
        assert row.scores["fp8"]["output"].value == pytest.approx(measured, rel=1e-2)


def test_a_plan_may_choose_fp8():
    work = mlp()
    found = plan_precision(work, size_bytes=700, formats=("fp32", "fp8"), seconds=0.5)
    assert "fp8" in found.points[found.chosen].formats.values()
    assert lab.apply(work, recipe_of(found)).reports

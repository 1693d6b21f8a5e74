"""int8 weights within 7 bits, of which no processor's products saturate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Variant, Workload
from paifuser_lab.errors import StepError
from paifuser_lab.model.formats import Range, is_reduced, rounded
from paifuser_lab.quantization import Int8Layer, Requantization, quantized_layer
from paifuser_lab.quantization.quantize import REDUCED, UNREDUCED
from tests.support.models import Small, images
from tests.support.precision import error
from tests.support.processor import Processor

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS: dict[str, Any] = {
    "precision": {"default": "int8"},
    "compensated": {"default": "int8", "compensate": ["equalise", "rounding", "bias"]},
    "qat": {"epochs": 1},
}
LAST = {"backend": {"name": "onnxruntime", "threads": 1}}


def small() -> Workload:
    torch.manual_seed(0)
    batches = [(images(4), torch.arange(4))]
    return Workload(Small(), images(4), train=batches, loss=nn.functional.cross_entropy)


def steps(name: str, **more: Any) -> list[Any]:
    return [{"qat" if name == "qat" else "precision": STEPS[name] | more}]


def largest(model: nn.Module) -> set[int]:
    """The largest integer of each int8 layer."""
    layers = [layer for layer in model.modules() if isinstance(layer, Int8Layer)]
    return {int(layer.values.abs().max()) for layer in layers}


@pytest.mark.parametrize("name", STEPS)
def test_without_vnni_weights_use_seven_bits_and_a_note_says_so(
    name: str, processor: Processor
) -> None:
    processor.lacks_vnni()
    variant = lab.apply(small(), Recipe(steps(name)))
    assert max(largest(variant.module)) == 63 and variant.notes.count(REDUCED) == 1


@pytest.mark.parametrize("name", STEPS)
def test_with_vnni_they_use_eight_unless_the_step_asks_otherwise(
    name: str, processor: Processor
) -> None:
    processor.has_vnni()
    work = small()
    variant = lab.apply(work, Recipe(steps(name)))
    assert max(largest(variant.module)) == 127 and not {REDUCED, UNREDUCED} & {*variant.notes}
    variant.model(work.inputs.args[0])
    layers = [layer for layer in variant.module.modules() if isinstance(layer, Int8Layer)]
    assert layers and all(layer._packed for layer in layers), "oneDNN multiplies integers"
    asked = lab.apply(small(), Recipe(steps(name, reduced_range=True)))
    assert max(largest(asked.module)) == 63 and REDUCED in asked.notes


def test_reduced_range_costs_one_bit_and_keeps_one_scale_per_channel(processor: Processor) -> None:
    weight = torch.randn(4, 64)
    processor.counts_as_with_vnni()
    full = rounded(weight, "int8")
    processor.lacks_vnni()
    reduced = rounded(weight, "int8")
    assert 1.5 < error(reduced, weight) / error(full, weight) < 2.7
    steps_of_row = (weight.abs().amax(1, keepdim=True) / 63).expand_as(weight)
    assert torch.allclose((reduced / steps_of_row).round() * steps_of_row, reduced, atol=1e-6)
    assert torch.equal(rounded(weight, "int8-weights"), full), "multiplied in floats"


def test_weights_of_eight_bits_compute_in_fp32_where_their_products_would_saturate(
    processor: Processor,
) -> None:
    work, recipe = small(), Recipe(steps("precision", reduced_range=False))
    processor.lacks_vnni()
    variant = lab.apply(work, recipe)
    assert max(largest(variant.module)) == 127 and UNREDUCED in variant.notes
    assert error(variant.model(work.inputs.args[0]), work.output()) < 0.02
    layers = [layer for layer in variant.module.modules() if isinstance(layer, Int8Layer)]
    assert all(layer._packed == () for layer in layers), "nothing for oneDNN"


@pytest.mark.parametrize("next_range", [None, Range(-1.0, 2.0)], ids=["fp32", "int8"])
@pytest.mark.parametrize("clamp", [None, (0.0, None), (-0.2, 0.31)])
@pytest.mark.parametrize("layer", [nn.Linear(9, 5), nn.Conv2d(4, 6, 3, padding=1, groups=2)])
def test_they_compute_the_numbers_of_the_integer_product(
    layer: nn.Module, clamp: tuple[float, float | None] | None, next_range: Range | None
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 9) if isinstance(layer, nn.Linear) else torch.randn(2, 4, 7, 7)
    quantized = quantized_layer(layer, "int8", Range(-3.0, 2.0), reduced_range=True)
    assert isinstance(quantized, Int8Layer)
    quantized.requantization = Requantization(next_range, clamp)
    by_integers = quantized(x)
    quantized._packed = ()  # as where 8 bits would saturate
    by_floats = quantized(x)
    if next_range is None:
        assert torch.allclose(by_floats, by_integers, atol=1e-5)
        return
    steps_apart = by_floats.quantized.int() - by_integers.quantized.int()
    assert steps_apart.abs().max() <= 1 and steps_apart.ne(0).float().mean() < 0.02, "but for ties"


def test_the_sum_of_two_products_in_reduced_range_fits_16_bits() -> None:
    most = max(weight for weight in range(128) if is_reduced(torch.tensor([weight, -weight])))
    assert 2 * 255 * most < 2**15 <= 2 * 255 * (most + 1)


def test_an_engine_of_eight_bits_is_refused_with_the_reason(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a tiny tolerance makes the outputs differ, as saturated ones do."""
    from paifuser_lab.steps.backend import Backend
    from paifuser_lab.variant import apply_recipe

    monkeypatch.setattr(apply_recipe, "INT8_TOLERANCE", 1e-12)
    monkeypatch.setattr(Backend, "tolerance", 1e-12)
    processor.lacks_vnni()
    full = Recipe([*steps("precision", reduced_range=False), LAST])
    with pytest.raises(StepError, match=r"no VNNI; leave 'backend' or 'reduced_range' out"):
        lab.apply(small(), full)
    with pytest.raises(StepError, match=r"differs by [^:]*; nothing was changed"):
        lab.apply(small(), Recipe([*steps("precision"), LAST]))


@pytest.mark.parametrize("name", STEPS)
def test_a_file_in_reduced_range_gives_the_live_numbers(
    name: str, processor: Processor, tmp_path: Path
) -> None:
    processor.lacks_vnni()
    variant = lab.apply(small(), Recipe(steps(name)))
    report = lab.export(variant, "onnx", tmp_path / "model.onnx", seconds=0)
    assert report.runs_here and report.error is not None and report.error < 0.02
    weights = [
        onnx.numpy_helper.to_array(tensor)
        for tensor in onnx.load(report.path).graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8
    ]
    assert max(int(abs(weight).max()) for weight in weights) == 63


def test_a_file_of_eight_bits_is_written_for_other_processors_and_not_verified(
    processor: Processor, tmp_path: Path
) -> None:
    processor.lacks_vnni()
    variant = lab.apply(small(), Recipe(steps("precision", reduced_range=False)))
    report = lab.export(variant, "onnx", tmp_path / "model.onnx", seconds=0)
    assert not report.runs_here and Path(report.path).exists()
    assert "reduced_range: false" in report.not_verified


def saved_with_vnni(processor: Processor, path: Path, *more: Any, **options: Any) -> Variant:
    """A model that was saved on a processor with VNNI, on whatever this is."""
    processor.counts_as_with_vnni()
    variant = lab.apply(small(), Recipe([*steps("precision", **options), *more]))
    variant.save(path)
    processor.lacks_vnni()
    return variant


@pytest.mark.parametrize("more", [(), (LAST,)], ids=["eager", "onnxruntime"])
def test_a_folder_of_another_processor_is_rounded_again_with_a_note(
    more: tuple[Any, ...], processor: Processor, tmp_path: Path
) -> None:
    saved = saved_with_vnni(processor, tmp_path / "saved", *more)
    loaded = Variant.load(tmp_path / "saved", small())
    assert max(largest(saved.module)) == 127 and max(largest(loaded.module)) == 63
    (note,) = set(loaded.notes) - set(saved.notes)
    assert "rounded again, within 7 bits: saved on a processor with VNNI" in note
    (given,) = loaded.work.inputs.args
    assert error(loaded.model(given), loaded.work.output()) < 0.03
    loaded.save(tmp_path / "again")
    assert torch.equal(Variant.load(tmp_path / "again", small()).model(given), loaded.model(given))


def test_a_folder_that_asked_for_eight_bits_keeps_its_integers(
    processor: Processor, tmp_path: Path
) -> None:
    saved = saved_with_vnni(processor, tmp_path / "saved", reduced_range=False)
    loaded = Variant.load(tmp_path / "saved", small())
    assert loaded.weights_hash == saved.weights_hash and loaded.notes == saved.notes

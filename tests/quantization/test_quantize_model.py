"""One line for the usual thing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import StepError, WorkloadError
from paifuser_lab.model.weights import weights_hash


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


@pytest.mark.parametrize("labelled", [True, False])
def test_a_model_is_quantized_in_one_line_and_left_as_it_was(labelled):
    model, inputs = net(), torch.randn(32, 8)
    before = weights_hash(model)
    data = [(part, torch.zeros(len(part))) if labelled else part for part in inputs.split(8)]
    variant = lab.quantize_model(model, iter(data), layers={"2": "int4-weights"})
    assert [layer.format for layer in (variant.module[0], variant.module[2])] == [
        "int8",
        "int4-weights",
    ]
    with torch.no_grad():
        assert (variant.model(inputs) - model(inputs)).norm() < 0.2 * model(inputs).norm()
    assert weights_hash(model) == before


def test_without_data_the_weights_alone_are_rounded_and_that_is_said():
    model, inputs = net(), torch.randn(3, 8)
    before = weights_hash(model)
    with pytest.warns(UserWarning, match="given no data: weights alone are rounded"):
        variant = lab.quantize_model(model)
    assert [layer.format for layer in (variant.module[0], variant.module[2])] == [
        "int8-weights"
    ] * 2
    with torch.no_grad():
        wanted = model(inputs)
        assert 0 < (variant.model(inputs) - wanted).norm() < 0.02 * wanted.norm()
    assert weights_hash(model) == before
    assert (
        any("no data" in note for note in variant.notes)
        and variant.reports[-1].relative_error is None
    )


@pytest.mark.parametrize(("precision", "times"), [("int8-weights", 2), ("bf16", 0)])
def test_a_warning_and_a_note_say_that_it_computes_as_before_where_it_does(precision, times):
    with pytest.warns(UserWarning, match="given no data") as warned:
        variant = lab.quantize_model(net(), precision=precision)
    said = [*variant.notes, *(str(warning.message) for warning in warned)]
    assert sum("computes as before" in text for text in said) == times
    with_data = lab.quantize_model(net(), [torch.randn(4, 8)], precision="bf16")
    assert not any("compensate" in note for note in with_data.notes)


def test_what_was_quantized_without_data_is_saved_and_loaded(tmp_path):
    model, inputs = net(), torch.randn(3, 8)
    with pytest.warns(UserWarning, match="no data"):
        variant = lab.quantize_model(model, precision="int4-weights", layers={"2": "fp32"})
    loaded = lab.Variant.load(variant.save(tmp_path / "folder"), lab.Workload(model, inputs))
    assert type(loaded.module[2]) is nn.Linear and loaded.module[0].format == "int4-weights"
    assert loaded.weights_hash == variant.weights_hash and torch.equal(
        loaded.model(inputs), variant.model(inputs)
    )


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (
            net,
            {"precision": "int8"},
            r"layer '0' \(Linear\) in int8 needs the range .* pass data, or use int8-weights",
        ),
        (net, {"layers": {"2": "int8"}}, r"layer '2' \(Linear\) in int8 needs the range"),
        (nn.ReLU, {}, "no layer with weights"),
    ],
)
def test_what_needs_data_or_cannot_be_rounded_is_refused_in_one_sentence(make, options, message):
    with pytest.raises(StepError, match=message):
        lab.quantize_model(make(), **options)


def test_without_batches_nothing_is_quantized():
    with pytest.raises(WorkloadError, match="no data"):
        lab.quantize_model(net(), [])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.randn(4, 8), r"this is of type Tensor; give a list, such as \[inputs\]"),
        ({"x": torch.randn(4, 8)}, "of type dict; give a list"),
        ((torch.randn(4, 8), torch.zeros(4)), "this is a pair; give a list"),
        (5, "of type int; give a list"),
        ([torch.randn(4, 9)], "fails on its example inputs .* received 4×9"),
    ],
    ids=["a batch", "keywords", "a pair", "a number", "another shape"],
)
def test_data_that_are_no_batches_of_the_model_are_refused(data, message):
    with pytest.raises(WorkloadError, match=message):
        lab.quantize_model(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), data)


def test_a_workload_in_place_of_a_model_is_refused_with_the_call_to_write():
    work = lab.Workload(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(WorkloadError, match=r"not a Workload; .*quantize_model\(work\.model, work"):
        lab.quantize_model(work)


@pytest.mark.parametrize("layer", [nn.Linear(1000, 10), nn.Conv2d(3, 8, 3), nn.Embedding(9, 4)])
@pytest.mark.filterwarnings("ignore:quantize_model was given no data")
def test_a_bare_layer_is_quantized(layer):
    inputs = {
        nn.Linear: torch.randn(4, 1000),
        nn.Conv2d: torch.randn(2, 3, 8, 8),
        nn.Embedding: torch.randint(9, (2, 5)),
    }[type(layer)]
    variant = lab.quantize_model(layer)
    assert variant.module[0].format == "int8-weights"
    assert variant.work.name == type(layer).__name__
    with torch.no_grad():
        output = variant.model(inputs)
        assert 0 < (output - layer(inputs)).norm() < 0.02 * output.norm()


def test_a_bare_layer_is_quantized_with_data():
    layer, inputs = nn.Linear(16, 4), torch.randn(8, 16)
    variant = lab.quantize_model(layer, [inputs])
    assert variant.module[0].format == "int8" and variant.work.name == "Linear"


def test_a_model_alone_takes_three_quarters_less_space_on_the_disk(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
    torch.save(model.state_dict(), tmp_path / "fp32.pt")
    with pytest.warns(UserWarning, match="no data"):
        variant = lab.quantize_model(model)
    torch.save(variant.model.state_dict(), tmp_path / "int8.pt")
    share = (tmp_path / "int8.pt").stat().st_size / (tmp_path / "fp32.pt").stat().st_size
    assert 0.24 < share < 0.27

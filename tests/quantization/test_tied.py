"""Layers that share a weight, as a language model's embedding and head: they share its integers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import StepError
from paifuser_lab.model.weights import parameter_count, weights_bytes
from paifuser_lab.quantization import QuantizedLayer
from tests.support.models import SharedBias, Tied, ids
from tests.support.precision import chosen

WEIGHTS_ONLY = ("int8-weights", "int4-weights")


def tied() -> Workload:
    torch.manual_seed(0)
    return Workload(Tied(), ids(), name="tied", test=[(ids(), None)])


def apart() -> Workload:
    """The same model, whose head has a weight of its own."""
    work = tied()
    model: Any = work.model
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())
    return work


@pytest.mark.parametrize("name", WEIGHTS_ONLY)
def test_they_hold_one_weight_and_compute_as_if_each_had_its_own(name: str) -> None:
    variant, untied = chosen(tied(), default=name), chosen(apart(), default=name)
    model: Any = variant.module
    assert model.head.values is model.table.values and model.head.scales is model.table.scales
    assert parameter_count(model) == parameter_count(Tied())
    own = model.table.values.nbytes + model.table.scales.nbytes
    assert weights_bytes(untied.module) - weights_bytes(model) == own
    tokens = ids()
    assert torch.equal(variant.model(tokens), untied.model(tokens))


@pytest.mark.parametrize("name", WEIGHTS_ONLY)
def test_a_model_without_a_workload_shares_them_too(name: str) -> None:
    with pytest.warns(UserWarning, match="no data"):
        model: Any = lab.quantize_model(Tied(), precision=name).module
    assert model.head.values is model.table.values and model.head.scales is model.table.scales


@pytest.mark.parametrize("name", WEIGHTS_ONLY)
def test_a_saved_variant_shares_them_again(name: str, tmp_path: Any) -> None:
    work = tied()
    variant = chosen(work, default=name)
    model: Any = lab.load(variant.save(tmp_path / "saved"), work=work).model
    assert model.head.values is model.table.values and model.head.scales is model.table.scales
    tokens = ids()
    assert torch.equal(model(tokens), variant.model(tokens))


def test_a_format_for_one_of_them_is_refused_with_the_remedy() -> None:
    sentence = "shares its weight with '(table|head)'; give both int8-weights or int4-weights"
    for options in ({"head": "int8-weights"}, {"head": "int8-weights", "table": "int4-weights"}):
        with pytest.raises(StepError, match=sentence):
            chosen(tied(), layers=options)


def test_an_activation_is_not_rounded_for_one_of_them() -> None:
    variant = chosen(tied(), default="int8")
    model: Any = variant.module
    assert model.head.weight is model.table.weight
    assert any("layer 'head' stays as it is" in note for note in variant.reports[0].notes)


def test_a_shared_bias_does_not_keep_a_layer_whole() -> None:
    work = Workload(SharedBias(), ids(), name="tied", test=[(ids(), None)])
    model: Any = chosen(work, default="int8-weights").module
    assert model.head.values is model.table.values
    assert torch.equal(model.head.bias, model.bias)


@pytest.mark.parametrize("name", WEIGHTS_ONLY)
def test_an_owner_that_is_never_called_shares_them_too(name: str) -> None:
    model: Any = Tied()
    model.spare = nn.Embedding(7, 4)
    model.spare.weight = model.table.weight
    rounded: Any = chosen(Workload(model, ids()), default=name).module
    assert rounded.spare.values is rounded.table.values is rounded.head.values


def test_the_reason_of_an_owner_that_cannot_is_that_of_the_others() -> None:
    model: Any = Tied()
    model.table.register_forward_hook(lambda *_: None)
    notes = chosen(Workload(model, ids()), default="int8-weights").notes
    reason = "it shares its weight with 'table'; that one cannot: it has hooks"
    assert any(note.startswith(f"layer 'head' stays as it is: {reason}") for note in notes)


def test_compensation_leaves_a_shared_weight_alone() -> None:
    plain: Any = chosen(tied(), default="int4-weights").module
    techniques = ["equalise", "rounding", "bias"]
    variant: Any = chosen(tied(), default="int4-weights", compensate=techniques).module
    assert torch.equal(plain.head.values, variant.head.values) and variant.head.bias is None
    assert variant.head.values is variant.table.values
    assert not torch.equal(plain.body.bias, variant.body.bias)


def test_training_leaves_them_as_they_are() -> None:
    work = Workload(
        Tied(),
        ids(),
        name="tied",
        loss=nn.functional.mse_loss,
        train=[(ids(), torch.rand(2, 5, 7))],
    )
    variant = lab.apply(work, Recipe([{"qat": {"default": "int8-weights", "epochs": 1}}]))
    rounded = {
        name for name, one in variant.module.named_modules() if isinstance(one, QuantizedLayer)
    }
    assert rounded == {"body"}

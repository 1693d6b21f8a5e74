"""One line for the usual thing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import WorkloadError
from paifuser_lab.weights import weights_hash


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


@pytest.mark.parametrize("labelled", [True, False])
def test_a_model_is_quantized_in_one_line_and_left_as_it_was(labelled):
    model, inputs = net(), torch.randn(32, 8)
    before = weights_hash(model)
    data = [(part, torch.zeros(len(part))) if labelled else part for part in inputs.split(8)]
    variant = lab.quantize_model(model, iter(data), layers={"2": "int4-weights"})
    assert [layer.format for layer in (variant.module[0], variant.module[2])] == ["int8", "int4-weights"]
    with torch.no_grad():
        assert (variant.model(inputs) - model(inputs)).norm() < 0.2 * model(inputs).norm()
    assert weights_hash(model) == before


def test_without_data_nothing_is_quantized():
    with pytest.raises(WorkloadError, match="no data"):
        lab.quantize_model(net(), [])

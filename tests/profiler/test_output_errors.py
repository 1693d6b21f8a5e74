"""How far each layer's output is from the original's, and where the error comes from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.profiler.compared import added_errors, output_errors
from paifuser_lab.views.side_by_side import picture

QUICK = {"runs": 1, "seconds": 0.1}


class Residual(nn.Module):
    """Two convolutions with norms and activations, a sum around the second, and a head."""

    def __init__(self):
        super().__init__()
        self.first, self.first_norm, self.first_relu = _block()
        self.second, self.second_norm, self.second_relu = _block()
        self.skip = nn.Identity()
        self.head = nn.Linear(8 * 36, 5)

    def forward(self, image):
        image = self.first_relu(self.first_norm(self.first(image)))
        inside = self.second_norm(self.second(image))
        return self.head(self.second_relu(inside + self.skip(image)).flatten(1))


def _block():
    return nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()


@pytest.fixture(scope="module")
def work():
    torch.manual_seed(0)
    model = Residual()
    model(torch.rand(32, 8, 6, 6))  # statistics that folding has to scale by
    return lab.Workload(model.eval(), torch.rand(2, 8, 6, 6))


def errors(work, *steps):
    return output_errors(work, lab.apply(work, lab.Recipe(steps)).workload)


def test_the_layer_that_was_rounded_is_named_and_those_before_it_are_equal(work):
    variant = lab.apply(work, lab.Recipe([{"precision": {"layers": {"second": "int4-weights"}}}]))
    pair = lab.explain(work, variant, **QUICK)
    rows = {row.layer: row for row in pair.rows}
    assert rows["first_relu"].output_error == 0 < rows["second"].output_error
    assert rows["second"].error_added == rows["second"].output_error
    assert rows["skip"].error_added is None, "it returns what it gets"
    assert "grows most at 'second' (+" in pair.error_growth and "first" not in pair.error_growth
    assert pair.error_growth in picture(pair).sentence
    assert pair.error_growth in str(pair) and rows[""].output_error == rows["head"].output_error


def test_the_error_of_a_layers_inputs_is_not_its_own(work):
    variant = lab.apply(work, lab.Recipe([{"precision": {"layers": {"first": "int4-weights"}}}]))
    rows = {row.layer: row for row in lab.explain(work, variant, **QUICK).rows}
    assert rows["head"].output_error > 0.01
    assert rows["head"].error_added < rows["head"].output_error / 2 < rows["first"].error_added


@pytest.mark.parametrize("steps", [["fold"], ["fold", "fuse"]])
def test_a_layer_that_computes_more_than_before_is_not_compared(work, steps):
    found = errors(work, *steps)
    assert found and max(found.values()) < 1e-5 and "first" not in found


def test_an_int8_layer_that_clamps_as_its_activation_is_compared_behind_it(work):
    found = errors(work, "fold", {"precision": {"default": "int8"}})
    assert 0 < max(found.values()) < 0.1 and "first_relu" in found


def test_layers_of_another_width_are_not_compared_and_those_of_an_engine_are_its_models(work):
    narrow = errors(work, {"prune": {"layers": {"first": 0.5}}})
    assert "first" not in narrow and "head" in narrow
    engine = errors(work, {"backend": "onnxruntime"})
    assert engine["second"] == 0 and set(engine) > {"", "head"}


def test_a_norm_that_scales_little_is_no_loss_of_the_layer_it_is_folded_into(work):
    nearly = lab.Workload(Residual().eval(), work.inputs.args[0])
    nn.init.constant_(nearly.model.first_norm.weight, 1.05)
    rounded = {"precision": {"layers": {"first": "int4-weights"}}}
    found = errors(nearly, "fold", rounded)
    assert found["first_norm"] > 0.02 and "first" not in found


def test_an_int8_layer_into_which_its_activation_went_is_compared_behind_it():
    torch.manual_seed(0)
    layers = [nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 2)]
    chain = lab.Workload(nn.Sequential(*layers).eval(), torch.randn(2, 8, 8, 8))
    found = errors(chain, {"precision": {"default": "int8"}})
    assert "1" in found and "0" not in found and max(found.values()) < 0.1


class Looping(nn.Module):
    """Two layers that read each other's output, and one behind them."""

    def __init__(self):
        super().__init__()
        self.there, self.back, self.head = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for _ in range(3):
            x = self.back(self.there(x))
        return self.head(x)


def test_layers_that_read_each_other_end():
    work = lab.Workload(Looping().eval(), torch.rand(2, 4))
    pair = lab.explain(work, lab.apply(work, lab.Recipe([{"precision": "bf16"}])), **QUICK)
    known = {row.layer for row in pair.rows if row.error_added is not None}
    assert known == {"there", "back", "head"}
    assert added_errors({"head": 0.5}, lab.profile(work, **QUICK)) == {"head": 0.5}


def test_a_model_in_training_mode_is_compared_in_eval_mode_and_left_as_it_was():
    model = Residual().train()
    training = lab.Workload(model, torch.rand(2, 8, 6, 6))
    before = model.first_norm.running_mean.clone()
    found = errors(training, {"precision": {"layers": {"second": "int4-weights"}}})
    assert found["first_norm"] == 0 < found["second"]
    assert torch.equal(model.first_norm.running_mean, before) and model.first_norm.training

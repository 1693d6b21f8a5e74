"""A recipe's limit: what is past it is marked refused, and the layers to blame are named."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import RecipeError
from paifuser_lab.records import Measurement
from paifuser_lab.steps import training_step
from paifuser_lab.variant.limit import culprits, refusal


class Outlier(nn.Sequential):
    """Four layers of which the third has weights that few bits cannot hold."""

    def __init__(self) -> None:
        super().__init__(*(nn.Linear(16, 16, bias=False) for _ in range(4)))
        for layer in self:
            layer.weight.data = torch.eye(16) + 0.01 * torch.randn(16, 16)
            layer.weight.data[0] = 0  # so that nothing reaches the large weights
        self[2].weight.data[:, 0] = 50.0
        self[2].weight.data[:, 1:] *= torch.linspace(1, 2, 15)


def work(**options) -> Workload:
    return Workload(Outlier(), torch.randn(8, 16), **options)


EIGHT: dict = {"precision": {"default": "int8-weights"}}


def right_sign(predict, batches) -> float:
    return sum(
        float((predict(inputs).sign() == target).float().mean()) for inputs, target in batches
    ) / len(batches)


def test_a_variant_within_its_limit_is_not_refused():
    row = lab.compare(
        work(), fine=Recipe([{"precision": {"layers": {"0": "int8-weights"}}}]), rounds=1
    )["fine"]
    assert row.refused is None and row.relative_error > 0


def test_past_the_limit_the_row_is_refused_and_the_culprit_is_named():
    workload = work()
    recipe = Recipe([EIGHT], limit={"output_error": 0.02})
    row = lab.compare(workload, coarse=recipe, rounds=1)["coarse"]
    assert row.refused is not None
    assert "0.02 is allowed; most of it is '2': left in fp32, the output error is" in row.refused
    layers, error = culprits(lab.apply(workload, recipe))
    assert layers == ["2"] and error < row.relative_error * 0.7
    left = lab.apply(workload, recipe.with_step({"precision": {"layers": {"2": "fp32"}}}))
    assert left.reports[-1].relative_error == pytest.approx(error)
    assert left.recipe.limit == recipe.limit


def test_with_labels_the_metric_decides():
    workload = work()
    inputs = workload.inputs.args[0]
    labelled = Workload(
        workload.model, inputs, test=[(inputs, workload.output().sign())], metric=right_sign
    )
    strict = lab.compare(
        labelled, coarse=Recipe([EIGHT], limit={"output_error": 1e-9, "metric_drop": 0.9}), rounds=1
    )
    assert strict["coarse"].refused is None, (
        "the metric is known, so the output error does not matter"
    )
    refused = lab.compare(labelled, coarse=Recipe([EIGHT], limit={"metric_drop": 0}), rounds=1)
    low = refused["coarse"]
    assert low.metric < 1
    assert low.refused.startswith(f"right_sign falls by {1 - low.metric:.4f}, from 1.0000 to ")
    assert refused.best.refused is None, "what is refused is never the best, however quick"


@pytest.mark.parametrize(("lost", "is_refused"), [(0.125, False), (0.25, False), (0.375, True)])
def test_a_metric_drop_of_exactly_the_limit_is_not_refused(lost, is_refused):
    variant = lab.apply(work(), Recipe(["layout"], limit={"metric_drop": 0.25}))
    row = Measurement(name="v", threads=1, metric=0.75 - lost, relative_error=9.0)
    assert (refusal(variant, row, 0.75) is not None) is is_refused


@pytest.mark.parametrize(("now", "is_refused"), [(3.2, False), (3.4, True), (2.0, False)])
def test_a_metric_that_is_better_when_smaller_is_refused_where_it_rises(now, is_refused):
    def perplexity(predict, batches) -> float:
        return 3.0

    perplexity.smaller_is_better = True
    data = [(torch.randn(8, 16), torch.zeros(8))]
    variant = lab.apply(
        work(metric=perplexity, test=data), Recipe(["layout"], limit={"metric_drop": 0.25})
    )
    found = refusal(variant, Measurement(name="v", threads=1, metric=now), 3.0)
    assert (found is not None) is is_refused
    if found:
        assert found.startswith("perplexity rises by 0.4000, from 3.0000 to 3.4000")
    compared = lab.compare(variant.work, variant, rounds=1, seconds=1)
    assert compared.smaller_is_better and compared.trade_off.smaller_is_better


def test_a_metric_that_is_nan_is_refused_and_so_is_a_baseline_s():
    variant = lab.apply(work(), Recipe(["layout"], limit={"metric_drop": 1.0}))
    nan = Measurement(name="v", threads=1, metric=float("nan"), relative_error=0.0)
    assert refusal(variant, nan, 0.75).startswith("the metric falls by nan")
    good = Measurement(name="v", threads=1, metric=0.5, relative_error=0.0)
    assert "of the unchanged model is nan" in refusal(variant, good, float("nan"))


@pytest.mark.parametrize(("error", "is_refused"), [(0.125, False), (0.25, False), (0.375, True)])
def test_an_output_error_of_exactly_the_limit_is_not_refused(error, is_refused):
    variant = lab.apply(work(), Recipe(["layout"], limit={"output_error": 0.25}))
    row = Measurement(name="v", threads=1, relative_error=error)
    assert (refusal(variant, row, None) is not None) is is_refused


def test_the_error_of_another_step_is_attributed_to_it():
    row = lab.compare(
        work(),
        half=Recipe([{"precision": {"default": "bf16"}}], limit={"output_error": 1e-6}),
        rounds=1,
    )["half"]
    assert "step 'bf16' adds the most" in row.refused


def test_the_only_quantized_layer_is_the_culprit():
    workload = work()
    layers, error = culprits(
        lab.apply(workload, Recipe([{"precision": {"layers": {"2": "int8-weights"}}}]))
    )
    assert layers == ["2"] and error == 0


def test_finding_culprits_evicts_no_variant():
    workload = work()
    variant = lab.apply(workload, Recipe([EIGHT]))
    before = list(workload.variants)
    culprits(variant)
    assert list(workload.variants) == before


def test_a_limit_is_saved_read_and_checked(tmp_path):
    recipe = Recipe(["fold"], limit={"metric_drop": 0.02})
    again = Recipe.load(recipe.save(tmp_path / "recipe.yaml"))
    assert again.limit == recipe.limit
    assert (again + "layout").limit == recipe.limit
    assert recipe[:1].limit == recipe.limit
    assert "limit" not in Recipe(["fold"]).to_text()
    assert "limit={'metric_drop': 0.02}" in recipe.as_code()
    with pytest.raises(
        RecipeError, match=r"limit.metric_drop is -7.*a limit has metric_drop and output_error"
    ):
        Recipe(limit={"metric_drop": -7})
    with pytest.raises(RecipeError, match=r"Line 3.*limit.drop is 1"):
        Recipe.from_text("version: 1\nlimit:\n  drop: 1\nsteps: []\n")


@pytest.mark.parametrize("default", ["int8-weights", "int8"])
def test_the_culprit_of_quantization_aware_training_is_found_without_training(default, monkeypatch):
    workload = work(train=[(torch.randn(8, 16), None)] * 2)
    recipe = Recipe(
        [{"qat": {"default": default, "epochs": 1, "calibration": "mse"}}],
        limit={"output_error": 1e-3},
    )
    variant = lab.apply(workload, recipe)
    monkeypatch.setattr(training_step, "train", lambda *args, **options: pytest.fail("it trains"))
    layers, error = culprits(variant)
    plain = {"default": default, "calibration": "mse", "layers": dict.fromkeys(layers, "fp32")}
    assert layers[0] == "2"
    assert error == lab.apply(workload, Recipe([{"precision": plain}])).reports[-1].relative_error
    row = lab.compare(workload, coarse=variant, rounds=1)["coarse"]
    assert "is allowed; rounded without training, most of it is '2'" in row.refused


def test_a_refused_variant_of_a_folder_is_compared_without_training(tmp_path, monkeypatch):
    taught = work(train=[(torch.randn(8, 16), None)] * 2)
    recipe = Recipe([{"distill": {"epochs": 1}}, EIGHT], limit={"output_error": 1e-3})
    lab.apply(taught, recipe).save(tmp_path / "saved")
    monkeypatch.setattr(training_step, "train", lambda *args, **options: pytest.fail("it trains"))
    for train in (None, taught.train):
        original = Workload(taught.model, taught.inputs, train=train)
        variant = lab.Variant.load(tmp_path / "saved", original)
        row = lab.compare(original, coarse=variant, rounds=1)["coarse"]
        assert row.latency_ms and "; step '" in row.refused

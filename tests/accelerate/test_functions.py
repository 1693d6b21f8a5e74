"""Plain functions with a faster form."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import AccelerationError
from paifuser_lab.records import FasterFunctionReport


def guide(x, y):
    """The guide's example."""
    return torch.relu(x @ y.T + 0.5)


def operands():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(64, 32, generator=generator), torch.randn(48, 32, generator=generator)


def test_the_product_the_sum_and_the_activation_are_one_kernel(tmp_path):
    fused, (x, y) = lab.enable_operator_fusion(guide), operands()
    torch.testing.assert_close(fused(x, y), guide(x, y), rtol=1e-4, atol=1e-5)
    report = fused.report(x, y, seconds=0.1)
    assert (report.kernels_before, report.kernels_after) == (3, 1)
    assert report.relative_error < 1e-5 and report.before_ms > 0 and report.after_ms > 0
    assert "guide by fused product · 3 → 1 kernel" in str(report)
    assert "<table>" in report._repr_html_() and fused.__doc__ == guide.__doc__
    assert FasterFunctionReport.load(report.save(tmp_path / "report.json")) == report
    assert not lab.status().is_enabled  # a function is no training loop


def test_gradients_pass_through_the_fused_function():
    fused, (x, y) = lab.enable_operator_fusion(guide), operands()
    x.requires_grad_()
    fused(x, y).sum().backward()
    gradient, x.grad = x.grad, None
    guide(x, y).sum().backward()
    torch.testing.assert_close(gradient, x.grad)


def test_a_function_that_branches_on_its_values_is_refused_with_the_other_call_named():
    def branching(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(AccelerationError, match=r"branching cannot be traced .*enable_graph_opt"):
        lab.enable_operator_fusion(branching)


@pytest.mark.parametrize("enable", [lab.enable_operator_fusion, lab.enable_graph_optimization])
def test_a_model_is_not_taken_for_a_function(enable):
    with pytest.raises(AccelerationError, match="takes a function of tensors, not a Linear"):
        enable(nn.Linear(2, 2))


@pytest.mark.slow
def test_inductor_makes_one_kernel_of_what_is_no_product():
    def wave(x):
        return torch.relu(x * 2 + 0.5).exp() - 1

    compiled, (x, _) = lab.enable_graph_optimization(wave), operands()
    torch.testing.assert_close(compiled(x), wave(x))
    report = compiled.report(x, seconds=0.1)
    assert report.backend == "Inductor" and report.kernels_after == 1 < report.kernels_before

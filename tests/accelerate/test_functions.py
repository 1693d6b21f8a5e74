"""Plain functions with a faster form."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.accelerate import functions
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


def test_a_function_may_take_tensors_from_outside():
    x, w = operands()
    function = lambda x: torch.relu(x @ w.T + 0.5)
    fused = lab.enable_operator_fusion(function)
    torch.testing.assert_close(fused(x), function(x), rtol=1e-4, atol=1e-5)
    w.requires_grad_()
    fused(x).sum().backward()
    gradient, w.grad = w.grad, None
    function(x).sum().backward()
    torch.testing.assert_close(gradient, w.grad)


def test_a_tensor_from_outside_that_is_replaced_is_not_computed_with_any_more():
    x, w = operands()
    function = lambda x: torch.relu(x @ w.T + 0.5)
    fused = lab.enable_operator_fusion(function)
    w = w + 1
    with torch.no_grad():
        torch.testing.assert_close(fused(x), function(x), rtol=1e-4, atol=1e-5)


def test_a_function_that_branches_on_its_values_is_refused_with_the_other_call_named():
    def branching(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(AccelerationError, match=r"branching cannot be traced .*enable_graph_opt"):
        lab.enable_operator_fusion(branching)


@pytest.mark.parametrize("enable", [lab.enable_operator_fusion, lab.enable_graph_optimization])
def test_a_model_is_not_taken_for_a_function(enable):
    with pytest.raises(AccelerationError, match="takes a function of tensors, not a Linear"):
        enable(nn.Linear(2, 2))


def test_inputs_for_which_the_faster_form_was_measured_slower_are_computed_as_written(monkeypatch):
    calls = []

    def faster(x, *, scale):
        calls.append(tuple(x.shape))
        return x * scale

    function = functions.FasterFunction(lambda x, scale: x * scale, faster, "a kernel")
    small, large, scale = torch.ones(2), torch.ones(3), torch.tensor(2.0)
    monkeypatch.setattr(functions, "ratio_of_rounds", lambda before, after: (0.5, (0.4, 0.6)))
    report = function.report(small, scale=scale, seconds=0.01)
    assert "a kernel is slower for inputs of these shapes" in str(report) and report.is_slower
    calls.clear()
    assert function(small, scale=scale).tolist() == [2, 2] and calls == []
    function(large, scale=scale)
    assert calls == [(3,)], "of other shapes nothing is known"
    monkeypatch.setattr(functions, "ratio_of_rounds", lambda before, after: (0.9, (0.7, 1.1)))
    report = function.report(small, scale=scale, seconds=0.01)
    assert not report.is_slower and "is slower" not in str(report)
    calls.clear()
    function(small, scale=scale)
    assert calls == [(2,)]


def test_the_report_times_what_the_user_calls(monkeypatch):
    candidates = []

    def noted(known, **options):
        candidates.extend(known)
        return measured(known, **options)

    class Counted(functions.FasterFunction):
        calls = 0

        def __call__(self, *args, **kwargs):
            self.calls += 1
            return super().__call__(*args, **kwargs)

    measured = functions.rounds_in_turn
    monkeypatch.setattr(functions, "rounds_in_turn", noted)
    function = Counted(torch.relu, torch.relu, "the same")
    function.report(torch.ones(2), seconds=0.01)
    before = function.calls
    next(one for one in candidates if one.name == "after").call()
    assert before and function.calls == before + 1


def test_compilers_are_silenced_only_while_something_may_be_compiled(monkeypatch):
    silenced = []

    @contextmanager
    def counted():
        silenced.append(True)
        yield

    monkeypatch.setattr(functions, "compilers_silenced", counted)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    x, y = operands()
    fused = lab.enable_operator_fusion(guide)
    fused(x, y)
    assert silenced == [], "a fused product is not compiled"
    compiled = lab.enable_graph_optimization(guide)
    for _ in range(3):
        compiled(x, y)
    assert len(silenced) == 1
    compiled(x[:5], y)
    compiled(x, y.requires_grad_())
    with torch.no_grad():
        compiled(x, y)
    assert len(silenced) == 4, "each is compiled anew"


@pytest.mark.slow
def test_inductor_makes_one_kernel_of_what_is_no_product():
    def wave(x):
        return torch.relu(x * 2 + 0.5).exp() - 1

    compiled, (x, _) = lab.enable_graph_optimization(wave), operands()
    torch.testing.assert_close(compiled(x), wave(x))
    report = compiled.report(x, seconds=0.1)
    assert report.backend == "Inductor" and report.kernels_after == 1 < report.kernels_before

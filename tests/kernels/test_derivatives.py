"""Operators and their compositions have the same first and second derivatives: by torch's numerical
check, and in the curvature passes.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paifuser_lab.kernels import (
    KERNELS,
    attend_to_blocks,
    attend_windows,
    choose_blocks,
    convolve_depthwise,
    project,
)
from paifuser_lab.kernels.activation import ACTIVATIONS
from paifuser_lab.model.layers import channel_of
from paifuser_lab.saliency.curvature import slope
from paifuser_lab.saliency.select_layers import select_layers
from paifuser_lab.saliency.subject import Subject, twice_differentiable
from paifuser_lab.workload import Workload
from paifuser_lab.workload.data import sampled_batches

pytestmark = pytest.mark.usefixtures("one_thread")

SMOOTH = ("none", "silu", "gelu")
LISTED = torch.tensor([[[[1, 0], [0, -1]]]], dtype=torch.int32)


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator)


CASES = {
    "block_sparse_attention": [
        (
            randn(1, 1, 70, 2),
            randn(1, 1, 80, 2, seed=1),
            randn(1, 1, 80, 2, seed=2),
            LISTED,
            lengths,
            is_causal,
            0.7,
        )
        for lengths, is_causal in ((None, False), (torch.tensor([66], dtype=torch.int32), True))
    ],
    "depthwise": [
        (
            randn(1, 2, 4, 4),
            randn(2, 1, 3, 3),
            randn(2),
            randn(1, 2, 4, 4, seed=1),
            1,
            1,
            activation,
        )
        for activation in SMOOTH
    ],
    "pointwise": [
        (randn(2, 3), randn(4, 3), randn(4), randn(2, 4, seed=1), activation)
        for activation in SMOOTH
    ],
    "window_attention": [
        (randn(1, 4, 4, 3, 1, 2), randn(1, 9), 2, shift, 0.7) for shift in ((0, 0), (1, 1))
    ],
}
TWICE = [(name, case) for name, cases in CASES.items() for case in range(len(cases))]


def test_every_operator_with_a_gradient_is_among_the_cases():
    assert CASES.keys() == {name for name, kernel in KERNELS.items() if kernel.is_differentiable}


def leaves_of(inputs) -> list[Tensor]:
    return [value for value in inputs if isinstance(value, Tensor) and value.is_floating_point()]


def of_leaves(run, inputs):
    """The call as a function of its differentiable inputs alone."""

    def call(*leaves):
        remaining = iter(leaves)
        return run(
            *(
                next(remaining) if isinstance(x, Tensor) and x.is_floating_point() else x
                for x in inputs
            )
        )

    return call


@pytest.mark.parametrize(("name", "case"), TWICE)
def test_an_operator_is_differentiable_twice_by_torch_s_numerical_check(name, case):
    inputs = CASES[name][case]
    leaves = [leaf.clone().requires_grad_() for leaf in leaves_of(inputs)]
    assert torch.autograd.gradgradcheck(
        of_leaves(getattr(torch.ops.paifuser, name), inputs), leaves, fast_mode=True
    )


def products(run, inputs, seed=5) -> tuple[Tensor, ...]:
    """A gradient, differentiated again along a random direction."""
    leaves = [leaf.clone().requires_grad_() for leaf in leaves_of(inputs)]
    output = of_leaves(run, inputs)(*leaves)
    first = torch.autograd.grad(
        (output * randn(*output.shape, seed=seed)).sin().sum(), leaves, create_graph=True
    )
    mixed = sum((grad * randn(*grad.shape, seed=seed)).sum() for grad in first)
    return torch.autograd.grad(mixed, leaves, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize(("name", "case"), TWICE)
def test_second_derivatives_are_those_of_the_composition(name, case):
    inputs = CASES[name][case]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = products(KERNELS[name].compose, inputs)
    actual = products(getattr(torch.ops.paifuser, name), inputs)
    for product, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(product, reference)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_second_derivatives_of_every_activation_are_those_of_the_composition(activation):
    inputs = (randn(5, 3) * 3, randn(4, 3), randn(4), None, activation)
    expected = products(KERNELS["pointwise"].compose, inputs)
    actual = products(torch.ops.paifuser.pointwise, inputs)
    for product, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(product, reference)


def test_a_gradient_with_create_graph_is_differentiable():
    x = randn(1, 1, 64, 4).requires_grad_()
    kept = choose_blocks(x, x, keep=1)
    output = x + attend_to_blocks(x, x, x, kept)
    first = torch.autograd.grad(output.square().sum(), x, create_graph=True)[0]
    plain = torch.autograd.grad((x + F.scaled_dot_product_attention(x, x, x)).square().sum(), x)[0]
    torch.testing.assert_close(first, plain)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        other = torch.autograd.grad(
            (x + F.scaled_dot_product_attention(x, x, x)).square().sum(), x, create_graph=True
        )[0]
    second, expected = (torch.autograd.grad(grad.square().sum(), x)[0] for grad in (first, other))
    torch.testing.assert_close(second, expected)


def test_an_input_that_was_computed_from_another_is_not_counted_twice():
    x = randn(3, 3).requires_grad_()
    gradient, expected = (
        torch.autograd.grad(run(x, x.sin()).square().sum(), x, create_graph=True)[0]
        for run in (project, F.linear)
    )
    torch.testing.assert_close(gradient, expected)
    second, expected = (
        torch.autograd.grad(grad.square().sum(), x)[0] for grad in (gradient, expected)
    )
    torch.testing.assert_close(second, expected)


def test_a_first_gradient_keeps_no_graph():
    x, weight = randn(2, 3).requires_grad_(), randn(4, 3).requires_grad_()
    gradients = torch.autograd.grad(project(x, weight, activation="gelu").sum(), (x, weight))
    assert not any(gradient.requires_grad for gradient in gradients)


class Mixed(nn.Module):
    """Every operator that has a gradient, or its composition, on an image of 8 × 8."""

    def __init__(self, is_composed: bool) -> None:
        super().__init__()
        self.is_composed = is_composed
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.up, self.down = nn.Linear(4, 12), nn.Linear(4, 3)
        self.bias = nn.Parameter(torch.zeros(1, 49))
        self.register_buffer("kept", torch.zeros(1, 1, 1, 1, dtype=torch.int32))

    def run(self, name, *inputs):
        kernel = KERNELS[name].compose if self.is_composed else getattr(torch.ops.paifuser, name)
        return kernel(*inputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.run("depthwise", x, self.depthwise.weight, self.depthwise.bias, x, 1, 1, "silu")
        tokens = x.permute(0, 2, 3, 1)
        qkv = self.run("pointwise", tokens, self.up.weight, self.up.bias, None, "gelu").reshape(
            *tokens.shape[:3], 3, 1, 4
        )
        tokens = tokens + self.run("window_attention", qkv, self.bias, 4, (2, 2), 0.5)
        flat = tokens.reshape(len(x), 1, -1, 4)
        kept = self.kept.expand(len(x), -1, -1, -1).contiguous()
        mixed = self.run("block_sparse_attention", flat, flat, flat, kept, None, False, 0.5)
        return self.down(mixed.mean((1, 2)))


def curvature_of(is_composed: bool) -> dict[str, Tensor]:
    """The Hessian of a batch's loss times random vectors, by layer and over all layers jointly."""
    torch.manual_seed(0)
    model = Mixed(is_composed).double()
    data = [(randn(2, 4, 8, 8), torch.tensor([0, 2]))]
    work = Workload(model, data[0][0], name="mixed", loss=F.cross_entropy, train=data)
    subject = Subject(
        work,
        select_layers(work, None, channel_of, "weights").layers,
        ("int4-weights",),
        sampled_batches(work, None, 0),
    )
    with twice_differentiable(model):
        subject.watch()
        curve = slope(subject, subject.batches[0], subject.layers)
        vectors = {name: randn(*points[0].shape, seed=9) for name, points in curve.points.items()}
        alone = {f"{name} alone": curve.product(name, vector) for name, vector in vectors.items()}
        return alone | curve.joint_products(vectors)


def test_the_curvature_passes_over_a_model_of_operators_equal_those_over_the_composition():
    actual, expected = curvature_of(is_composed=False), curvature_of(is_composed=True)
    assert actual.keys() == expected.keys() and actual
    for name, product in actual.items():
        torch.testing.assert_close(product, expected[name])
        assert product.abs().max() > 0


def test_windows_and_images_are_differentiable_twice_through_their_own_functions():
    qkv, bias = randn(1, 2, 2, 3, 1, 2).requires_grad_(), randn(1, 9).requires_grad_()
    x, weight = randn(1, 1, 3, 3).requires_grad_(), randn(1, 1, 3, 3).requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda *inputs: attend_windows(*inputs, window=2), (qkv, bias), fast_mode=True
    )
    assert torch.autograd.gradgradcheck(
        lambda *inputs: convolve_depthwise(*inputs), (x, weight), fast_mode=True
    )

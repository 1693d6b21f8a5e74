"""Operators are differentiated twice as the composition is: by torch's numerical check, and in the
curvature passes.
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
from paifuser_lab.saliency.curvature import slope
from paifuser_lab.saliency.perturb import twice_differentiable
from paifuser_lab.saliency.select_layers import candidates, usable_layers
from paifuser_lab.saliency.subject import Subject
from paifuser_lab.workload import Workload
from paifuser_lab.workload.data import sampled_batches

pytestmark = pytest.mark.usefixtures("one_thread")

SMOOTH = ("none", "silu", "gelu")
LISTED = torch.tensor([[[[1, 0], [0, -1]]]], dtype=torch.int32)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator)


CASES = {
    "block_sparse_attention": [
        (
            drawn(1, 1, 70, 2),
            drawn(1, 1, 80, 2, seed=1),
            drawn(1, 1, 80, 2, seed=2),
            LISTED,
            lengths,
            is_causal,
            0.7,
        )
        for lengths, is_causal in ((None, False), (torch.tensor([66], dtype=torch.int32), True))
    ],
    "depthwise": [
        (
            drawn(1, 2, 4, 4),
            drawn(2, 1, 3, 3),
            drawn(2),
            drawn(1, 2, 4, 4, seed=1),
            1,
            1,
            activation,
        )
        for activation in SMOOTH
    ],
    "pointwise": [
        (drawn(2, 3), drawn(4, 3), drawn(4), drawn(2, 4, seed=1), activation)
        for activation in SMOOTH
    ],
    "window_attention": [
        (drawn(1, 4, 4, 3, 1, 2), drawn(1, 9), 2, shift, 0.7) for shift in ((0, 0), (1, 1))
    ],
}
TWICE = [(name, case) for name, cases in CASES.items() for case in range(len(cases))]


def test_every_operator_with_a_gradient_is_among_the_cases():
    assert CASES.keys() == {name for name, kernel in KERNELS.items() if kernel.is_differentiable}


def leaves_of(inputs) -> list[Tensor]:
    return [one for one in inputs if isinstance(one, Tensor) and one.is_floating_point()]


def of_leaves(run, inputs):
    """The same call as a function of what has a gradient alone."""

    def call(*leaves):
        given = iter(leaves)
        return run(
            *(
                next(given) if isinstance(one, Tensor) and one.is_floating_point() else one
                for one in inputs
            )
        )

    return call


@pytest.mark.parametrize(("name", "case"), TWICE)
def test_an_operator_is_differentiable_twice_by_torch_s_numerical_check(name, case):
    inputs = CASES[name][case]
    leaves = [one.clone().requires_grad_() for one in leaves_of(inputs)]
    assert torch.autograd.gradgradcheck(
        of_leaves(getattr(torch.ops.paifuser, name), inputs), leaves, fast_mode=True
    )


def products(run, inputs, seed=5) -> tuple[Tensor, ...]:
    """A gradient, differentiated again along a drawn direction."""
    leaves = [one.clone().requires_grad_() for one in leaves_of(inputs)]
    made = of_leaves(run, inputs)(*leaves)
    first = torch.autograd.grad(
        (made * drawn(*made.shape, seed=seed)).sin().sum(), leaves, create_graph=True
    )
    mixed = sum((one * drawn(*one.shape, seed=seed)).sum() for one in first)
    return torch.autograd.grad(mixed, leaves, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize(("name", "case"), TWICE)
def test_second_derivatives_are_those_of_the_composition(name, case):
    inputs = CASES[name][case]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = products(KERNELS[name].compose, inputs)
    for one, other in zip(
        products(getattr(torch.ops.paifuser, name), inputs), expected, strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_with_corners_bends_as_the_composition_does(activation):
    inputs = (drawn(5, 3) * 3, drawn(4, 3), drawn(4), None, activation)
    expected = products(KERNELS["pointwise"].compose, inputs)
    for one, other in zip(products(torch.ops.paifuser.pointwise, inputs), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_gradient_kept_with_its_graph_is_not_a_constant():
    x = drawn(1, 1, 64, 4).requires_grad_()
    kept = choose_blocks(x, x, keep=1)
    made = x + attend_to_blocks(x, x, x, kept)
    first = torch.autograd.grad(made.square().sum(), x, create_graph=True)[0]
    plain = torch.autograd.grad((x + F.scaled_dot_product_attention(x, x, x)).square().sum(), x)[0]
    torch.testing.assert_close(first, plain)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        other = torch.autograd.grad(
            (x + F.scaled_dot_product_attention(x, x, x)).square().sum(), x, create_graph=True
        )[0]
    found, expected = (torch.autograd.grad(one.square().sum(), x)[0] for one in (first, other))
    torch.testing.assert_close(found, expected)


def test_an_input_that_was_computed_from_another_is_not_counted_twice():
    x = drawn(3, 3).requires_grad_()
    found, expected = (
        torch.autograd.grad(run(x, x.sin()).square().sum(), x, create_graph=True)[0]
        for run in (project, F.linear)
    )
    torch.testing.assert_close(found, expected)
    found, expected = (torch.autograd.grad(one.square().sum(), x)[0] for one in (found, expected))
    torch.testing.assert_close(found, expected)


def test_a_first_gradient_keeps_no_graph():
    x, weight = drawn(2, 3).requires_grad_(), drawn(4, 3).requires_grad_()
    found = torch.autograd.grad(project(x, weight, activation="gelu").sum(), (x, weight))
    assert not any(one.requires_grad for one in found)


class Mixed(nn.Module):
    """Every operator that has a gradient, or what it is composed of, on an image of 8 × 8."""

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
    """The Hessian of a batch's loss times drawn vectors, layer by layer and over all together."""
    torch.manual_seed(0)
    model = Mixed(is_composed).double()
    data = [(drawn(2, 4, 8, 8), torch.tensor([0, 2]))]
    work = Workload(model, data[0][0], name="mixed", loss=F.cross_entropy, train=data)
    subject = Subject(
        work,
        usable_layers(dict(candidates(work))),
        ("int4-weights",),
        sampled_batches(work, None, 0),
    )
    with twice_differentiable(model):
        subject.watch()
        seen = slope(subject, subject.batches[0], subject.layers)
        vectors = {name: drawn(*points[0].shape, seed=9) for name, points in seen.points.items()}
        alone = {f"{name} alone": seen.product(name, vector) for name, vector in vectors.items()}
        return alone | seen.joint_products(vectors)


def test_the_curvature_passes_over_a_model_of_operators_equal_those_over_the_composition():
    found, expected = curvature_of(is_composed=False), curvature_of(is_composed=True)
    assert found.keys() == expected.keys() and found
    for name, product in found.items():
        torch.testing.assert_close(product, expected[name])
        assert product.abs().max() > 0


def test_windows_and_images_are_differentiable_twice_through_their_own_functions():
    qkv, bias = drawn(1, 2, 2, 3, 1, 2).requires_grad_(), drawn(1, 9).requires_grad_()
    x, weight = drawn(1, 1, 3, 3).requires_grad_(), drawn(1, 1, 3, 3).requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda *given: attend_windows(*given, window=2), (qkv, bias), fast_mode=True
    )
    assert torch.autograd.gradgradcheck(
        lambda *given: convolve_depthwise(*given), (x, weight), fast_mode=True
    )

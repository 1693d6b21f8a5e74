"""Slopes, Hessian products, traces and spectra, against torch's own exact Hessian on nets that are
small enough for it.
"""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from paifuser_lab.errors import MeasureError
from paifuser_lab.model.layers import channel_of
from paifuser_lab.saliency import probes
from paifuser_lab.saliency.curvature import Slope, slope
from paifuser_lab.saliency.methods.spectrum import density, top_eigenvalues
from paifuser_lab.saliency.select_layers import select_layers
from paifuser_lab.saliency.subject import Key, Subject, twice_differentiable
from paifuser_lab.workload import Workload
from paifuser_lab.workload.data import sampled_batches

pytestmark = pytest.mark.usefixtures("one_thread")

DRAWN = settings(max_examples=15, deadline=None)


def small(hidden: int = 5, *, seed: int = 0) -> Workload:
    """Two layers and a smooth loss, in double precision."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 3)).double()
    data = [(torch.randn(6, 4).double(), torch.randint(0, 3, (6,))) for _ in range(3)]
    return Workload(model, data[0][0], name="small", loss=F.cross_entropy, train=data)


def subject_of(work: Workload) -> Subject:
    subject = Subject(
        work,
        select_layers(work, None, channel_of, "weights").layers,
        ("int4-weights",),
        sampled_batches(work, None, 0),
    )
    with twice_differentiable(work.model):
        subject.watch()
    return subject


def slope_of(work: Workload, *, with_inputs: tuple[str, ...] = ()) -> tuple[Subject, Slope]:
    subject = subject_of(work)
    with twice_differentiable(work.model):
        return subject, slope(subject, subject.batches[0], subject.layers, with_inputs=with_inputs)


def exact_block(subject: Subject, layer: str) -> Tensor:
    """The Hessian of the first batch in one layer's weights, as a matrix."""
    batch, name = subject.batches[0], f"{layer}.weight"
    weight = subject.layers[layer].weight

    def loss(values: Tensor) -> Tensor:
        answer = torch.func.functional_call(subject.work.model, {name: values}, batch.inputs.args)
        return subject.work.loss(answer, batch.target)

    return torch.func.hessian(loss)(weight).detach().reshape(weight.numel(), weight.numel())


@pytest.mark.parametrize("layer", ["0", "2"])
def test_products_with_unit_vectors_are_the_columns_of_the_exact_block(layer):
    subject, seen = slope_of(small())
    block, like = seen.flat_block(layer)
    columns = torch.stack([block(unit) for unit in torch.eye(like.numel()).double()], dim=1)
    torch.testing.assert_close(columns, exact_block(subject, layer))


def test_a_joint_product_is_that_of_the_whole_hessian_and_not_of_its_blocks_alone():
    subject, seen = slope_of(small())
    vectors = {name: torch.randn_like(seen.points[name][0]) for name in subject.layers}
    batch = subject.batches[0]

    def loss(values: dict[str, Tensor]) -> Tensor:
        return subject.work.loss(
            torch.func.functional_call(subject.work.model, values, batch.inputs.args), batch.target
        )

    weights = {f"{name}.weight": subject.layers[name].weight for name in vectors}
    _, exact = torch.func.jvp(
        torch.func.grad(loss),
        (weights,),
        ({f"{name}.weight": one for name, one in vectors.items()},),
    )
    for name, product in seen.joint_products(vectors).items():
        torch.testing.assert_close(product, exact[f"{name}.weight"])
        assert not torch.allclose(product, seen.product(name, vectors[name]))


@DRAWN
@given(seed=st.integers(0, 99), hidden=st.integers(1, 6))
def test_the_rise_along_weights_and_inputs_together_is_the_exact_taylor_sum(seed, hidden):
    work = small(hidden, seed=seed)
    subject, seen = slope_of(work, with_inputs=("2",))
    weight, given = (point.detach() for point in seen.points["2"])
    moves = torch.randn_like(weight), torch.randn_like(given)
    target, bias = subject.batches[0].target, work.model[2].bias.detach()

    def loss(step: Tensor) -> Tensor:
        return F.cross_entropy(
            F.linear(given + step * moves[1], weight + step * moves[0], bias), target
        )

    still = torch.zeros((), dtype=torch.float64)
    first, second = seen.rise("2", moves)
    assert first == pytest.approx(float(torch.func.grad(loss)(still)), abs=1e-9)
    assert second == pytest.approx(float(torch.func.hessian(loss)(still)), abs=1e-9)


@DRAWN
@given(seed=st.integers(0, 99))
def test_the_second_order_is_exact_where_the_loss_is_quadratic_in_a_layer(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    data = [(torch.randn(5, 3).double(), torch.randn(5, 2).double())]
    subject, seen = slope_of(Workload(model, data[0][0], loss=F.mse_loss, train=data))
    key = Key("2", "int4-weights")
    first, second = seen.rise("2", [subject.weight_change(key)])
    with torch.no_grad(), subject.rounded(key):
        after = subject.checked_loss(subject.batches[0])
    assert first + second / 2 == pytest.approx(
        after - subject.checked_loss(subject.batches[0]), abs=1e-10
    )


def test_a_skip_connection_is_not_part_of_a_layers_input():
    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(3, 3, bias=False)

        def forward(self, x):
            return x + self.line(x)

    model = Skipping().double()
    data = [(torch.randn(2, 3).double(), torch.randn(2, 3).double())]
    _, seen = slope_of(
        Workload(model, data[0][0], loss=lambda answer, target: answer.sum(), train=data),
        with_inputs=("line",),
    )
    torch.testing.assert_close(
        seen.gradients["line"][1], model.line.weight.detach().sum(0).expand(2, 3)
    )


def matrix(eigenvalues: list[float], *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(
        torch.randn(len(eigenvalues), len(eigenvalues), generator=generator).double()
    )[0]
    return turn @ torch.diag(torch.tensor(eigenvalues).double()) @ turn.T


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@DRAWN
@given(
    values=st.lists(
        st.floats(-10, 10).map(lambda eigenvalue: round(eigenvalue, 1)), min_size=1, max_size=24
    ),
    seed=st.integers(0, 9),
)
def test_top_eigenvalues_are_numpys(values, seed):
    symmetric = matrix(values, seed=seed)
    eigenvalues = top_eigenvalues(
        lambda v: symmetric @ v, symmetric[0], 2, error=1e-6, steps=60, generator=seeded(seed)
    )
    exact = numpy.linalg.eigvalsh(symmetric.numpy())
    assert abs(eigenvalues[0]) == pytest.approx(abs(exact).max(), abs=1e-4)
    assert all(abs(exact - eigenvalue).min() < 1e-4 for eigenvalue in eigenvalues)


def test_the_density_has_the_matrixs_moments():
    values = [9.0, 4.0] + [0.1 * index for index in range(28)]
    symmetric = matrix(values)
    nodes = density(lambda v: symmetric @ v, symmetric[0], probes=200, steps=8, generator=seeded())
    assert sum(share for _, share in nodes) == pytest.approx(1.0)
    assert sum(value * share for value, share in nodes) == pytest.approx(
        numpy.mean(values), rel=0.05
    )
    assert max(value for value, _ in nodes) == pytest.approx(9.0, rel=1e-3)


def test_the_probe_method_with_the_lowest_cost_for_its_variance_is_chosen(monkeypatch):
    _, seen = slope_of(small())
    truth = {"0": 4.0, "2": 2.0}
    rolls = {"calm": [0.9, 1.1, 1.0], "wild": [0.1, 1.9, 1.0]}

    def probe_method(kind: str, ticks: float):
        turns = iter(rolls[kind] * 9)

        def probe(slope, layers, generator):
            clock[0] += ticks
            factor = next(turns)
            return {name: truth[name] * factor for name in layers}

        return probe

    clock = [0.0]
    monkeypatch.setattr(probes.time, "perf_counter", lambda: clock[0])
    for cost, expected in ((5.0, 1), (200.0, 0)):
        methods = probe_method("wild", 1.0), probe_method("calm", cost)
        for name, method in zip(("joint", "layer_by_layer"), methods, strict=True):
            monkeypatch.setattr(probes, name, method)
        monkeypatch.setattr(probes, "NAMES", dict(zip(methods, ("joint", "single"), strict=True)))
        method, note, traces = probes.choose_method(seen, ["0", "2"], seeded())
        assert method is methods[expected]
        assert traces == pytest.approx(truth) and "spread" in note


def test_every_probe_method_has_the_exact_trace_as_its_mean():
    subject, seen = slope_of(small())
    exact = {name: float(exact_block(subject, name).trace()) for name in subject.layers}
    generator = seeded()
    for method in (probes.joint, probes.layer_by_layer):
        drawn = [method(seen, list(exact), generator) for _ in range(60)]
        for name, trace in exact.items():
            values = torch.tensor([probe[name] for probe in drawn])
            assert abs(values.mean() - trace) < 4 * values.std() / 60**0.5 + 1e-6


def test_attention_has_a_second_derivative_and_its_fast_paths_are_restored():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).double()
    data = [(torch.randn(2, 3, 8).double(), torch.randn(2, 3, 8).double())]
    work = Workload(layer, data[0][0], name="attention", loss=F.mse_loss, train=data)
    before = torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    subject = subject_of(work)
    with twice_differentiable(layer):
        seen = slope(subject, subject.batches[0], ["linear1"])
    block, like = seen.flat_block("linear1")
    vector = torch.randn_like(like)
    name, weight = "linear1.weight", subject.layers["linear1"].weight

    def loss(values: Tensor) -> Tensor:
        return F.mse_loss(
            torch.func.functional_call(layer.eval(), {name: values}, (data[0][0],)), data[0][1]
        )

    with twice_differentiable(layer):
        exact = torch.func.vjp(torch.func.grad(loss), weight)[1](vector.reshape(weight.shape))[0]
    torch.testing.assert_close(block(vector), exact.flatten())
    assert (
        torch.backends.mha.get_fastpath_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
    ) == before


def test_a_loss_without_a_second_derivative_raises_one_sentence():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(context, gradient):
            return gradient

    work = small()
    work.loss = lambda answer, target: Once.apply(answer).square().sum()
    with pytest.raises(
        MeasureError, match=r"cannot be differentiated as required .*use methods=\('ablation',\)"
    ):
        slope_of(work)

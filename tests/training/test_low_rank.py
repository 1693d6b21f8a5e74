"""Distillation that trains additions of low rank: only linear layers change, by so much, and the
model is as plain afterwards as before.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab.errors import StepError
from paifuser_lab.training.low_rank import low_rank
from tests.support.models import Conv1D

pytestmark = pytest.mark.usefixtures("one_thread")


class Tied(nn.Module):
    """An embedding whose weight is the head's too, around two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
        self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        return self.head(x + self.narrow(self.wide(x).relu()))


def work() -> lab.Workload:
    torch.manual_seed(0)
    tokens = torch.randint(12, (6, 4, 5))
    train = [(batch, batch.roll(-1, 1)) for batch in tokens]
    loss = lambda output, target: F.cross_entropy(output.flatten(0, 1), target.flatten())
    return lab.Workload(Tied().eval(), tokens[0], train=train, loss=loss, name="tied")


def distilled(work: lab.Workload, **options: object) -> lab.Variant:
    step = {"distill": {"epochs": 2, "learning_rate": 0.05, "hard": 1.0} | options}
    return lab.apply(work, lab.Recipe([step]))


def test_only_linear_layers_of_their_own_weight_change_and_by_the_rank():
    subject = work()
    variant = distilled(subject, rank=2)
    before, after = subject.model.state_dict(), variant.module.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"wide.weight", "narrow.weight"} and [*after] == [*before]
    for name in changed:
        assert torch.linalg.matrix_rank(after[name] - before[name], rtol=1e-3) == 2
    assert variant.module.head.weight is variant.module.tokens.weight
    assert [*map(type, variant.module.modules())] == [*map(type, subject.model.modules())]
    assert all(weight.requires_grad for weight in variant.module.parameters())
    (note,) = (note for note in variant.notes if "rank 2" in note)
    assert "trained 96 numbers" in note and "2 linear layers" in note  # 2 × (8 + 16) each


def test_the_loss_falls_and_the_same_seed_gives_the_same_weights():
    subject = work()
    first, again = (distilled(work(), rank=4, epochs=8) for _ in range(2))
    assert first.weights_hash == again.weights_hash
    with torch.no_grad():
        losses = [
            sum(float(subject.loss(model(x), y)) for x, y in subject.train)
            for model in (subject.model, first.module)
        ]
    assert losses[1] < 0.95 * losses[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**32))
def test_what_was_learned_is_folded_in_exactly(rank, seed):
    torch.manual_seed(seed)
    model, tokens = Tied().eval(), torch.randint(12, (3, 5))
    weights = [
        weight.requires_grad_(index % 2 == 0) for index, weight in enumerate(model.parameters())
    ]
    frozen = [not weight.requires_grad for weight in weights]
    plain = model(tokens)
    with torch.no_grad(), low_rank(model, rank, seed):
        assert torch.equal(model(tokens), plain)  # nothing is added at first
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        assert len(trained) == 4
        for weight in trained:
            weight.normal_()
        learned = model(tokens)
    assert torch.equal(model(tokens), learned) and not torch.equal(learned, plain)
    assert [not weight.requires_grad for weight in model.parameters()] == frozen


def test_gpt2_s_linear_layers_are_trained_too():
    model, x = nn.Sequential(Conv1D(16, 8), nn.ReLU(), Conv1D(3, 16)), torch.randn(5, 8)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad(), low_rank(model, 2, 0) as note:
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) if weight.requires_grad else 0)
        learned = model(x)
    after = model.state_dict()
    assert "2 linear layers" in note and torch.equal(model(x), learned)
    assert [*after] == [*before] and type(model[0]) is Conv1D
    assert torch.linalg.matrix_rank(after["0.weight"] - before["0.weight"], rtol=1e-3) == 2


def test_a_model_without_linear_layers_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    subject = lab.Workload(
        model.eval(), torch.randn(2, 3, 8, 8), train=[(torch.randn(2, 3, 8, 8), None)], name="conv"
    )
    with pytest.raises(StepError, match="no linear layer with a weight of its own; leave `rank`"):
        distilled(subject, rank=2, hard=0.0)

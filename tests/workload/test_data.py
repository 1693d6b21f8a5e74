"""Train data: lists, loaders of any kind, and unsupported sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import paifuser_lab as lab
from paifuser_lab.errors import StepError
from paifuser_lab.workload.data import Batch, Batches, first_batches, samples_of
from tests.support.models import Small, images
from tests.support.training_runs import COUNT, loader

CPU = torch.device("cpu")
PAIRS = [
    (torch.full((2, 3, 8, 8), number / 10), torch.tensor([0, number % 5])) for number in range(6)
]


class Endless(IterableDataset[Any]):
    """An iterable without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(PAIRS)


class Placed:
    """A list with a length whose indexing never raises."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return PAIRS[index % 3]


class Failing:
    def __iter__(self) -> Iterator[Any]:
        yield PAIRS[0]
        raise OSError("the disk is gone")


def work_of(train: Any, model: nn.Module | None = None) -> lab.Workload:
    torch.manual_seed(0)
    return lab.Workload(
        model or Small().eval(),
        images(),
        name="small",
        loss=nn.functional.cross_entropy,
        train=train,
    )


def applied(train: Any, *steps: Any) -> lab.Variant:
    return lab.apply(work_of(train), lab.Recipe(list(steps)))


def shuffled() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(7)
    examples = [(torch.randn(3, 8, 8, generator=generator), number % 5) for number in range(24)]
    return DataLoader(examples, batch_size=4, shuffle=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "step", [{"prune": {"ratio": 0.5}}, {"precision": {"default": "int8"}}, {"qat": {"epochs": 1}}]
)
def test_a_loader_without_a_length_can_be_used(step):
    assert applied(DataLoader(Endless(), batch_size=None), step).notes


def test_a_list_that_knows_only_its_length_ends_there():
    assert len(list(first_batches(Placed(), CPU, "train data"))) == 3


@pytest.mark.parametrize(
    "step", [{"prune": {"ratio": 0.5, "importance": "taylor"}}, {"precision": {"default": "int8"}}]
)
def test_a_loader_that_shuffles_gives_the_same_model_each_time_and_draws_nothing(step):
    loader, hashes = shuffled(), set()
    for start in range(3):
        torch.manual_seed(start)
        work = work_of(loader)
        torch.manual_seed(start)
        expected = torch.rand(1)
        torch.manual_seed(start)
        hashes.add(lab.apply(work, lab.Recipe([step])).weights_hash)
        assert torch.equal(torch.rand(1), expected)
    assert len(hashes) == 1


def test_sensitivity_and_importance_use_the_same_batches_of_a_shuffling_loader():
    loader = shuffled()
    for look in (lab.importance, lambda work: lab.sensitivity(work, formats=("int4-weights",))):
        rows = []
        for start in range(2):
            work = work_of(loader)
            torch.manual_seed(start)
            rows.append(look(work).rows)
        assert rows[0] == rows[1]


def test_the_generator_of_a_loader_is_restored():
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    examples = [(torch.zeros(3), 0)] * 8
    loader: Any = DataLoader(examples, shuffle=True, generator=generator)  # type: ignore[arg-type]
    assert list(first_batches(loader, CPU, "train data"))
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            Failing(),
            r"the train data of small fail at batch 1 \(OSError: the disk is gone\); correct them",
        ),
        (
            [(1, 2, 3)],
            r"batch 0 of the train data of small is a tuple of 3; let it be \(inputs, target\)",
        ),
        ([PAIRS[0][0]], "batch 0 of the train data of small is a Tensor; let it be"),
        (7, "the train data of small are a int; give a list"),
        ([], "the train data of small hold no batch; give at least one pair"),
        (
            [(PAIRS[0][0] * float("nan"), PAIRS[0][1])],
            "'taylor' cannot be estimated: the loss of small is nan on batch 0; fix the model",
        ),
    ],
)
def test_wrong_data_are_reported_before_a_channel_is_removed(train, message):
    with pytest.raises(StepError, match=message):
        applied(train, {"prune": {"ratio": 0.5}})


def test_pruning_rounded_layers_reports_the_right_order_of_steps():
    with pytest.raises(
        StepError, match=r"no layer .* in floating point; put 'prune' before 'precision' and 'qat'"
    ):
        applied(PAIRS, {"precision": {"default": "int8"}}, {"prune": {"ratio": 0.5}})


def test_batches_come_in_the_order_of_the_list():
    batches: list[Tensor] = [
        inputs.tensors[0] for inputs, _ in first_batches(PAIRS, CPU, "train data")
    ]
    assert all(
        torch.equal(batch, images) for batch, (images, _) in zip(batches, PAIRS, strict=True)
    )


def test_only_the_first_rows_of_train_data_are_learned_from_and_of_example_inputs_all():
    joined = samples_of(work_of(PAIRS))
    assert (joined.count, joined.learned) == (12, 9)
    assert torch.equal(joined.first(joined.learned).tensors[0], joined.inputs.tensors[0][:9])
    examples = samples_of(lab.Workload(Small().eval(), images(8)))
    assert examples.learned == 6 and examples.first(examples.learned).tensors[0].shape[0] == 8


def test_mapped_batches_of_a_loader_without_a_length_are_not_counted_again():
    class Counted:
        reads = 0

        def __iter__(self) -> Iterator[Any]:
            self.reads += 1
            return iter(PAIRS)

    source = Counted()
    batches = Batches(source, CPU)
    mapped = batches.mapped(lambda batch: Batch(batch.inputs))
    assert source.reads == 1 and mapped.count == batches.count == 6
    assert all(batch.target is None for batch in mapped.epoch(0, 0))
    assert all(batch.target is not None for batch in batches.epoch(0, 0))


def failing(output: Tensor, target: Tensor) -> Tensor:
    raise ValueError("odd target")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            failing,
            r"the loss of small fails on batch \d: odd target; "
            r"it is called as loss\(output, target\)",
        ),
        (
            nn.CrossEntropyLoss(reduction="none"),
            r"'taylor' .*shape \(2,\); let it return one number",
        ),
        (lambda output, target: 1.0, "'taylor' has no gradient"),
    ],
)
def test_a_loss_without_a_gradient_is_reported(loss, message):
    work = work_of(PAIRS)
    work.loss = loss
    with pytest.raises(StepError, match=message):
        lab.apply(work, lab.Recipe([{"prune": {"ratio": 0.5}}]))
    assert all(weight.requires_grad for weight in work.model.parameters())


def test_the_batch_at_which_a_loader_without_a_length_fails_is_named():
    with pytest.raises(StepError, match="the train data fail at batch 1 "):
        applied(Failing(), {"distill": {"epochs": 1}})


def test_a_loader_with_persistent_workers_draws_the_same_each_time_and_can_be_sent_afterwards():
    source = loader(num_workers=1, persistent_workers=True)
    batches = Batches(source, CPU)
    first, second = (
        torch.cat([batch.inputs.tensors[0] for batch in batches.epoch(0, 0)]) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert len(list(first_batches(source, CPU, "train data"))) == COUNT
    assert cloudpickle.dumps(source)

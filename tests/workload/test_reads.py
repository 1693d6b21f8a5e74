"""A caller that uses four batches of a loader of a million reads four of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.attention.block_lists import Sparsity
from paifuser_lab.attention.discover import lists_from_data
from paifuser_lab.errors import DataError, MeasureError, StepError
from paifuser_lab.planner.precision import costs
from paifuser_lab.workload.data import (
    Batches,
    calibration_batches,
    first_batches,
    sampled,
    sampled_batches,
    samples_of,
)
from tests.support.models import Small, images

CPU = torch.device("cpu")
MANY = 1_000_000
pytestmark = pytest.mark.usefixtures("one_thread")


def batch(index: int, examples: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(index)
    return (
        torch.randn(examples, 3, 8, 8, generator=generator),
        torch.arange(examples) % 5,
    )


class Loader:
    """A loader that counts the batches that are read; without a length."""

    def __init__(self, count: int = MANY, examples: int = 2) -> None:
        self.count, self.examples, self.read, self.furthest = count, examples, 0, 0

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.count):
            self.read += 1
            self.furthest = max(self.furthest, index + 1)
            yield batch(index, self.examples)


class Sized(Loader):
    """The same with a length."""

    def __len__(self) -> int:
        return self.count


class Listed:
    """A list of as many batches, each created when it is read."""

    def __init__(self) -> None:
        self.read = 0
        self.numbers: set[int] = set()

    def __len__(self) -> int:
        return MANY

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        self.numbers.add(index)
        return batch(index)


def work_of(train: Any = None, **more: Any) -> lab.Workload:
    torch.manual_seed(0)
    options: dict[str, Any] = {"loss": nn.functional.cross_entropy, "train": train, **more}
    return lab.Workload(Small().eval(), images(), name="small", **options)


def precision(work: lab.Workload, **options: Any) -> None:
    lab.apply(work, lab.Recipe([{"precision": {"default": "int8", "batches": 4, **options}}]))


def drawn(work: lab.Workload, count: int) -> list[Any]:
    batches = sampled_batches(work, count, 0)
    return [batches[index] for index in range(count)]


USES = {
    "calibration": precision,
    "calibration by histogram": lambda work: precision(work, calibration="mse"),
    "compensation": lambda work: precision(work, compensate=["rounding", "bias"]),
    "importance": lambda work: lab.importance(work, batches=4),
    "importance by activation": lambda work: lab.importance(work, "activation", batches=4),
    "sensitivity": lambda work: lab.sensitivity(work, batches=4),
    "sensitivity by several methods": lambda work: lab.sensitivity(
        work, methods=("quadratic", "ablation", "output"), formats=("int4-weights",), batches=4
    ),
    "calibration batches": lambda work: calibration_batches(work, 4),
    "sampled batches": lambda work: drawn(work, 4),
    "first batches": lambda work: list(islice(first_batches(work.train, CPU, "train data"), 4)),
}


@pytest.mark.parametrize("kind", [Loader, Sized])
@pytest.mark.parametrize("use", USES)
def test_using_four_batches_of_a_loader_of_a_million_reads_four(use: str, kind: Any) -> None:
    loader = kind()
    USES[use](work_of(loader))
    assert (loader.read, loader.furthest) == (4, 4)


@pytest.mark.parametrize("use", [name for name in USES if name not in ("sensitivity",)])
def test_using_four_batches_of_a_list_of_a_million_reads_four(use: str) -> None:
    listed = Listed()
    USES[use](work_of(listed))
    assert len(listed.numbers) == 4


@pytest.mark.parametrize("kind", [Loader, Sized])
def test_prune_reads_the_sixteen_batches_that_importance_is_estimated_on(kind: Any) -> None:
    loader = kind()
    step = {"prune": {"ratio": 0.5, "importance": "taylor", "repair": []}}
    lab.apply(work_of(loader), lab.Recipe([step]))
    shown = kind()
    lab.importance(work_of(shown), "taylor")
    assert (loader.read, loader.furthest) == (16, 16) == (shown.read, shown.furthest)


def test_ranges_of_int8_inputs_are_taken_from_sixteen_batches_of_a_list_as_documented() -> None:
    listed = Listed()
    lab.sensitivity(work_of(listed), batches=4)
    assert len(listed.numbers) == 16
    assert "16 batches" in " ".join((lab.sensitivity.__doc__ or "").split())


def test_test_data_are_used_without_train_data() -> None:
    loader = Sized()
    precision(work_of(test=loader))
    assert loader.read == 4


def test_a_refit_reads_only_the_batches_that_fit_into_its_examples() -> None:
    loader = Loader(examples=80)
    samples = samples_of(work_of(loader))
    assert samples.count == 320 and loader.read == 4
    large, short = Loader(examples=500), Loader(count=2, examples=80)
    assert samples_of(work_of(large)).count == 500 and large.read == 1
    assert samples_of(work_of(short)).count == 160 and short.read == 2


@pytest.mark.parametrize("repair", ["least-squares", "batch-norm"])
def test_the_refit_of_prune_reads_only_its_batches(repair: str) -> None:
    loader = Loader(examples=80)
    step = {"prune": {"ratio": 0.5, "importance": "magnitude", "repair": [repair]}}
    lab.apply(work_of(loader), lab.Recipe([step]))
    assert loader.furthest == 4 and loader.read == 4


def test_lists_of_attention_read_sixteen_examples() -> None:
    loader = Loader(examples=4)
    lists_from_data(nn.Identity(), work_of(loader), ["x"], Sparsity("local", 0.5))
    assert loader.read == 0, "only kind block looks at data"
    assert samples_of(work_of(loader), 16).count == 16 and loader.read == 4


def test_a_plan_of_formats_evaluates_the_whole_model_on_few_batches() -> None:
    loader = Loader()
    work = work_of(loader)
    sensitivity = lab.sensitivity(work, formats=("int4-weights",), batches=4)
    before = loader.read
    costs._whole_model_loss(work, work.model, sensitivity)
    assert (before, loader.read) == (4, 4 + costs.BATCHES)


def test_one_batch_of_training_reads_one() -> None:
    loader = Sized()
    assert Batches(loader, CPU).first().inputs.tensors[0].shape == (2, 3, 8, 8)
    assert loader.read == 1
    epoch = Batches(loader, CPU).epoch(0, 0)
    assert len(list(islice(epoch, 4))) == 4 and loader.furthest == 4
    epoch.close()


def test_an_epoch_reads_every_batch_once_and_counts_a_loader_without_a_length_before() -> None:
    loader, sized = Loader(6), Sized(6)
    assert len(list(Batches(loader, CPU).epoch(0, 0))) == 6 and loader.read == 12
    assert len(list(Batches(sized, CPU).epoch(0, 0))) == 6 and sized.read == 6


def test_a_short_loader_yields_all_its_batches() -> None:
    for kind in (Loader, Sized):
        assert len(sampled_batches(work_of(kind(3)), 8, 0)) == 3
        assert len(sampled_batches(work_of(kind(3)), None, 0)) == 3


def test_batches_that_are_not_cached_are_read_again_from_the_start(monkeypatch: Any) -> None:
    monkeypatch.setattr(sampled, "MOST_BYTES", 0)
    loader = Sized()
    batches = sampled_batches(work_of(loader), 4, 0)
    once = [batches[index].inputs.tensors[0] for index in range(4)]
    again = [batches[index].inputs.tensors[0] for index in range(4)]
    assert all(map(torch.equal, once, again)) and (loader.read, loader.furthest) == (8, 4)


def test_errors_name_the_bad_batch() -> None:
    class Broken(Sized):
        def __iter__(self) -> Iterator[Any]:
            yield batch(0)
            raise OSError("the disk is gone")

    class BrokenList(Listed):
        def __getitem__(self, index: int) -> Any:
            raise OSError("the disk is gone")

    for ask, error in ((lab.importance, MeasureError), (lab.sensitivity, MeasureError)):
        with pytest.raises(error, match=r"train data of small fail at batch 1 \(OSError: the di"):
            ask(work_of(Broken()), batches=4)
        with pytest.raises(error, match=r"train data of small fail at batch \d+ \(OSError"):
            ask(work_of(BrokenList()), batches=4)
    with pytest.raises(StepError, match=r"the train data fail at batch 1 \(OSError: the disk"):
        precision(work_of(Broken()))
    assert issubclass(DataError, StepError) and issubclass(DataError, MeasureError)

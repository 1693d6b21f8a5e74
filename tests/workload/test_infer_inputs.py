"""A model without example inputs gets one where its first layer determines it; a workload's
preprocessing fits its images.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paifuser_lab import Workload
from paifuser_lab.errors import MissingInputsError, WorkloadError
from paifuser_lab.workload import inputs_of_shapes


class Digits(nn.Module):
    """A classifier of images of 28 × 28, whose head fixes their size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.head = nn.Linear(4 * 49, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(nn.functional.max_pool2d(self.stem(images), 4).flatten(1))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.layer(a) + b


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU()), (1, 3, 224, 224)),
        (Digits(), (1, 1, 28, 28)),
        (nn.Conv1d(2, 2, 3), (1, 2, 512)),
        (nn.Sequential(nn.Identity(), nn.Conv3d(2, 2, 3)), (1, 2, 64, 64, 64)),
        (nn.Linear(1000, 10), (1, 1000)),
        (nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), None),
        (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(8)), (1, 8, 6)),
        (nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)), (1, 512)),
        (nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.Conv2d(3, 2, 3)), (1, 3, 224, 224)),
        (nn.BatchNorm2d(3, affine=False), None),
        (Two(), None),
        (nn.ReLU(), None),
        (nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2)), None),
        (nn.Sequential(nn.Linear(4, 2), nn.Linear(3, 2)), None),
    ],
)
def test_inputs_are_inferred_where_the_first_layer_determines_them(
    model: nn.Module, shape: tuple[int, ...] | None
) -> None:
    if shape is None:
        with pytest.raises(MissingInputsError, match=r"No inputs are known of .*: give an example"):
            Workload(model)
        return
    work = Workload(model)
    (example,) = work.inputs.tensors
    assert example.shape == shape
    (note,) = work.notes
    assert f"{'×'.join(map(str, shape))} was inferred from" in note
    assert Workload(model).notes == (), "they are known now"


def test_a_model_is_as_it_was_after_its_inputs_were_inferred() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.Dropout()).train()
    torch.manual_seed(0)
    before = torch.rand(1)
    torch.manual_seed(0)
    Workload(model)
    assert torch.equal(torch.rand(1), before)
    assert all(module.training for module in model.modules())
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm2d) and norm.num_batches_tracked == 0


@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        (nn.Linear(3, 2).double(), torch.float64),
        (nn.BatchNorm1d(3, affine=False), torch.float32),
        (nn.Embedding(9, 2), torch.int64),
    ],
)
def test_inputs_of_shapes_are_where_the_model_is(model: nn.Module, dtype: torch.dtype) -> None:
    (example,) = inputs_of_shapes(model.to("meta"), [(2, 3)], seed=0).tensors
    device = "meta" if [*model.parameters()] else "cpu"
    assert (example.dtype, example.device.type, example.shape) == (dtype, device, (2, 3))


IMAGES = torch.rand(1, 3, 8, 6)


def test_the_size_of_a_preprocessing_is_that_of_the_example() -> None:
    work = Workload(nn.Conv2d(3, 2, 3), IMAGES, preprocessing={"mean": 0.5, "std": (1, 2, 3)})
    stated = work.preprocessing
    assert stated is not None
    assert (stated.mean, stated.std, stated.size, stated.order) == (
        (0.5,),
        (1, 2, 3),
        (8, 6),
        "RGB",
    )
    again = Workload(nn.Conv2d(3, 2, 3), IMAGES, preprocessing=stated)
    assert again.preprocessing == stated
    assert Workload(nn.Conv2d(3, 2, 3), IMAGES).preprocessing is None


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ({"mean": (0.1, 0.2)}, "mean has 2 numbers; give one, or one for each of 3 channels"),
        ({"std": 0}, "std.0: Input should be greater than 0"),
        ({"mean": float("nan")}, "mean.0: Input should be a finite number"),
        ({"size": (9, 9)}, r"size is \(9, 9\), and the example input has \(8, 6\)"),
        ({"order": "GBR"}, "order: Input should be 'RGB' or 'BGR'"),
        ({"crop": 3}, "crop: Extra inputs"),
        (3, "preprocessing: 'int' object is not iterable"),
    ],
)
def test_a_preprocessing_that_does_not_fit_is_refused(stated: Any, sentence: str) -> None:
    with pytest.raises(WorkloadError, match=sentence):
        Workload(nn.Conv2d(3, 2, 3), IMAGES, preprocessing=stated)


def test_a_model_without_images_has_no_preprocessing() -> None:
    with pytest.raises(WorkloadError, match="takes no images"):
        Workload(nn.Linear(3, 2), torch.rand(1, 3), preprocessing={"mean": 0.5})

"""Layers of a student that are trained to match the teacher's layers: their outputs, or where these
are large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import StepError
from ...model.watch import describe
from ...workload.seeding import preserve_rng, seed_all
from .losses import SMALLEST, squares
from .observe import channel_dimension


class Projection(nn.Linear):
    """A learned map from the student's channels to the teacher's, the same at every position; it is
    dropped after training.
    """

    def __init__(self, student: int, teacher: int, dimension: int) -> None:
        super().__init__(student, teacher)
        self.dimension = dimension

    def forward(self, output: Tensor) -> Tensor:
        return super().forward(output.movedim(self.dimension, -1)).movedim(-1, self.dimension)


class Projections(nn.ModuleDict):
    """A projection for each layer whose number of channels differs; the others are compared
    unchanged.
    """

    def __init__(
        self, model: nn.Module, own: Mapping[str, Tensor], taught: Mapping[str, Tensor], seed: int
    ) -> None:
        super().__init__()
        device = next(iter(taught.values())).device if taught else torch.device("cpu")
        with preserve_rng(device), torch.device("cpu"):
            seed_all(device, seed)
            for layer, output in own.items():
                if (dimension := differing(model, layer, output, taught[layer])) is not None:
                    self[_key(layer)] = Projection(
                        output.shape[dimension], taught[layer].shape[dimension], dimension
                    )
        self.to(device)

    def project(self, layer: str, output: Tensor) -> Tensor:
        """The output with as many channels as the teacher's."""
        key = _key(layer)
        return self[key](output) if key in self else output


def feature_distance(
    projections: Projections,
    own: Mapping[str, Tensor],
    taught: Mapping[str, Tensor],
    layers: Sequence[str],
) -> Tensor:
    """The mean over layers of the distance between their outputs."""
    return torch.stack(
        [squares(projections.project(layer, own[layer]), taught[layer]) for layer in layers]
    ).mean()


def attention_distance(
    own: Mapping[str, Tensor], taught: Mapping[str, Tensor], layers: Sequence[str]
) -> Tensor:
    """The mean over layers of the distance between their attention maps."""
    return torch.stack([squares(*_maps(own[layer], taught[layer])) for layer in layers]).mean()


def attention_map(output: Tensor, dimension: int) -> Tensor:
    """The mean square over channels at each position, normalised for each example."""
    return F.normalize(output.float().square().mean(dimension).flatten(1), dim=1, eps=SMALLEST)


def differing(model: nn.Module, layer: str, own: Tensor, taught: Tensor) -> int | None:
    """The one dimension in which two outputs differ in size, or None; raises if there are more."""
    dimensions = [
        index
        for index in range(own.ndim)
        if own.ndim == taught.ndim and own.shape[index] != taught.shape[index]
    ]
    if own.ndim != taught.ndim or len(dimensions) > 1 or dimensions == [0]:
        shapes = f"{tuple(own.shape)} where the original's is {tuple(taught.shape)}"
        raise StepError(
            f"{describe(model, layer)} outputs shape {shapes}; only channels may differ: "
            "leave it out."
        )
    return dimensions[0] if dimensions else None


def _maps(own: Tensor, taught: Tensor) -> tuple[Tensor, Tensor]:
    dimensions = [index for index in range(own.ndim) if own.shape[index] != taught.shape[index]]
    dimension = dimensions[0] if dimensions else channel_dimension(taught)
    return attention_map(own, dimension), attention_map(taught, dimension)


def _key(layer: str) -> str:
    return layer.replace(".", "/")  # a module's name cannot contain a dot

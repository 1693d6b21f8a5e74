"""The layers that lost inputs in a cut, or whose inputs changed, and their earlier outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ...model.layers import CONVOLUTIONS, is_altered, is_transposed_linear, owners_of_weights
from ...model.watch import FAILED, watching
from ...quantization.compensation.operands import groups_of, output_rows
from ...workload import Workload, running
from ...workload.data import Samples
from ..groups import Structure
from ..groups.trace_labels import by_single_operators

PLAIN = (nn.Linear, *CONVOLUTIONS)
FEWEST_ROWS = 4096
ROWS_PER_COLUMN = 8
SEED = 0


@dataclass
class ShrunkLayer:
    """A layer of the cut model: its remaining outputs, and their earlier values at some rows."""

    layer: Any
    outputs: Tensor | None  # indices of the remaining outputs; None for all
    rows: Tensor | None = None  # by index, the held-out ones from `border` on
    border: int = 0
    targets: Tensor | None = None  # the outputs before the cut, (rows, outputs)
    is_usable: bool = True

    @property
    def groups(self) -> int:
        """A convolution's groups; 1 for a linear layer."""
        return groups_of(self.layer)

    @property
    def matrix(self) -> Tensor:
        """The weights as (groups, outputs of a group, inputs of a group)."""
        weight: Tensor = self.layer.weight.detach().double()
        weight = weight.t() if is_transposed_linear(self.layer) else weight.flatten(1)
        return weight.reshape(self.groups, -1, weight.shape[1])

    def write(self, matrix: Tensor, bias: Tensor) -> None:
        """Set the weights, and the bias where the layer has one."""
        weight: Tensor = self.layer.weight
        rows = matrix.flatten(0, 1)
        weight.copy_(rows.t() if is_transposed_linear(self.layer) else rows.reshape(weight.shape))
        if self.layer.bias is not None:
            self.layer.bias.copy_(bias.flatten())

    def record_targets(self, output: Tensor, samples: Samples) -> None:
        """Store some rows of the layer's output before the cut."""
        rows = output_rows(self.layer, output)
        if self.outputs is not None:
            rows = rows[:, self.outputs.to(rows.device)]
        self.is_usable = (
            self.targets is None and len(rows) >= 2 and bool(torch.isfinite(rows).all())
        )
        limit = max(FEWEST_ROWS, ROWS_PER_COLUMN * self.matrix.shape[2])
        border = samples.border(len(rows))
        picked = [_subset(0, border, limit), _subset(border, len(rows), limit // 3)]
        self.rows, self.border = torch.cat(picked), len(picked[0])
        self.targets = rows[self.rows.to(rows.device)].clone()


def shrunk_layers(
    before: nn.Module, model: nn.Module, structure: Structure, removed: set[int]
) -> dict[str, ShrunkLayer]:
    """By dotted path the layers that only multiply, and have fewer inputs than before the cut."""
    kept = structure.kept(removed)
    left = {
        (span.weight, span.dimension): numpy.flatnonzero(kept[span.start : span.stop])
        for span in structure.spans
    }
    layers: dict[str, ShrunkLayer] = {}
    for name, shrunk in products(model).items():
        inputs, outputs = (0, 1) if is_transposed_linear(shrunk.layer) else (1, 0)
        if (
            shrunk.layer.weight.shape[inputs]
            < before.get_submodule(name).get_parameter("weight").shape[inputs]
        ):
            positions = left.get((f"{name}.weight", outputs))
            layers[name] = ShrunkLayer(
                shrunk.layer, None if positions is None else torch.from_numpy(positions)
            )
    return layers


def products(model: nn.Module) -> dict[str, ShrunkLayer]:
    """By dotted path the layers that only multiply by weights of their own, with all outputs."""
    owners = owners_of_weights(model)
    return {
        name: ShrunkLayer(layer, None)
        for name, layer in model.named_modules()
        if _is_product(layer)
        and all(len(owners[id(weight)]) == 1 for weight in layer.parameters(recurse=False))
    }


def record_targets(before: nn.Module, samples: Samples, lost: Mapping[str, ShrunkLayer]) -> None:
    """Store these layers' outputs before the cut; one that does not run just once is left out."""

    def leave(layer: str, output: Any) -> None:
        if layer in lost and output is not FAILED:
            lost[layer].record_targets(output, samples)

    with (
        running(before),
        by_single_operators(),
        watching(before, lambda layer, args, kwargs: None, leave),
    ):
        samples.inputs.clone()(before)


def _is_product(layer: nn.Module) -> bool:
    """Whether the layer's call only multiplies its input by its weights."""
    is_plain = isinstance(layer, PLAIN) and type(layer).forward in [kind.forward for kind in PLAIN]
    weight = getattr(layer, "weight", None)
    return (
        (is_plain or is_transposed_linear(layer))
        and not is_altered(layer)
        and isinstance(weight, Tensor)
        and weight.is_floating_point()
    )


def _subset(low: int, high: int, most: int) -> Tensor:
    """All integers of a range, or a fixed random subset of `most` of them."""
    if high - low <= most:
        return torch.arange(low, high)
    return (
        torch.randint(low, high, (most,), generator=torch.Generator().manual_seed(SEED))
        .sort()
        .values
    )


@dataclass(frozen=True)
class RefitContext:
    """The inputs of a refit, which may change weights and statistics of `model` alone."""

    before: nn.Module
    model: nn.Module
    lost: Mapping[str, ShrunkLayer]  # the layers whose weights may change
    samples: Samples
    work: Workload

"""The layers that lost inputs, or are given others than before, and what each of them answered
then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ...model.watch import FAILED, watching
from ...workload import running
from ...workload.data import Samples
from ..groups import Structure
from ..groups.trace_labels import by_single_operators

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
PLAIN = (nn.Linear, *CONVOLUTIONS)
FEWEST_ROWS = 4096
ROWS_A_COLUMN = 8
SEED = 0


@dataclass
class ShrunkLayer:
    """A layer of the model as it is now: which of the earlier outputs it still has, and what they
    were at some rows of the samples.
    """

    layer: Any
    outputs: Tensor | None  # None where all are there
    rows: Tensor | None = None  # by number, those that judge behind `border`
    border: int = 0
    answers: Tensor | None = None  # (rows, outputs)
    is_usable: bool = True

    @property
    def groups(self) -> int:
        """A convolution's groups; a linear layer is one."""
        return getattr(self.layer, "groups", 1)

    @property
    def matrix(self) -> Tensor:
        """The weights as (groups, outputs of a group, inputs of a group)."""
        weight: Tensor = self.layer.weight.detach().double()
        weight = weight.t() if _is_turned(self.layer) else weight.flatten(1)
        return weight.reshape(self.groups, -1, weight.shape[1])

    def write(self, matrix: Tensor, bias: Tensor) -> None:
        """Other weights, and a bias where it has one."""
        weight: Tensor = self.layer.weight
        rows = matrix.flatten(0, 1)
        weight.copy_(rows.t() if _is_turned(self.layer) else rows.reshape(weight.shape))
        if self.layer.bias is not None:
            self.layer.bias.copy_(bias.flatten())

    def keep(self, answer: Tensor, samples: Samples) -> None:
        """Take some rows of what it answered before the cut."""
        rows = rows_of(self.layer, answer)
        if self.outputs is not None:
            rows = rows[:, self.outputs.to(rows.device)]
        self.is_usable = (
            self.answers is None and len(rows) >= 2 and bool(torch.isfinite(rows).all())
        )
        limit = max(FEWEST_ROWS, ROWS_A_COLUMN * self.matrix.shape[2])
        border = samples.border(len(rows))
        picked = [_some(0, border, limit), _some(border, len(rows), limit // 3)]
        self.rows, self.border = torch.cat(picked), len(picked[0])
        self.answers = rows[self.rows.to(rows.device)].clone()


def shrunk_layers(
    before: nn.Module, model: nn.Module, structure: Structure, removed: set[int]
) -> dict[str, ShrunkLayer]:
    """By dotted path the layers that have fewer inputs than before the cut, and that are no more
    than a product.
    """
    kept = structure.kept(removed)
    left = {
        (span.weight, span.dimension): numpy.flatnonzero(kept[span.start : span.stop])
        for span in structure.spans
    }
    found: dict[str, ShrunkLayer] = {}
    for name, one in products(model).items():
        inputs, outputs = (0, 1) if _is_turned(one.layer) else (1, 0)
        if (
            one.layer.weight.shape[inputs]
            < before.get_submodule(name).get_parameter("weight").shape[inputs]
        ):
            places = left.get((f"{name}.weight", outputs))
            found[name] = ShrunkLayer(
                one.layer, None if places is None else torch.from_numpy(places)
            )
    return found


def products(model: nn.Module) -> dict[str, ShrunkLayer]:
    """By dotted path the layers that are no more than a product, with weights of their own, all of
    whose outputs are there.
    """
    owners = Counter(
        id(weight) for module in model.modules() for weight in module.parameters(recurse=False)
    )
    return {
        name: ShrunkLayer(layer, None)
        for name, layer in model.named_modules()
        if _is_product(layer)
        and all(owners[id(weight)] == 1 for weight in layer.parameters(recurse=False))
    }


def remember(before: nn.Module, samples: Samples, lost: Mapping[str, ShrunkLayer]) -> None:
    """Run the model as it was, and keep what these layers answer; one that runs twice, or not,
    cannot be used.
    """

    def leave(layer: str, answer: Any) -> None:
        if layer in lost and answer is not FAILED:
            lost[layer].keep(answer, samples)

    with (
        running(before),
        by_single_operators(),
        watching(before, lambda layer, args, kwargs: None, leave),
    ):
        samples.inputs.clone()(before)


def rows_of(layer: nn.Module, answer: Tensor) -> Tensor:
    """A layer's answer as (rows, outputs)."""
    if isinstance(layer, CONVOLUTIONS):
        answer = answer.movedim(-1 - len(layer.kernel_size), -1)
    return answer.reshape(-1, answer.shape[-1])


def _is_product(layer: nn.Module) -> bool:
    """Whether its answer is its weights times what it is given, and nothing else happens at its
    call.
    """
    has_own_ways = bool(
        layer._forward_hooks or layer._forward_pre_hooks or hasattr(layer, "parametrizations")
    )
    is_plain = isinstance(layer, PLAIN) and type(layer).forward in [kind.forward for kind in PLAIN]
    weight = getattr(layer, "weight", None)
    return (
        (is_plain or _is_turned(layer))
        and not has_own_ways
        and isinstance(weight, Tensor)
        and weight.is_floating_point()
    )


def _is_turned(layer: nn.Module) -> bool:
    """GPT-2's linear layer, whose weight is (inputs, outputs)."""
    return type(layer).__name__ == "Conv1D" and not isinstance(layer, CONVOLUTIONS)


def _some(low: int, high: int, most: int) -> Tensor:
    """All numbers of a range, or as many as there is room for, always the same."""
    if high - low <= most:
        return torch.arange(low, high)
    return (
        torch.randint(low, high, (most,), generator=torch.Generator().manual_seed(SEED))
        .sort()
        .values
    )

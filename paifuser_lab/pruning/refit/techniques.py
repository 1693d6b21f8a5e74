"""Which repairs there are, and doing the wanted ones in turn, each judged by the model's answer and
undone where that gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...measure import output_error
from ...workload import Workload, running
from ...workload.data import Samples, samples_of
from .context import Done, Scene
from .least_squares import refit
from .norms import measure_again
from .shrunk_layers import Lost

Repair = Literal["least-squares", "batch-norm"]
REPAIRS: dict[Repair, Callable[[Scene], Done]] = {  # in the order in which they are done
    "least-squares": refit,
    "batch-norm": measure_again,
}


def mend(
    work: Workload,
    before: nn.Module,
    model: nn.Module,
    lost: Mapping[str, Lost],
    wanted: Collection[Repair],
) -> list[str]:
    """Bring the answers of a model nearer to those of the model before; what each repair did and
    gained, in sentences.
    """
    samples = samples_of(work)
    scene = Scene(before, model, lost, samples, work.inputs)
    reference = _answers(before, samples)
    error = output_error(reference, _answers(model, samples))[0]
    notes = []
    for way in (one for name, one in REPAIRS.items() if name in wanted):
        kept = {name: value.detach().clone() for name, value in _values(model).items()}
        done = way(scene)
        if not done.count:
            notes.append(done.sentence)
            continue
        found = output_error(reference, _answers(model, samples))[0]
        judged = f"output error {error:.2g} → {found:.2g} on {samples.judges}"
        if found < error:
            error = found
            notes.append(f"{done.sentence}: {judged}")
        else:
            _put_back(model, kept)
            notes.append(f"{done.sentence}, and took that back: {judged}")
    return notes


def chosen_repairs(wanted: Sequence[Repair] | None, work: Workload) -> Sequence[Repair]:
    """What was asked for; by itself every repair, where there is data that is more than a few
    examples.
    """
    if wanted is None:
        return tuple(REPAIRS) if work.train is not None else ()
    return wanted


def _answers(model: nn.Module, samples: Samples) -> list[Tensor]:
    """What judges, of a model's answer."""
    given = samples.inputs.clone()
    with running(model):
        answer: Any = given(model)
    return [
        samples.judged(leaf)
        for leaf in pytree.tree_leaves(answer)
        if isinstance(leaf, Tensor) and leaf.is_floating_point()
    ]


def _values(model: nn.Module) -> dict[str, Tensor]:
    return dict((*model.named_parameters(), *model.named_buffers()))


def _put_back(model: nn.Module, kept: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in _values(model).items():
            value.copy_(kept[name])

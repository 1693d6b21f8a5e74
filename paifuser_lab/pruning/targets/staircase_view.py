"""A layer's staircase, to be looked at: what it takes at each width, and which widths are worth
keeping.
"""

from __future__ import annotations

import torch

from ...errors import WorkloadError
from ...model.watch import describe
from ...records import Staircase
from ...workload import Derived, Workload, workload_of
from ..groups import Structure, couple
from .layer_families import family_of
from .measure import key_of, staircases

SECONDS = 10.0


def staircase(
    subject: Workload | Derived, layer: str, *, threads: int | None = None, seconds: float = SECONDS
) -> Staircase:
    """What a layer takes by the channels that it reads and makes: from the cache, or measured
    now.
    """
    work = workload_of(subject)
    if layer not in dict(work.model.named_modules()):
        raise WorkloadError(
            f"{work.name} has no layer '{layer}'; the names are those of model.named_modules()."
        )
    multiplied = [
        one for one in couple(work.model, work.inputs).space.multiplied if one.layer == layer
    ]
    family = next((found for one in multiplied if (found := family_of(one)) is not None), None)
    if family is None:
        raise WorkloadError(
            f"{describe(work.model, layer)} has no staircase: it does no convolution or matrix "
            "product by itself that can be timed."
        )
    (measured,) = staircases(
        [family], count=threads or _own_threads(subject), seconds=seconds
    ).values()
    return measured


def stairs(
    structure: Structure, *, seconds: float = SECONDS
) -> dict[str, list[tuple[float, float]]]:
    """What each layer that can be timed by itself takes by the channels that it makes, all that it
    reads being there: (channels, ms).
    """
    families = {
        one.layer: found
        for one in structure.space.multiplied
        if (found := family_of(one)) is not None
    }
    measured = staircases(families.values(), count=torch.get_num_threads(), seconds=seconds)
    known = {layer: measured[key_of(family)] for layer, family in families.items()}
    return {
        layer: [(float(made), ms) for made, ms in zip(one.makes, one.by_made, strict=True)]
        for layer, one in known.items()
    }


def _own_threads(subject: Workload | Derived) -> int:
    """The threads that what is looked at runs with."""
    return getattr(subject, "own_threads", None) or torch.get_num_threads()

"""A layer's staircase for display: its time at each width, and the widths worth keeping."""

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
    """The time of a layer by its input and output channels: from the cache, or measured now."""
    work = workload_of(subject)
    if layer not in dict(work.model.named_modules()):
        raise WorkloadError(
            f"{work.name} has no layer '{layer}'; use a name from model.named_modules()."
        )
    products = couple(work.model, work.inputs).space.products
    families = (family_of(product) for product in products if product.layer == layer)
    family = next((family for family in families if family is not None), None)
    if family is None:
        raise WorkloadError(
            f"{describe(work.model, layer)} has no staircase: it runs no convolution or matrix "
            "product that can be timed by itself."
        )
    (measured,) = staircases(
        [family], count=threads or _own_threads(subject), seconds=seconds
    ).values()
    return measured


def stairs(
    structure: Structure, *, seconds: float = SECONDS
) -> dict[str, list[tuple[float, float]]]:
    """For each layer that can be timed by itself, its time by output channels with all input
    channels: (channels, ms).
    """
    families = {
        product.layer: family
        for product in structure.space.products
        if (family := family_of(product)) is not None
    }
    measured = staircases(families.values(), count=torch.get_num_threads(), seconds=seconds)
    known = {layer: measured[key_of(family)] for layer, family in families.items()}
    return {
        layer: [(float(makes), ms) for makes, ms in zip(row.makes, row.by_made, strict=True)]
        for layer, row in known.items()
    }


def _own_threads(subject: Workload | Derived) -> int:
    """The number of threads that the subject runs with."""
    return getattr(subject, "own_threads", None) or torch.get_num_threads()

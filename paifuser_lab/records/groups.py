"""Many layers as a few groups: branches of the model's tree, opened where most is, the small ones
taken together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

MOST_GROUPS = 7
OTHERS = "other layers"


def layer_groups(
    layers: Sequence[str], sizes: Sequence[float]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The groups in the order in which the layers come, the small ones last, and each layer's place
    among them; `sizes` says what matters.
    """
    depths = _opened([layer.split(".") for layer in layers], sizes)
    heads = [
        ".".join(layer.split(".")[:depth]) for layer, depth in zip(layers, depths, strict=True)
    ]
    total: dict[str, float] = defaultdict(float)
    for head, size in zip(heads, sizes, strict=True):
        total[head] += size
    kept = set(
        sorted(total, key=lambda head: -total[head])[: MOST_GROUPS - (len(total) > MOST_GROUPS)]
    )
    names = [head for head in dict.fromkeys(heads) if head in kept] + [OTHERS] * (
        len(total) > len(kept)
    )
    return tuple(names), tuple(names.index(head) if head in kept else len(kept) for head in heads)


def _opened(paths: list[list[str]], sizes: Sequence[float]) -> list[int]:
    """How many parts of each layer's path name its group: the largest branch is opened while the
    groups stay few.
    """
    depths = [1] * len(paths)
    closed: set[tuple[str, ...]] = set()
    while True:
        groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for place, path in enumerate(paths):
            groups[tuple(path[: depths[place]])].append(place)
        openable = [
            (sum(sizes[place] for place in places), head)
            for head, places in groups.items()
            if head not in closed and any(len(paths[place]) > len(head) for place in places)
        ]
        if not openable or len(groups) >= MOST_GROUPS:
            return depths
        _, head = max(openable)
        parts = {tuple(paths[place][: len(head) + 1]) for place in groups[head]}
        if len(groups) - 1 + len(parts) > MOST_GROUPS:
            closed.add(head)
            continue
        for place in groups[head]:
            depths[place] = min(len(paths[place]), len(head) + 1)

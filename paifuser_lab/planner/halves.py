"""The test data of a search in two halves: one to choose by, one that judges what was chosen."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ..workload import Workload


def halves_of(work: Workload) -> tuple[Workload, Workload, str]:
    """The workload with either half of its test data, and a note where these cannot be halved."""
    if work.metric is None or work.test is None:
        return work, work, ""
    batches = list(work.test)
    first, second = batches[::2], batches[1::2]
    if len(batches) == 1:
        if (split := _split(batches[0])) is None:
            note = (
                "the test data are one sample: what was chosen is judged by what it was chosen by"
            )
            return work, work, note
        first, second = [split[0]], [split[1]]
    return _with_test(work, first), _with_test(work, second), ""


def samples_in(work: Workload) -> int | None:
    """How many samples the test data hold; None where their first dimensions differ."""
    if work.test is None:
        return None
    counts = [_samples(batch) for batch in work.test]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _with_test(work: Workload, test: list[Any]) -> Workload:
    own = copy.copy(work)
    own.test = test
    return own


def _samples(batch: Any) -> int | None:
    sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in _tensors(batch)}
    return sizes.pop() if len(sizes) == 1 else None


def _split(batch: Any) -> tuple[Any, Any] | None:
    """A batch's even and odd samples; None where it has no two."""
    count = _samples(batch)
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2  # inputs and targets
    if not is_pair or count is None or count < 2:
        return None
    even: Any = pytree.tree_map_only(Tensor, lambda leaf: leaf[::2], batch)
    odd: Any = pytree.tree_map_only(Tensor, lambda leaf: leaf[1::2], batch)
    return even, odd


def _tensors(batch: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]

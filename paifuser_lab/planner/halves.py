"""The test data of a search in two halves: one to choose by, one that judges what was chosen."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import MeasureError
from ..records import Candidate, counted
from ..variant import Variant
from ..variant.history import add_metric
from ..workload import Workload
from ..workload.batching import leading_sizes
from ..workload.generation import next_token_accuracy


@dataclass
class Judge:
    """Says what a candidate loses of the metric on one half of the test data."""

    work: Workload

    @cached_property
    def before(self) -> float | None:
        """The metric of the unchanged model; None without labelled data."""
        metric = self.work.evaluate()
        if metric is not None and math.isnan(metric):
            raise MeasureError(
                f"metric '{self.work.metric_name}' of {self.work.name} is nan for the unchanged "
                "model, so no loss can be judged; correct it or its test data."
            )
        return metric

    def judged(self, row: Candidate, variant: Variant) -> Candidate:
        """The row with its metric and the loss of it; unchanged without labelled data."""
        before, metric = self.before, self.work.evaluate(variant.model)
        if metric is None or before is None:
            return row
        add_metric(self.work, variant.recipe, metric)
        lost = self.work.metric_lost(before, metric)
        return row.model_copy(update={"metric": metric, "metric_lost": lost})


def halves_of(work: Workload) -> tuple[Workload, Workload, str]:
    """The workload with either half of its test data, and a note where these cannot be halved."""
    if work.metric is None or work.test is None:
        return work, work, ""
    batches = list(work.test)
    first, second = batches[::2], batches[1::2]
    if len(batches) == 1:
        if (split := _split(batches[0])) is None:
            note = (
                "the test data cannot be halved: what was chosen is judged by what it was chosen by"
            )
            return work, work, note
        first, second = [split[0]], [split[1]]
    return _with_test(work, first), _with_test(work, second), ""


def blind_spot(half: Workload, drop: float) -> str:
    """Where half of the test data are too few to see the loss that is allowed, by a metric that is
    a share of the samples.
    """
    if half.metric is None or half.metric is next_token_accuracy or half.smaller_is_better:
        return ""
    if any(_has_many_values(batch) for batch in half.test or ()):
        return ""
    count = samples_in(half)
    if not count or not 0 < drop < 1 / count:
        return ""
    return (
        f"the half of the test data that chooses has {counted(count, 'sample')}, of which one is "
        f"{100 / count:.2g} points: a loss of {100 * drop:.2g} cannot be seen"
    )


def _has_many_values(batch: Any) -> bool:
    """Whether a sample's target has several values, as a mask has."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        return False
    leaves = [leaf for leaf in pytree.tree_leaves(batch[1]) if isinstance(leaf, Tensor)]
    return any(leaf.ndim and leaf.numel() > len(leaf) for leaf in leaves)


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
    sizes = set(leading_sizes(batch))
    return sizes.pop() if len(sizes) == 1 else None


def _split(batch: Any) -> tuple[Any, Any] | None:
    """A batch's even and odd samples; None where it has no two, or holds more than tensors."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        return None
    inputs, target = batch
    # a tokenizer's output is no dict, and one leaf to torch
    pair = (dict(inputs) if isinstance(inputs, Mapping) else inputs, target)
    count = _samples(pair)
    is_whole = all(isinstance(leaf, Tensor | None) for leaf in pytree.tree_leaves(pair))
    if not is_whole or count is None or count < 2:
        return None
    even: Any = pytree.tree_map_only(Tensor, lambda leaf: leaf[::2], pair)
    odd: Any = pytree.tree_map_only(Tensor, lambda leaf: leaf[1::2], pair)
    return even, odd

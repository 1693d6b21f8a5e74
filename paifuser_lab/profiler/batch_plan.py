"""Which batch sizes to measure and which to choose: arithmetic on measurements; runs no model."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from ..measure import Samples, ratio_of_rounds
from ..records.text import readable_rate

MIN_GROWTH = 1.03
FINEST_SHARE = 8
MAX_LEADERS = 3


def knee_of(throughputs: Mapping[int, float], plateau: float) -> int:
    """The smallest batch that reaches the share `plateau` of the best throughput."""
    enough = plateau * max(throughputs.values())
    return min(batch for batch, throughput in throughputs.items() if throughput >= enough)


def doubled(batch: int, *, most: int, example: int | None = None) -> int | None:
    """The next batch when doubling; the batch of the example inputs, if given, is not skipped."""
    if batch >= most:
        return None
    is_next = example is not None and batch < example < 2 * batch
    return min(example if is_next and example is not None else 2 * batch, most)


def has_levelled_off(throughputs: Mapping[int, float]) -> bool:
    """Whether the last two doublings gained hardly anything over the best before them."""
    curve = [throughputs[batch] for batch in sorted(throughputs)]
    return len(curve) > 2 and max(curve[-2:]) < MIN_GROWTH * max(curve[:-2])


def midpoints(knee: int, tried: Iterable[int]) -> tuple[int, ...]:
    """The batches halfway from the knee to its neighbours; none where they are close enough."""
    tried = sorted(set(tried))
    least = max(1, knee // FINEST_SHARE)
    gaps = [pair for pair in pairwise(tried) if knee in pair and pair[1] - pair[0] > least]
    return tuple((low + high) // 2 for low, high in gaps)


def finalists(throughputs: Mapping[int, float], knee: int) -> tuple[int, ...]:
    """The batches to time again in turn: the knee, its neighbours, and candidates for the best."""
    batches = sorted(throughputs)
    index = batches.index(knee)
    least = max(throughputs.values()) / MIN_GROWTH
    leaders = sorted(
        (batch for batch in batches if throughputs[batch] >= least),
        key=lambda batch: -throughputs[batch],
    )
    return tuple(sorted({*batches[max(0, index - 1) : index + 2], *leaders[:MAX_LEADERS]}))


def next_below(
    throughputs: Mapping[int, float], chosen: Collection[int], knee: int
) -> tuple[int, ...]:
    """The next to time if the knee is the smallest timed: those below, the knee and the best."""
    smaller = [batch for batch in sorted(throughputs) if batch < min(chosen)]
    if knee != min(chosen) or not smaller:
        return ()
    return tuple(
        sorted({*smaller[-MAX_LEADERS:], knee, max(chosen, key=lambda batch: throughputs[batch])})
    )


def predicted_bytes(measured: Mapping[int, int], batch: int) -> int:
    """The memory that a batch will need, predicted from others (the weights alone at batch 0).

    Between two measured batches: on the line between them. Beyond: on the line through the last
    two or, where memory has been growing faster than the batch, on the parabola through the last
    three. Two batches alone give no line, since a batch of one often takes another path through
    the libraries: then all but the weights is taken to grow with the batch.
    """
    points = sorted((size, needed) for size, needed in measured.items() if size)
    above = next((index for index, (size, _) in enumerate(points) if size >= batch), None)
    if above is None:
        return math.ceil(_beyond(points[-3:], measured.get(0, 0), batch))
    (low, low_bytes), (high, high_bytes) = points[max(above - 1, 0)], points[above]
    slope = (high_bytes - low_bytes) / (high - low) if high > low else 0.0
    return math.ceil(low_bytes + slope * (batch - low))


def _beyond(points: list[tuple[int, int]], weights: int, batch: int) -> float:
    last, last_bytes = points[-1]
    slopes = [
        max(0.0, (right[1] - left[1]) / (right[0] - left[0])) for left, right in pairwise(points)
    ]
    if len(slopes) < 2:
        slope = max([(last_bytes - weights) / last, *slopes])
    else:
        bend = max(0.0, (slopes[1] - slopes[0]) / (last - points[0][0]))
        slope = slopes[1] + bend * (batch - points[1][0])
    return last_bytes + slope * (batch - last)


def lost_batch(
    earlier: Collection[tuple[int, tuple[int, ...]]], batch: int, leading: tuple[int, ...]
) -> int | None:
    """The first dimension of an output that equalled the batch until now and no longer does."""
    for index, size in enumerate(leading):
        before = [(count, sizes[index]) for count, sizes in earlier if index < len(sizes)]
        has_followed = any(count > 1 for count, _ in before) and all(
            count == leading_size for count, leading_size in before
        )
        if has_followed and size != batch:
            return size
    return None


def shares_in_turn(turns: dict[int, Samples]) -> dict[int, float]:
    """Throughput as a share of the best, formed within each round."""
    best = max(turns, key=lambda batch: batch / turns[batch].median_ms)
    return {
        batch: ratio_of_rounds(turns[best], samples)[0] * batch / best
        for batch, samples in turns.items()
    }


def reason_for(
    knee: int, shares: Mapping[int, float], best_per_s: float, end: str, *, is_in_turn: bool
) -> str:
    """Why this batch was chosen and why the sweep ended, as text."""
    best = max(shares, key=lambda batch: shares[batch])
    rate = f"{readable_rate(best_per_s)} a second{'' if best == knee else f' at {best}'}"
    timed = f"{rate}, timed in turn" if is_in_turn else rate
    if knee == best:
        return f"A batch of {knee} gives the best throughput ({timed}); {end}."
    return f"A batch of {knee} reaches {shares[knee]:.0%} of the best throughput ({timed}); {end}."

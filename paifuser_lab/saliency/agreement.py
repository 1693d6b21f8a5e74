"""How well each method's order of the layers agrees with the measured order: Spearman's rank
correlation, by pandas.

All methods use the same batches, so they can agree on those where other batches would give another
order: `uncertain_formats` reports it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..records import LayerSensitivity, Method

REFERENCE = "ablation"
MIN_LAYERS = 3


def with_agreement(
    method: Method, rows: Iterable[LayerSensitivity], formats: Iterable[str]
) -> Method:
    """The method's record with its agreement in each format that both methods estimated."""
    if method.name == REFERENCE:
        return method
    rows = tuple(rows)
    agreement = {name: _agreement(method.name, rows, name) for name in formats}
    return method.model_copy(
        update={
            "agreement": {name: value for name, value in agreement.items() if value is not None}
        }
    )


def _agreement(method: str, rows: tuple[LayerSensitivity, ...], name: str) -> float | None:
    scores = [row.scores.get(name, {}) for row in rows]
    pairs = [
        (by_method[method].value, by_method[REFERENCE].value)
        for by_method in scores
        if method in by_method and REFERENCE in by_method
    ]
    if len(pairs) < MIN_LAYERS or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return None
    import pandas

    predicted, measured = (pandas.Series(side).rank() for side in zip(*pairs, strict=True))
    return float(predicted.corr(measured))


def uncertain_formats(rows: Iterable[LayerSensitivity], formats: Iterable[str]) -> list[str]:
    """A note for each format in which most layers' measured rises are less than twice their
    standard error.
    """
    rows = tuple(rows)
    return [note for name in formats if (note := _uncertainty(rows, name))]


def _uncertainty(rows: tuple[LayerSensitivity, ...], name: str) -> str | None:
    estimates = [
        row.scores[name][REFERENCE] for row in rows if REFERENCE in row.scores.get(name, {})
    ]
    certain = [
        estimate
        for estimate in estimates
        if estimate.error is None or abs(estimate.value) >= 2 * estimate.error
    ]
    if 2 * len(certain) >= len(estimates):
        return None
    return (
        f"{name}: what was measured is more than twice its error in {len(certain)} of "
        f"{len(estimates)} layers only; "
        "the order of the others holds for these batches and may differ on others"
    )

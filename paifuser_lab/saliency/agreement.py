"""How far each way of judging puts the layers in the order that was measured: Spearman's rank
correlation. Stands on pandas.

All are asked about the same batches, so that they agree on those even where other batches would say
otherwise: `chance` tells.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..records import LayerSensitivity, Method

REFERENCE = "ablation"
FEWEST_LAYERS = 3


def with_agreement(
    method: Method, rows: Iterable[LayerSensitivity], formats: Iterable[str]
) -> Method:
    """The method's record with its agreement in each format where both were looked at."""
    if method.name == REFERENCE:
        return method
    rows = tuple(rows)
    found = {name: _agreement(method.name, rows, name) for name in formats}
    return method.model_copy(
        update={"agreement": {name: value for name, value in found.items() if value is not None}}
    )


def _agreement(method: str, rows: tuple[LayerSensitivity, ...], name: str) -> float | None:
    scores = [row.scores.get(name, {}) for row in rows]
    pairs = [
        (one[method].value, one[REFERENCE].value)
        for one in scores
        if method in one and REFERENCE in one
    ]
    if len(pairs) < FEWEST_LAYERS or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return None
    import pandas

    predicted, measured = (pandas.Series(side).rank() for side in zip(*pairs, strict=True))
    return float(predicted.corr(measured))


def chance(rows: Iterable[LayerSensitivity], formats: Iterable[str]) -> list[str]:
    """The formats in which what was measured of most layers is less than twice its error."""
    rows = tuple(rows)
    return [note for name in formats if (note := _chance(rows, name))]


def _chance(rows: tuple[LayerSensitivity, ...], name: str) -> str | None:
    found = [row.scores[name][REFERENCE] for row in rows if REFERENCE in row.scores.get(name, {})]
    sure = [one for one in found if one.error is None or abs(one.value) >= 2 * one.error]
    if 2 * len(sure) >= len(found):
        return None
    return (
        f"{name}: what was measured is more than twice its error in {len(sure)} of {len(found)} "
        "layers only; "
        "the order of the others holds for these batches and may be another on others"
    )

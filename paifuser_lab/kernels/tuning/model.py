"""A learned guess of a tile's time, and how sure it is of it. Stands on scikit-learn's extremely
randomised trees.

With the few dozen measurements that there are they did better than Gaussian processes on recorded
ones: a tile's time has cliffs (one block fewer fits, a warp has nothing to do), which smooth
functions blur.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, log2

import numpy as np
import numpy.typing as npt

from .space import Cut

Floats = npt.NDArray[np.float64]
Known = Callable[
    [Cut], Sequence[float]
]  # what else is known of a tile before it is measured: its bound, its registers …

TREES = 32


class CostModel:
    """Learned from the tiles that were measured; one that failed counts as the slowest of them."""

    def __init__(self, tried: dict[Cut, float | None], known: Known) -> None:
        from sklearn.ensemble import ExtraTreesRegressor

        self._known = known
        slowest = max(ms for ms in tried.values() if ms is not None)
        times = [log(slowest if ms is None else ms) for ms in tried.values()]
        self._trees = ExtraTreesRegressor(n_estimators=TREES, random_state=0).fit(
            self._features(list(tried)), times
        )

    def each(self, cuts: Sequence[Cut]) -> Floats:
        """What each tree expects of each tile: (trees, tiles), logarithms of milliseconds."""
        features = self._features(cuts)
        return np.array(
            [tree.predict(features, check_input=False) for tree in self._trees.estimators_]
        )  # checked 32 times, it is slow

    def _features(self, cuts: Sequence[Cut]) -> npt.NDArray[np.float32]:
        """Of each number the logarithm and how often two divides it, and what else is known."""
        logarithms = [[log2(1 + number) for number in cut] for cut in cuts]
        halvings = [[(number & -number).bit_length() for number in cut] for cut in cuts]
        known = [self._known(cut) for cut in cuts]
        return np.column_stack(
            [
                np.array(one, dtype=np.float32).reshape(len(cuts), -1)
                for one in (logarithms, halvings, known)
            ]
        )

"""Heat maps: the panel of one, and the colour scale, as in `widgets/shared/heat_scale.js`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .picture import Axis, Heat, Labels, Panel
from .style import DARK, Theme

RAMP = (
    "#fff3ea",
    "#feddc6",
    "#fbc8a2",
    "#f5ae7f",
    "#e98d5d",
    "#db6b39",
    "#bf4d26",
    "#9e331e",
    "#7d1616",
)
DARK_RAMP = (
    "#2b1d1c",
    "#49241e",
    "#68291e",
    "#883320",
    "#aa492b",
    "#cd5f36",
    "#e48558",
    "#f3b183",
    "#ffdcae",
)
ROW = 20  # pixels of a map
MAX_RATIO = 1e6  # of the top to the floor; smaller values are negligible


class Scale(NamedTuple):
    """Steps of equal ratio from the floor to the top, which are 1, 2 or 5 times a power of ten."""

    floor: float
    top: float

    def step(self, value: float) -> int:
        """The step of a value, from 0; -1 if it is below the scale, 0 or negative."""
        if value == math.inf:
            return len(RAMP) - 1
        if not value >= self.floor * (1 - 1e-6):
            return -1
        return min(len(RAMP) - 1, max(0, math.floor(self.share(value) * len(RAMP) + 1e-6)))

    def share(self, value: float) -> float:
        """A value's position on the scale, 0 to 1."""
        return math.log(value / self.floor) / math.log(self.top / self.floor)

    @property
    def tens(self) -> list[float]:
        """The powers of ten on the scale, thinned out if there are many."""
        first = math.ceil(math.log10(self.floor) - 1e-9)
        last = math.floor(math.log10(self.top) + 1e-9)
        every = max(1, math.ceil((last - first + 1) / 5))
        return [10.0**power for power in range(first, last + 1, every)]


def scale_of(values: Iterable[float]) -> Scale | None:
    """The scale of some values; None if none is above 0."""
    known = [value for value in values if 0 < value < math.inf]
    if not known:
        return None
    top = _rounded(max(known), up=True)
    return Scale(
        min(_rounded(max(min(known), top / MAX_RATIO), up=False), _rounded(top / 10, up=False)), top
    )


def cell_text(value: float) -> str:
    """0.0123 → '0.012', 0.000012 → '1.2e-5', as the widget writes it."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    plain = (
        f"{size:.2g}"
        if size == 0 or 0.00995 <= size < 999.5
        else f"{size:.1e}".replace(".0e", "e").replace("e-0", "e-")
    )
    plain = f"{float(plain):g}" if "e+02" in plain else plain.replace("e+0", "e").replace("e+", "e")
    return f"−{plain}" if value < 0 else plain


def estimate_text(value: float, error: float | None) -> str:
    """0.0123, 0.001 → '0.012 ± 1e-3'; an error that is 0 or not known is left out."""
    return f"{cell_text(value)} ± {cell_text(error)}" if error else cell_text(value)


def ramp_of(theme: Theme) -> tuple[str, ...]:
    """The colours of the steps in a theme."""
    return DARK_RAMP if theme is DARK else RAMP


def ink_on(step: int, theme: Theme) -> str:
    """The colour of a text on a step's colour, none that a dark page replaces; -1 is the paper."""
    is_light = step <= 4 if theme is DARK else step >= 6
    return theme.ink if step < 0 else "#fefefe" if is_light else "#111111"


def _rounded(value: float, *, up: bool) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    if up:
        factor = next((digit for digit in (1, 2, 5, 10) if digit * power >= value * (1 - 1e-6)), 10)
    else:
        factor = next((digit for digit in (10, 5, 2, 1) if digit * power <= value * (1 + 1e-6)), 1)
    return float(f"{factor * power:.6g}")


def heat_panel(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    scale: Scale | None,
    texts: Sequence[Sequence[str]],
    label: str = "",
) -> Panel:
    """Cells of `values`, a sequence for each row, with their texts; NaN has no colour."""
    shades = [[_shade(value, scale) for value in row] for row in values]
    shown = [(row, column) for row in range(len(rows)) for column in range(len(columns))]
    labels = Labels(
        [column for _, column in shown],
        [row for row, _ in shown],
        [texts[row][column] for row, column in shown],
        "middle",
        tone=[f"on-heat-{shades[row][column] - 1}" for row, column in shown],
    )
    x, y = ([at - 0.5 for at in range(len(names) + 1)] for names in (columns, rows))
    cells = bytes(row[column] for column in range(len(columns)) for row in shades)
    across = Axis(-0.5, len(columns) - 0.5, label, "linear", range(len(columns)), tuple(columns))
    marks = (Heat(x, y, cells), labels)
    return Panel(across, Axis.band(rows), marks, 56 + ROW * max(1, len(rows)))


def scale_panel(scale: Scale, label: str) -> Panel:
    """The colours from the least to the most."""
    steps = len(RAMP)
    edges = [scale.floor * (scale.top / scale.floor) ** (step / steps) for step in range(steps + 1)]
    names = tuple(map(cell_text, scale.tens))
    across = Axis(scale.floor, scale.top, label, "log", tuple(scale.tens), names)
    shades = bytes(range(1, steps + 1))
    return Panel(across, Axis(0, 1), (Heat(edges, [0, 1], shades),), 62)


def _shade(value: float, scale: Scale | None) -> int:
    return 0 if scale is None or math.isnan(value) else scale.step(value) + 1

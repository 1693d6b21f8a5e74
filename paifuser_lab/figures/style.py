"""The look of all figures: calm, two themes, colours that colour-blind people tell apart (Okabe and Ito's palette)."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Theme(NamedTuple):
    """What a figure is drawn with."""

    paper: str
    ink: str
    faint: str
    main: str
    good: str
    bad: str


LIGHT = Theme("#ffffff", "#1a1a1a", "#8a8f94", "#0072b2", "#00795a", "#c2410c")
DARK = Theme("#111417", "#e8e8e8", "#7d848b", "#56b4e9", "#2bc196", "#e69f00")


class Drawing(Figure):
    """A figure that shows itself in a notebook, without pyplot."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=120, facecolor=self.get_facecolor())
        return {"image/png": picture.getvalue(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Drawing({self.get_label()})"


def theme_of(*, dark: bool) -> Theme:
    """The colours of a theme."""
    return DARK if dark else LIGHT


def blank(title: str, *, height: float, dark: bool) -> tuple[Drawing, Axes, Theme]:
    """An empty figure at one column's width with one set of axes, without boxes."""
    theme = theme_of(dark=dark)
    drawing = Drawing(figsize=(7.0, height), layout="constrained", facecolor=theme.paper)
    FigureCanvasAgg(drawing)
    drawing.set_label(title)
    axes = drawing.add_subplot(facecolor=theme.paper)
    axes.set_title(title, loc="left", color=theme.ink, fontsize=10)
    axes.tick_params(colors=theme.ink, labelsize=9, length=0)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.faint)
    return drawing, axes, theme

"""The look of all figures: calm, two themes, colours that colour-blind people tell apart (Okabe and Ito's palette)."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..progress import is_static


class Theme(NamedTuple):
    """What a figure is drawn with."""

    paper: str
    ink: str
    faint: str
    main: str
    good: str
    bad: str


LIGHT = Theme("#ffffff", "#1a1a1a", "#8a8f94", "#0072b2", "#00795a", "#c2410c")
DARK = Theme("#111111", "#e8e8e8", "#7d848b", "#56b4e9", "#2bc196", "#e69f00")


class Drawing(Figure):
    """A figure that shows itself in a notebook, without pyplot, in the theme that the notebook has.

    In static mode it is a plain picture, which every site shows.
    """

    redraw: Callable[..., Drawing] | None = None

    def png(self) -> bytes:
        """The figure as a picture."""
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=120, facecolor=self.get_facecolor())
        return picture.getvalue()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if is_static() or self.redraw is None:
            return {"image/png": self.png(), "text/plain": repr(self)}
        dark, label = self.redraw(dark=True), str(self.get_label())
        images = _image(self.png(), "light", label) + _image(dark.png(), "dark", label, style="display:none")
        return {"text/html": THEME_SWITCH + images, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Drawing({self.get_label()})"


# Where styles are stripped, as in a notebook that is not trusted, the light picture alone shows.
THEME_SWITCH = (
    '<style>[data-jp-theme-light="false"] .pf-figure-light { display: none !important; }'
    '[data-jp-theme-light="false"] .pf-figure-dark { display: inline !important; }</style>'
)


def _image(png: bytes, theme: str, label: str, *, style: str = "") -> str:
    data = base64.b64encode(png).decode()
    return f'<img class="pf-figure-{theme}" style="{style}" alt="{html.escape(label)}" width="700" src="data:image/png;base64,{data}">'


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
    drawing.suptitle(title, x=0.01, ha="left", color=theme.ink, fontsize=10)
    axes.tick_params(colors=theme.ink, labelsize=9, length=0)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.faint)
    return drawing, axes, theme

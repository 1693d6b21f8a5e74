"""The style of all figures: two themes, and colours for the colour-blind (Okabe and Ito)."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..progress import is_static
from .svg import inline_svg


class Theme(NamedTuple):
    """The colours of a figure."""

    paper: str
    ink: str
    faint: str
    main: str
    good: str
    bad: str
    compute: str
    memory: str
    overhead: str
    soft: str

    @property
    def variables(self) -> dict[str, str]:
        """The CSS variable of each colour; a colour with several names has the first."""
        return {colour: f"--pf-{name}" for name, colour in reversed(self._asdict().items())}

    @property
    def css(self) -> str:
        """The colours as CSS variables, for a page whose drawings follow its theme."""
        return "".join(f"--pf-{name}:{colour};" for name, colour in self._asdict().items())

    def of(self, bound: str | None) -> str:
        """The colour of a bound: compute, memory or overhead."""
        return {"compute": self.compute, "memory": self.memory, "overhead": self.overhead}.get(
            bound or "", self.faint
        )


LIGHT = Theme(
    "#ffffff",
    "#1a1a1a",
    "#8a8f94",
    "#0072b2",
    "#00795a",
    "#c2410c",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
    "#5c6166",
)
DARK = Theme(
    "#111111",
    "#e8e8e8",
    "#7d848b",
    "#56b4e9",
    "#2bc196",
    "#e69f00",
    "#56b4e9",
    "#e69f00",
    "#d48fb8",
    "#a9afb5",
)


class Drawing(Figure):
    """A figure that displays itself in a notebook, without pyplot, in the notebook's theme.

    In static mode it is a PNG, which every site can show. `hover` maps marks' gids to tooltips; a
    drawing with tooltips is shown as SVG.
    """

    redraw: Callable[..., Drawing] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hover: dict[str, str] = {}

    def add_tooltip(self, mark: Artist, text: str) -> None:
        """Give a mark a tooltip."""
        gid = f"mark-{len(self.hover)}"
        mark.set_gid(gid)
        self.hover[gid] = text

    def png(self) -> bytes:
        """The figure as PNG."""
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=120, facecolor=self.get_facecolor())
        return picture.getvalue()

    def svg(self) -> str:
        """The figure as SVG with tooltips, in the light theme's colours unless the page sets
        `--pf-ink` and the others.
        """
        return inline_svg(self, self.hover, LIGHT.variables)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if is_static() or self.redraw is None:
            return {"image/png": self.png(), "text/plain": repr(self)}
        if self.hover:
            return {"text/html": self._html_with_hover(), "text/plain": repr(self)}
        dark, label = self.redraw(dark=True), str(self.get_label())
        images = image(self.png(), "light", label) + image(
            dark.png(), "dark", label, style="display:none"
        )
        return {"text/html": THEME_SWITCH + images, "text/plain": repr(self)}

    def _html_with_hover(self) -> str:
        plain = image(self.png(), "plain", str(self.get_label()))
        figure = f'<div class="pf-figure-svg" style="display:none">{self.svg()}</div>'
        return f"{HOVER_SWITCH}{plain}{figure}"

    def __repr__(self) -> str:
        return f"Drawing({self.get_label()})"


# Where styles are stripped, as in an untrusted notebook, only the light picture is visible.
THEME_SWITCH = (
    '<style>[data-jp-theme-light="false"] .pf-figure-light { display: none !important; }'
    '[data-jp-theme-light="false"] .pf-figure-dark { display: inline !important; }</style>'
)
# An untrusted notebook strips the style and the SVG, and keeps the plain picture.
HOVER_SWITCH = (
    "<style>.pf-figure-plain { display: none !important; } .pf-figure-svg { display: block "
    "!important; }"
    f'[data-jp-theme-light="false"] .pf-figure-svg {{ {DARK.css} }}</style>'
)


def image(png: bytes, theme: str, label: str, *, style: str = "") -> str:
    data = base64.b64encode(png).decode()
    return (
        f'<img class="pf-figure-{theme}" style="{style}" alt="{html.escape(label)}" width="700" '
        f'src="data:image/png;base64,{data}">'
    )


def theme_of(*, dark: bool) -> Theme:
    """The colours of a theme."""
    return DARK if dark else LIGHT


def end_label(axes: Axes, theme: Theme, text: str, end: tuple[float, float]) -> None:
    """Write a text behind the end of a bar; no part of it is read as a formula."""
    axes.annotate(
        text,
        end,
        (7, 0),
        textcoords="offset points",
        va="center",
        color=theme.ink,
        fontsize=8.5,
        parse_math=False,
    )


def legend_beside(
    axes: Axes, theme: Theme, handles: list[Artist] | None = None, labels: list[str] | None = None
) -> None:
    """A legend to the right of the axes: of these handles, or of everything that has a label."""
    known, names = axes.get_legend_handles_labels()
    legend = axes.legend(
        known if handles is None else handles,
        names if labels is None else labels,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        fontsize=8,
        frameon=False,
        labelcolor=theme.ink,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar sign in a name would start a formula


def blank(title: str, *, height: float, dark: bool) -> tuple[Drawing, Axes, Theme]:
    """An empty figure of one column's width with one set of axes, without a frame."""
    theme = theme_of(dark=dark)
    drawing = Drawing(figsize=(7.0, height), layout="constrained", facecolor=theme.paper)
    FigureCanvasAgg(drawing)
    drawing.set_label(title)
    axes = drawing.add_subplot(facecolor=theme.paper)
    drawing.suptitle(title, x=0.01, ha="left", color=theme.ink, fontsize=10, parse_math=False)
    axes.tick_params(colors=theme.ink, labelsize=9, length=0)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.faint)
    return drawing, axes, theme

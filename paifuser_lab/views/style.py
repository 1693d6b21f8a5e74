"""The style of all figures: themes in colours for the colour-blind, and a drawing for notebooks."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast
from xml.etree import ElementTree

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.text import Annotation

from ..progress import is_static

Spot = tuple[float, float]


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

    def tone(self, name: str) -> str:
        """A colour by its name: of a field, or of a group of layers."""
        return TONES.get(name) or str(getattr(self, name))


# none is a colour of `LIGHT`: a dark page replaces those
GROUPS = ("#0072b3", "#e69f00", "#009e73", "#cc79a8", "#56b4e9", "#d55e01", "#8a8f95")
TONES = {f"group-{index}": colour for index, colour in enumerate(GROUPS)}
# of memory → its tone
CATEGORIES = {
    "weights": "group-0", "optimizer state": "group-1", "activations": "group-2",
    "gradients": "group-3", "inputs": "group-4", "communication": "group-5",
    "workspace": "group-5", "other": "group-6", "unknown": "group-6",
}  # fmt: skip
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

    def __init__(self, *, dark: bool, **kwargs: Any) -> None:
        self.theme = DARK if dark else LIGHT
        super().__init__(facecolor=self.theme.paper, **kwargs)
        FigureCanvasAgg(self)
        self.hover: dict[str, str] = {}

    def add_plot(self, place: SubplotSpec | None = None) -> Plot:
        """New axes in the drawing's theme, in a cell of a grid or alone."""
        look: dict[str, Any] = {"axes_class": Plot, "facecolor": self.theme.paper}
        plot: Any = self.add_subplot(*([] if place is None else [place]), **look)
        plot.drawing, plot.theme = self, self.theme
        plot.tick_params(colors=self.theme.ink, labelsize=8.5, length=0, which="both")
        plot.spines[:].set_color(self.theme.faint)
        plot.spines[["left", "right", "top"]].set_visible(False)
        return cast(Plot, plot)

    def png(self) -> bytes:
        """The figure as PNG."""
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=120, facecolor=self.get_facecolor())
        return picture.getvalue()

    def svg(self) -> str:
        """The figure as SVG with tooltips, in light colours unless the page sets `--pf-ink` …"""
        return inline_svg(self, self.hover, LIGHT.variables)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if is_static() or self.redraw is None:
            return {"image/png": self.png(), "text/plain": repr(self)}
        label = str(self.get_label())
        if self.hover:
            plain = image(self.png(), "plain", label)
            figure = f'<div class="pf-figure-svg" style="display:none">{self.svg()}</div>'
            return {"text/html": HOVER_SWITCH + plain + figure, "text/plain": repr(self)}
        dark = self.redraw(dark=True)
        images = image(self.png(), "light", label) + image(
            dark.png(), "dark", label, style="display:none"
        )
        return {"text/html": THEME_SWITCH + images, "text/plain": repr(self)}

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


class Plot(Axes):
    """Axes in the colours of their drawing, without a frame but the line below."""

    drawing: Drawing
    theme: Theme

    def tooltip(self, mark: Artist, text: str) -> None:
        """Give a mark a tooltip; '' is none."""
        if text:
            gid = f"mark-{len(self.drawing.hover)}"
            mark.set_gid(gid)
            self.drawing.hover[gid] = text

    def note(
        self, text: str, at: Spot, by: Spot = (0, 0), *, to_left: bool = False, **more: Any
    ) -> Annotation:
        """Write a text so many points from a place; no part of it is read as a formula."""
        look: dict[str, Any] = {"color": self.theme.ink, "size": 8.5, "parse_math": False}
        if to_left:
            look, by = {**look, "ha": "right"}, (-by[0], by[1])
        return self.annotate(text, at, by, textcoords="offset points", **(look | more))

    def legend_beside(self, handles: Sequence[Artist], labels: Sequence[str]) -> None:
        """A legend to the right."""
        legend = self.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            fontsize=8,
            frameon=False,
            labelcolor=self.theme.ink,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)  # a dollar sign in a name would start a formula


def visible(text: str) -> str:
    """A text on one line, without unprintable characters."""
    return printable(" ".join(text.split()))


def without_middle(text: str, widest: int) -> str:
    """'stages.0.layers.1.layer.1.convolution', 20 → 'stages.0….convolution'."""
    if len(text) <= widest:
        return text
    tail = (2 * widest) // 3  # layer paths differ at their ends
    return f"{text[: max(1, widest - tail - 1)]}…{text[-tail:]}"


def wrapped(text: str, width: int = 78, most: int = 4) -> list[str]:
    """A text, such as a title, wrapped to the width of a drawing."""
    return textwrap.wrap(visible(text), width, max_lines=most, placeholder=" …") or [""]


def blank(title: str, *, height: float, dark: bool) -> Plot:
    """The plot of an empty figure of one column's width, whose title is wrapped."""
    drawing = Drawing(dark=dark, figsize=(7.0, height), layout="constrained")
    drawing.set_label(visible(title))
    shown = "\n".join(wrapped(title))
    ink = drawing.theme.ink
    drawing.suptitle(shown, x=0.01, ha="left", color=ink, fontsize=10, parse_math=False)
    return drawing.add_plot()


FONTS = "'DejaVu Sans', Verdana, sans-serif"  # as wide as the font of the layout
METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
REFERENCE = re.compile(r"(#)([\w.-]+)(?=\)|$)")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
FONT = re.compile(r"font: ((?:[\w.]+ )*[\d.]+px)[^;]*")


def inline_svg(figure: Figure, hover: Mapping[str, str], variables: Mapping[str, str]) -> str:
    """The figure as one `<svg>`, with tooltips by gid and CSS variables for colours."""
    written = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "paifuser"}):
        figure.savefig(written, format="svg", facecolor=figure.get_facecolor(), metadata=METADATA)
    prefix = "d" + hashlib.sha256(written.getvalue()).hexdigest()[:10] + "-"
    root = ElementTree.fromstring(written.getvalue())
    for element in list(root.iter()):
        element.tag = _local(element.tag)  # HTML needs no XML namespaces
        attributes = {_local(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update(attributes)
        tooltip = hover.get(element.get("id", ""))
        if tooltip is not None:
            title = ElementTree.Element("title")
            title.text = printable(tooltip)
            element.insert(0, title)
        _rewrite(element, prefix, variables)
    # style rules would apply to the whole page
    for parent in (root, *root.findall("defs")):
        for child in list(parent):
            if child.tag in ("style", "metadata"):
                parent.remove(child)
    _name(root, str(figure.get_label()))
    return ElementTree.tostring(root, encoding="unicode")


def printable(text: str) -> str:
    """The text with unprintable characters replaced; line breaks are kept."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _rewrite(element: ElementTree.Element, prefix: str, variables: Mapping[str, str]) -> None:
    """Prefix ids and references to them, and replace colours by CSS variables."""
    for key, value in list(element.attrib.items()):
        if key == "id":
            element.set(key, prefix + value)
        elif key in ("href", "clip-path") or "url(#" in value:
            value = REFERENCE.sub(rf"\g<1>{prefix}\g<2>", value)
            element.set(key, value)
        if key == "style":
            coloured = COLOUR.sub(lambda match: _variable(match[0], variables), value)
            element.set(key, FONT.sub(rf"font: \1 {FONTS}", coloured))


def _variable(colour: str, variables: Mapping[str, str]) -> str:
    return f"var({variables[colour]}, {colour})" if colour in variables else colour


def _name(root: ElementTree.Element, label: str) -> None:
    """Mark the SVG as one image with a label for screen readers, and let it fill its container."""
    width = float(str(root.get("width", "504pt")).removesuffix("pt")) / 0.72
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set(
        "style",
        f"width:100%;max-width:{width:.0f}px;height:auto;stroke-linejoin:round;stroke-linecap:butt",
    )
    root.set("role", "img")
    root.set("aria-label", printable(label))

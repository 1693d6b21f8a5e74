"""A drawing as SVG inside a page: with tooltips, unique ids, and colours that the page can set. No
JavaScript.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONTS = "'DejaVu Sans', Verdana, sans-serif"  # as wide as the font of the layout
METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
REFERENCE = re.compile(r"(#)([\w.-]+)(?=\)|$)")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
FONT = re.compile(r"font: ((?:[\w.]+ )*[\d.]+px)[^;]*")


def inline_svg(figure: Figure, hover: Mapping[str, str], variables: Mapping[str, str]) -> str:
    """The figure as one `<svg>`: `hover` maps gids to their tooltips, `variables` colours to
    CSS variables.
    """
    written = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "paifuser"}):
        figure.savefig(written, format="svg", facecolor=figure.get_facecolor(), metadata=METADATA)
    prefix = "d" + hashlib.sha256(written.getvalue()).hexdigest()[:10] + "-"
    root = ElementTree.fromstring(written.getvalue())
    for element in list(root.iter()):
        _localise(element)
        tooltip = hover.get(element.get("id", ""))
        if tooltip is not None:
            title = ElementTree.Element("title")
            title.text = printable(tooltip)
            element.insert(0, title)
        _rewrite(element, prefix, variables)
    _drop_rules(root)
    _name(root, str(figure.get_label()))
    return ElementTree.tostring(root, encoding="unicode")


def printable(text: str) -> str:
    """The text with unprintable characters replaced; line breaks are kept."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)


def _localise(element: ElementTree.Element) -> None:
    """Drop XML namespaces, which HTML does not need."""
    element.tag = _local(element.tag)
    attributes = {_local(key): value for key, value in element.attrib.items()}
    element.attrib.clear()
    element.attrib.update(attributes)


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
        # the background of a hatch; only a style may hold a variable
        elif key == "fill" and value in variables:
            del element.attrib["fill"]
            element.set("style", f"fill: {_variable(value, variables)}")
        if key == "style":
            coloured = COLOUR.sub(lambda match: _variable(match[0], variables), value)
            element.set(key, FONT.sub(rf"font: \1 {FONTS}", coloured))


def _variable(colour: str, variables: Mapping[str, str]) -> str:
    return f"var({variables[colour]}, {colour})" if colour in variables else colour


def _drop_rules(root: ElementTree.Element) -> None:
    """Remove the metadata, and style rules, which would apply to the whole page."""
    for parent in (root, *root.findall("defs")):
        for child in list(parent):
            if child.tag in ("style", "metadata"):
                parent.remove(child)


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

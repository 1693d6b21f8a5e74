"""Scripts that find text in the page which is cut off, outside its box, or too faint to read."""

from __future__ import annotations

from typing import Any

THEMES = ("JupyterLab Light", "JupyterLab Dark")
LEAST_CONTRAST = 4.5  # WCAG AA
SIGN_CONTRAST = 3.0  # of what is no text

# Every visible element with text of its own, as [element, text node].
_TEXTS = """
const texts = [...frame.querySelectorAll("*")].flatMap((element) => {
  if (element.closest("[inert], select")) return [];
  const style = getComputedStyle(element);
  if (style.visibility !== "visible" || !element.getClientRects().length) return [];
  const node = [...element.childNodes].find((one) => one.nodeType === 3 && one.data.trim());
  return node ? [[element, node, style]] : [];
});
const boxOf = (node) => {
  const range = document.createRange();
  range.selectNodeContents(node);
  return range.getBoundingClientRect();
};
const inside = (element) => {
  const line = [];
  for (let at = element; at && at !== frame.parentElement; at = at.parentElement) line.push(at);
  return line;
};
const named = (element) =>
  `${element.getAttribute("class") ?? element.localName}: ${element.textContent.trim()}`;
"""

# A line that wraps out of sight as a whole, and text cut by an ellipsis that a tooltip completes,
# are meant; the head of a column is read whole.
CUT = (
    "(frame) => {"
    + _TEXTS
    + """
  const found = new Set();
  const most = frame.getBoundingClientRect();
  for (const [element, node] of texts) {
    const box = boxOf(node);
    if (!box.width) continue;
    const line = inside(element);
    const isTold = line.some((one) => one.title || one.querySelector?.(":scope > title"));
    for (const [place, one] of line.entries()) {
      const style = getComputedStyle(one);
      const edge = one.getBoundingClientRect();
      const isOutside = box.top >= edge.bottom - 2 || box.bottom <= edge.top + 2;
      if (style.overflowY !== "visible" && isOutside) break;
      const clips = style.overflowX !== "visible" && one.localName !== "svg";
      if (clips && (box.right > edge.right + 1 || box.left < edge.left - 1)) {
        const isHead = Boolean(element.closest("[role=columnheader]"));
        if (isHead || !(style.textOverflow === "ellipsis" && isTold)) found.add(named(element));
        break;
      }
      const scrolls = ["auto", "scroll"].includes(style.overflowY);
      if (scrolls) break;
      if (style.overflowY === "hidden" && place < line.length - 1) {
        const isCut = box.bottom > edge.bottom + 3 || box.top < edge.top - 3;
        if (isCut) found.add(named(element));
      }
      if (one === frame && (box.right > most.right + 1 || box.left < most.left - 1))
        found.add(named(element));
    }
  }
  return [...found];
}"""
)

# What is disabled may be faint; a sign beside its word is a picture.
FAINT = (
    "(frame, least) => {"
    + _TEXTS
    + f"const SIGN = {SIGN_CONTRAST};"
    + """
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  const laid = (under, colour, opacity = 1) => {
    brush.globalAlpha = 1;
    brush.fillStyle = `rgb(${under})`;
    brush.fillRect(0, 0, 1, 1);
    brush.globalAlpha = opacity;
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Set();
  for (const [element, , style] of texts) {
    if (element.closest("[aria-disabled=true], :disabled")) continue;
    let ground = [255, 255, 255];
    let opacity = 1;
    for (let at = document.documentElement; at; ) {
      const here = getComputedStyle(at);
      ground = laid(ground, here.backgroundColor);
      opacity *= Number(here.opacity);
      at = at === element ? null : [...at.children].find((child) => child.contains(element));
    }
    const colour = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const ink = laid(ground, colour, opacity);
    const [light, dark] = [luminance(ink), luminance(ground)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    const needed = element.closest("[aria-hidden=true]") ? SIGN : least;
    if (contrast < needed) found.add(`${contrast.toFixed(2)} ${named(element)}`);
  }
  return [...found];
}"""
)


def dress(page: Any, theme: str) -> None:
    """Change JupyterLab's theme, without reloading the page."""
    page.evaluate(
        "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme
    )
    is_light = str(theme == THEMES[0]).lower()
    page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{is_light}'")
    page.wait_for_timeout(300)


def resize(frame: Any, width: int) -> None:
    """Give the workbench a width, whatever the window's."""
    frame.evaluate("(element, width) => { element.style.width = `${width}px`; }", width)
    frame.page.wait_for_timeout(250)


def cut_text(frame: Any) -> list[str]:
    """Text that is cut off without a tooltip, or that leaves its box."""
    found: list[str] = frame.evaluate(CUT)
    return found


def faint_text(frame: Any) -> list[str]:
    """Text whose contrast with what lies under it is below AA."""
    found: list[str] = frame.evaluate(FAINT, LEAST_CONTRAST)
    return found

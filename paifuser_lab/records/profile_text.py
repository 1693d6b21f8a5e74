"""A profile as a text table for terminals and as a folding HTML tree for notebooks, without
JavaScript.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from itertools import pairwise

from .layer_profile import LayerProfile, OperatorProfile
from .profile_tree import ProfileTree
from .text import readable_bytes, readable_count

OPEN_SHARE = 0.05  # layers with a larger share of the time are shown unfolded
# operators between layers with a smaller share are only in `profile.operators`
SHOWN_SHARE = 0.002
COLUMNS = (
    "self ms",
    "total ms",
    "share",
    "FLOPs",
    "weights",
    "moved",
    "peak",
    "output",
    "reached",
    "bound by",
)
MAX_LINES = 40


def profile_table(profile: ProfileTree, depth: int | None = None) -> list[dict[str, str]]:
    """One line per layer and per operator that ran between layers, indented by depth."""
    lines: list[dict[str, str]] = []
    for level, row in profile.walk():
        if depth is not None and level > depth:
            continue
        lines.append(
            {"layer": "  " * level + name_of(row, profile), "kind": row.kind, **cells(row, profile)}
        )
        if depth is None or level < depth:
            lines += [
                {"layer": "  " * (level + 1) + f"+ {operator.name}", **texts}
                for operator, texts in container_operators(row, profile)
            ]
    return lines


def profile_text(profile: ProfileTree, depth: int | None = None) -> str:
    """The table in a terminal; long ones are cut, with a note."""
    lines = profile_table(profile, depth)
    shown = lines[:MAX_LINES] if depth is None else lines
    keys = [key for key in ("layer", "kind", *COLUMNS) if any(line.get(key) for line in shown)]
    widths = {key: max(len(key), *(len(line.get(key, "")) for line in shown)) for key in keys}
    rows = [{key: key for key in keys}, *shown]
    text = [
        "  ".join(
            row.get(key, "").ljust(widths[key])
            if key in ("layer", "kind", "bound by")
            else row.get(key, "").rjust(widths[key])
            for key in keys
        ).rstrip()
        for row in rows
    ]
    left = len(lines) - len(shown)
    more = (
        [f"… and {left} lines more: profile.frame has them all, profile.table(depth=2) fewer"]
        if left
        else []
    )
    return "\n".join([profile.title, *failure(profile), *text, *more, profile.accuracy])


def name_of(row: LayerProfile, profile: ProfileTree) -> str:
    """A layer's name relative to its parent in the tree."""
    if not row.layer:
        return profile.workload
    above = profile.parent(row.layer)
    return row.layer.removeprefix(f"{above}.") if above else row.layer


def cells(row: LayerProfile, profile: ProfileTree) -> dict[str, str]:
    """The texts of a layer's columns."""
    return {
        "calls": "" if row.calls in (0, 1) else f"{row.calls} ×",
        "self ms": _ms(row.self_ms, profile),
        "total ms": _ms(row.total_ms, profile),
        "share": f"{row.share:.1%}",
        "FLOPs": readable_count(row.total_flops) if row.total_flops else "",
        "weights": readable_count(row.total_parameters) if row.total_parameters else "",
        "moved": readable_bytes(row.total_bytes) if row.total_bytes else "",
        "peak": readable_bytes(row.peak_bytes) if row.peak_bytes else "",
        "output": ", ".join("×".join(map(str, shape)) or "1" for shape in row.output_shapes[:1]),
        "reached": _reached(row),
        "bound by": _bound(row, profile),
    }


def container_operators(
    row: LayerProfile, profile: ProfileTree
) -> Iterator[tuple[OperatorProfile, dict[str, str]]]:
    """Operators that a container ran itself between its layers, with their columns' texts."""
    if not profile.children(row.layer):
        return
    for operator in row.operators:
        if operator.ms > SHOWN_SHARE * profile.total_ms:
            yield (
                operator,
                {
                    "kind": "operator" if operator.calls == 1 else f"operator, {operator.calls} ×",
                    "self ms": _ms(operator.ms, profile),
                    "total ms": _ms(operator.ms, profile),
                    "share": f"{operator.ms / (profile.total_ms or 1.0):.1%}",
                    "FLOPs": readable_count(operator.flops) if operator.flops else "",
                    "moved": readable_bytes(operator.read_bytes + operator.written_bytes),
                },
            )


def failure(profile: ProfileTree) -> list[str]:
    """A line that says why the profile stopped early, if it did."""
    return [f"stopped: {profile.failure}"] if profile.failure else []


def _ms(value: float, profile: ProfileTree) -> str:
    """Milliseconds with the same number of decimals in every row."""
    decimals = next(
        (count for limit, count in ((1, 4), (100, 3), (1000, 2)) if profile.total_ms < limit), 1
    )
    return f"{value:.{decimals}f}"


def _reached(row: LayerProfile) -> str:
    """The rate that the layer reached, in the unit of its roof."""
    if row.verdict == "memory" and row.gbs:
        return f"{row.gbs:.3g} GB/s"
    return f"{row.gflops:.3g} GFLOP/s" if row.gflops else ""


def _bound(row: LayerProfile, profile: ProfileTree) -> str:
    if row.verdict is None or row.self_ms < SHOWN_SHARE * profile.total_ms:
        return ""
    share = row.roof_share
    far = f" ({share:.0%} of the roof)" if row.verdict != "overhead" and share is not None else ""
    return f"{row.verdict}{far}"


# The tree in a notebook: nested <details> in columns of fixed width, in the colours of the page
# around it. Where the page is narrow, less important columns are hidden; each row's tooltip still
# has them.

# as on the roofline, so that colour is not the only sign
SHAPES = {"compute": "●", "memory": "■", "overhead": "▲"}
HTML_COLUMNS = {  # each with its width in em, and the least width of the tree in px to show it
    "total ms": (5.5, 0),
    "share": (4, 0),
    "self ms": (5, 0),
    "FLOPs": (5, 620),
    "weights": (5, 790),
    "moved": (5.5, 620),
    "peak": (5.5, 970),
    "output": (9, 1090),
    "reached": (8, 970),
    "bound by": (9, 0),
}
KIND = (8, 790)


def profile_html(profile: ProfileTree) -> str:
    """The tree with bars, costly branches unfolded, with the title above and the accuracy below."""
    notes = "".join(
        f'<p class="pf-faint">{html.escape(note)}</p>'
        for note in [*failure(profile), profile.accuracy]
    )
    title = f"<p><b>{html.escape(profile.title)}</b></p>"
    return (
        '<div class="pf-profile" data-lm-suppress-shortcuts="true">'
        f"{title}{profile_tree(profile)}{notes}</div>"
    )


def profile_tree(profile: ProfileTree) -> str:
    """The tree alone, for a page that has its own title; it folds by mouse and keyboard."""
    heads = "".join(
        f'<span class="pf-{_slug(key)}">{html.escape(key)}</span>' for key in HTML_COLUMNS
    )
    label = f"layers of {html.escape(profile.workload)}"
    return (
        f'<style>{tree_style()}</style><div class="pf-tree" role="list" aria-label="{label}">'
        '<div class="pf-row pf-head" aria-hidden="true">'
        '<span class="pf-left">layer</span><span class="pf-left pf-kind">kind</span>'
        f"{heads}</div>{_branch(profile, profile.root, 0)}</div>"
    )


def tree_style() -> str:
    """The tree's CSS; the less important columns are hidden as the tree gets narrower."""
    columns = {"kind": KIND, **HTML_COLUMNS}
    limits = sorted({limit for _, limit in columns.values()}, reverse=True)
    rules = [f".pf-tree .pf-row {{ grid-template-columns: {_grid(columns, limits[0])}; }}"]
    for limit, below in pairwise(limits):
        hidden = ", ".join(
            f".pf-tree .pf-{_slug(key)}" for key, (_, wide) in columns.items() if wide == limit
        )
        grid = f".pf-tree .pf-row {{ grid-template-columns: {_grid(columns, below)}; }}"
        rules.append(
            f"@container pf-tree (max-width: {limit}px) {{ {hidden} {{ display: none; }} {grid} }}"
        )
    return STYLE + "\n".join(rules)


def _grid(columns: dict[str, tuple[float, int]], limit: int) -> str:
    return "minmax(12em, 1fr) " + " ".join(
        f"{width}em" for width, wide in columns.values() if wide <= limit
    )


def _slug(key: str) -> str:
    return key.replace(" ", "-").lower()


STYLE = """
.pf-tree { container: pf-tree / inline-size; font-size: 12px; line-height: 1.5; }
.pf-tree .pf-row { display: grid; column-gap: 0.7em; white-space: nowrap; padding: 1px 4px; }
.pf-tree .pf-row > span { overflow: hidden; text-overflow: ellipsis; text-align: right;
  font-variant-numeric: tabular-nums; }
.pf-tree .pf-row > .pf-left, .pf-tree .pf-row > .pf-bound-by { text-align: left; }
.pf-tree .pf-head { font-weight: 600; border-bottom: 1px solid rgba(128, 128, 128, 0.5); }
.pf-tree summary { cursor: pointer; list-style: none; }
.pf-tree summary::-webkit-details-marker { display: none; }
.pf-tree summary:focus-visible { outline: 2px solid #2b8fd0; outline-offset: -2px; }
.pf-tree .pf-row:hover { background: rgba(128, 128, 128, 0.12); }
.pf-tree .pf-name { padding-left: calc(1.1em * var(--pf-depth, 0)); }
.pf-tree details > summary .pf-name::before { content: "▸ "; }
.pf-tree details[open] > summary .pf-name::before { content: "▾ "; }
.pf-tree .pf-leaf .pf-name::before { content: "\\2003"; }
.pf-tree .pf-row > .pf-total-ms { padding-right: 3px;
  background: linear-gradient(rgba(50, 140, 205, 0.42) 0 0)
    no-repeat left / var(--pf-share, 0) 82%; }
.pf-tree .pf-compute { color: #0f7fc0; } .pf-tree .pf-memory { color: #d55e00; }
.pf-tree .pf-overhead { color: #c2699a; }
.pf-tree .pf-kind, .pf-tree .pf-operator, .pf-profile .pf-faint { opacity: 0.7; }
.pf-tree .pf-operator .pf-kind { opacity: 1; }
.pf-profile p { margin: 0.3em 0; }
"""


def _branch(profile: ProfileTree, row: LayerProfile, depth: int) -> str:
    name = name_of(row, profile) + (f" ({row.calls} ×)" if row.calls > 1 else "")
    line = _line(name, row.kind, _html_cells(row, profile))
    style = f"--pf-depth:{depth};--pf-share:{min(1.0, row.share):.1%}"
    attributes = f'style="{style}" title="{_tooltip(row, profile)}"'
    below = profile.children(row.layer)
    if not below:
        return f'<div class="pf-row pf-leaf" role="listitem" {attributes}>{line}</div>'
    inside = "".join(_branch(profile, child, depth + 1) for child in below)
    is_open = " open" if row.share > OPEN_SHARE else ""
    return (
        f'<div role="listitem"><details{is_open}>'
        f'<summary class="pf-row" {attributes}>{line}</summary>'
        f'<div role="list">{inside}{_between(profile, row, depth + 1)}</div></details></div>'
    )


def _between(profile: ProfileTree, row: LayerProfile, depth: int) -> str:
    """A line for each operator that a container ran itself between its layers."""
    lines = []
    for operator, texts in container_operators(row, profile):
        share = min(1.0, operator.ms / (profile.total_ms or 1.0))
        style = f"--pf-depth:{depth};--pf-share:{share:.1%}"
        escaped = {key: html.escape(text) for key, text in texts.items()}
        line = _line(f"+ {operator.name}", texts["kind"], escaped)
        lines.append(
            f'<div class="pf-row pf-leaf pf-operator" role="listitem" style="{style}">{line}</div>'
        )
    return "".join(lines)


def _tooltip(row: LayerProfile, profile: ProfileTree) -> str:
    """A row as one line of text, for the tooltip and for screen readers."""
    texts = cells(row, profile)
    output = f" gives {texts['output']}" if texts["output"] else ""
    facts = [
        f"{texts['total ms']} ms with all layers inside it, {texts['share']} of the time",
        f"{texts['self ms']} ms itself",
    ]
    facts += [f"{texts[key]} {key}" for key in ("FLOPs", "weights", "moved", "peak") if texts[key]]
    facts += [texts["reached"]] if texts["reached"] else []
    facts += [f"bound by {texts['bound by']}"] if texts["bound by"] else []
    return html.escape(
        f"{row.layer or profile.workload}, {row.kind} {row.detail}".rstrip()
        + f"{output}: {', '.join(facts)}"
    )


def _html_cells(row: LayerProfile, profile: ProfileTree) -> dict[str, str]:
    """The cells, escaped; the bound is shown by its sign, with the share of the roof."""
    texts = {key: html.escape(text) for key, text in cells(row, profile).items()}
    if texts["bound by"] and row.verdict:
        share = (
            f" {row.roof_share:.0%}"
            if row.verdict != "overhead" and row.roof_share is not None
            else ""
        )
        sign = f'<i class="pf-{row.verdict}" aria-hidden="true">{SHAPES[row.verdict]}</i>'
        texts["bound by"] = f"{sign} {row.verdict}{share}"
    return texts


def _line(name: str, kind: str, texts: dict[str, str]) -> str:
    """A row's cells; `texts` are escaped already. Spaces separate them where styles are
    stripped.
    """
    first = (
        f'<span class="pf-left pf-name">{html.escape(name)}</span> '
        f'<span class="pf-left pf-kind">{html.escape(kind)}</span>'
    )
    return first + "".join(
        f' <span class="pf-{_slug(key)}">{texts.get(key, "")}</span>' for key in HTML_COLUMNS
    )

"""A profile as a table: for a terminal, and as a tree that folds in a notebook, without a line of JavaScript."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .text import readable_bytes, readable_count

if TYPE_CHECKING:
    from .profile import LayerProfile, OperatorProfile, Profile

OPEN_SHARE = 0.05  # what takes more of the time than this stands open
A_PIECE = 0.002  # of the whole: operators between layers that take less are left to `profile.operators`
COLUMNS = ("self ms", "total ms", "share", "FLOPs", "weights", "moved", "peak", "output", "reached", "bound by")
MOST_LINES = 40


def profile_table(profile: Profile, depth: int | None = None) -> list[dict[str, str]]:
    """The tree, a row a line, with the operators that ran between layers; each line knows how deep it is."""
    lines: list[dict[str, str]] = []
    for level, row in profile.walk():
        if depth is not None and level > depth:
            continue
        lines.append({"layer": "  " * level + name_of(row, profile), "kind": row.kind, **cells(row, profile)})
        if depth is None or level < depth:
            lines += [{"layer": "  " * (level + 1) + f"+ {one.name}", **piece} for one, piece in pieces(row, profile)]
    return lines


def profile_text(profile: Profile, depth: int | None = None) -> str:
    """The table in a terminal; long ones end with a line that says so."""
    lines = profile_table(profile, depth)
    shown = lines[:MOST_LINES] if depth is None else lines
    keys = [key for key in ("layer", "kind", *COLUMNS) if any(line.get(key) for line in shown)]
    widths = {key: max(len(key), *(len(line.get(key, "")) for line in shown)) for key in keys}
    rows = [{key: key for key in keys}, *shown]
    text = [
        "  ".join(
            row.get(key, "").ljust(widths[key]) if key in ("layer", "kind", "bound by") else row.get(key, "").rjust(widths[key])
            for key in keys
        ).rstrip()
        for row in rows
    ]
    left = len(lines) - len(shown)
    more = [f"… and {left} lines more: profile.frame has them all, profile.table(depth=2) fewer"] if left else []
    return "\n".join([profile.title, *failure(profile), *text, *more, profile.accuracy])


def name_of(row: LayerProfile, profile: Profile) -> str:
    """A layer's name as its place in the tree leaves it."""
    if not row.layer:
        return profile.workload
    above = profile.parent(row.layer)
    return row.layer.removeprefix(f"{above}.") if above else row.layer


def cells(row: LayerProfile, profile: Profile) -> dict[str, str]:
    """What is told of a layer."""
    return {
        "calls": "" if row.calls in (0, 1) else f"{row.calls} ×",
        "self ms": _ms(row.self_ms),
        "total ms": _ms(row.total_ms),
        "share": f"{row.share:.1%}",
        "FLOPs": readable_count(row.total_flops) if row.total_flops else "",
        "weights": readable_count(row.total_parameters) if row.total_parameters else "",
        "moved": readable_bytes(row.total_bytes) if row.total_bytes else "",
        "peak": readable_bytes(row.peak_bytes) if row.peak_bytes else "",
        "output": ", ".join("×".join(map(str, shape)) or "1" for shape in row.output_shapes[:1]),
        "reached": _reached(row),
        "bound by": _bound(row, profile),
    }


def pieces(row: LayerProfile, profile: Profile) -> Iterator[tuple[OperatorProfile, dict[str, str]]]:
    """Operators that a container ran itself, between its layers."""
    if not profile.children(row.layer):
        return
    for one in row.operators:
        if one.ms > A_PIECE * profile.total_ms:
            yield (
                one,
                {
                    "kind": "operator" if one.calls == 1 else f"operator, {one.calls} ×",
                    "self ms": _ms(one.ms),
                    "total ms": _ms(one.ms),
                    "share": f"{one.ms / (profile.total_ms or 1.0):.1%}",
                    "FLOPs": readable_count(one.flops) if one.flops else "",
                    "moved": readable_bytes(one.read_bytes + one.written_bytes),
                },
            )


def failure(profile: Profile) -> list[str]:
    """What went wrong, where something did."""
    return [f"stopped: {profile.failure}"] if profile.failure else []


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _reached(row: LayerProfile) -> str:
    """The rate under the roof that is over it."""
    if row.verdict == "memory" and row.gbs:
        return f"{row.gbs:.3g} GB/s"
    return f"{row.gflops:.3g} GFLOP/s" if row.gflops else ""


def _bound(row: LayerProfile, profile: Profile) -> str:
    if row.verdict is None or row.self_ms < A_PIECE * profile.total_ms:
        return ""
    share = row.roof_share
    far = f" ({share:.0%} of the roof)" if row.verdict != "overhead" and share is not None else ""
    return f"{row.verdict}{far}"


# The tree in a notebook: nested <details>, in columns of fixed width, in the colours of the page around it.

STYLE = """<style>
.pf-profile { font-size: 12px; line-height: 1.5; overflow-x: auto; }
.pf-profile .pf-row { display: grid; grid-template-columns: minmax(18em, 1fr) 9em 9em 5em 4em 5em 5em 6em 6em 8em 8em 11em;
  column-gap: 0.8em; min-width: 96em; white-space: nowrap; padding: 1px 4px; }
.pf-profile .pf-row > span { overflow: hidden; text-overflow: ellipsis; text-align: right; font-variant-numeric: tabular-nums; }
.pf-profile .pf-row > .pf-left { text-align: left; }
.pf-profile .pf-head { font-weight: 600; border-bottom: 1px solid rgba(128, 128, 128, 0.5); }
.pf-profile summary { cursor: pointer; list-style: none; }
.pf-profile summary::-webkit-details-marker { display: none; }
.pf-profile .pf-row:hover { background: rgba(128, 128, 128, 0.12); }
.pf-profile details > summary .pf-name::before { content: "▸ "; }
.pf-profile details[open] > summary .pf-name::before { content: "▾ "; }
.pf-profile .pf-leaf .pf-name::before { content: "\\2003"; }
.pf-profile .pf-bar { background: linear-gradient(rgba(0, 114, 178, 0.35) 0 0) no-repeat left / var(--pf-share) 100%; }
.pf-profile .pf-faint { opacity: 0.65; }
.pf-profile p { margin: 0.3em 0; }
</style>"""


def profile_html(profile: Profile) -> str:
    """The tree with bars, open where the time goes."""
    heads = "".join(f"<span>{html.escape(key)}</span>" for key in COLUMNS)
    notes = [*failure(profile), profile.accuracy]
    return (
        f'{STYLE}<div class="pf-profile" role="tree" aria-label="layers of {html.escape(profile.workload)}">'
        f"<p><b>{html.escape(profile.title)}</b></p>"
        f'<div class="pf-row pf-head"><span class="pf-left">layer</span><span class="pf-left">kind</span>{heads}</div>'
        f"{_branch(profile, profile.root, 0)}"
        + "".join(f'<p class="pf-faint">{html.escape(note)}</p>' for note in notes)
        + "</div>"
    )


def _branch(profile: Profile, row: LayerProfile, depth: int) -> str:
    name = name_of(row, profile) + (f" ({row.calls} ×)" if row.calls > 1 else "")
    line = _line(name, row.kind, cells(row, profile), row.share, depth, title=f"{row.layer or profile.workload} {row.detail}")
    below = profile.children(row.layer)
    if not below:
        return f'<div class="pf-row pf-leaf" role="treeitem">{line}</div>'
    between = "".join(
        f'<div class="pf-row pf-leaf pf-faint" role="treeitem">'
        f"{_line(f'+ {one.name}', piece['kind'], piece, one.ms / (profile.total_ms or 1.0), depth + 1, title=one.name)}</div>"
        for one, piece in pieces(row, profile)
    )
    inside = "".join(_branch(profile, child, depth + 1) for child in below)
    is_open = " open" if row.share > OPEN_SHARE else ""
    return f'<details{is_open}><summary class="pf-row" role="treeitem">{line}</summary>{inside}{between}</details>'


def _line(name: str, kind: str, told: dict[str, str], share: float, depth: int, *, title: str) -> str:
    first = f'<span class="pf-left pf-name" style="padding-left:{1.1 * depth:.1f}em" title="{html.escape(title)}">{html.escape(name)}</span>'
    bar = f"--pf-share: {min(1.0, share):.1%}"
    rest = "".join(
        f'<span class="pf-bar" style="{bar}">{html.escape(told.get(key, ""))}</span>'
        if key == "total ms"
        else f"<span>{html.escape(told.get(key, ''))}</span>"
        for key in COLUMNS
    )
    return f'{first}<span class="pf-left pf-faint">{html.escape(kind)}</span>{rest}'

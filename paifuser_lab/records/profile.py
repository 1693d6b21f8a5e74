"""A profile: the time, memory and bytes of each layer of a model, as a text table and as a folding
HTML tree for notebooks, without JavaScript.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from .hardware import Ceiling
from .profile_tree import Bound, LayerProfile, OperatorProfile, ProfileTree
from .record import AboutWorkload, Record
from .text import readable_bytes, readable_count, text_table

if TYPE_CHECKING:
    import pandas


# operators between layers with a smaller share are only in `profile.operators`
SHOWN_SHARE = 0.002
COLUMNS = (
    "runs as",
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
MAX_LINES = 25
WORDS = ("layer", "kind", "runs as", "bound by")


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
    text = text_table([{key: row.get(key, "") for key in keys} for row in shown], WORDS)
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
        "runs as": f"in {row.joined_into}" if row.joined_into else row.runs_as,
        **_times(row, profile),
        "FLOPs": readable_count(row.total_flops) if row.total_flops else "",
        "weights": readable_count(row.total_parameters) if row.total_parameters else "",
        "moved": readable_bytes(row.total_bytes) if row.total_bytes else "",
        "peak": _peak(row),
        "output": ", ".join("×".join(map(str, shape)) or "1" for shape in row.output_shapes[:1]),
        "reached": _reached(row),
        "bound by": _bound(row, profile),
    }


def _times(row: LayerProfile, profile: ProfileTree) -> dict[str, str]:
    """The columns of time; a layer without a time of its own has the word for why."""
    if "self_ms" in row.unknown_why:
        return {"self ms": "joined" if row.joined_into else "–", "total ms": "", "share": ""}
    return {
        "self ms": _ms(row.self_ms, profile),
        "total ms": _ms(row.total_ms, profile),
        "share": f"{row.share:.1%}",
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


def _peak(row: LayerProfile) -> str:
    if row.peak_bytes:
        return readable_bytes(row.peak_bytes)
    return "–" if "peak_bytes" in row.unknown_why and row.self_ms else ""


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


OPEN_SHARE = 0.05  # layers with a larger share of the time are shown unfolded
BRIEF_ROWS = 40  # of the tree that is sent along with a widget
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
RUNS_AS = {"runs as": (11, 620)}  # only where an engine ran the model


def profile_html(profile: ProfileTree) -> str:
    """The tree with bars, costly branches unfolded, with the title above and the accuracy below."""
    return _titled(profile, profile_tree(profile))


def profile_brief(profile: ProfileTree) -> str:
    """The tree, or of a large model its costliest layers: made and sent in a few milliseconds."""
    if len(profile) <= BRIEF_ROWS:
        return profile_html(profile)
    rows = profile.costliest(BRIEF_ROWS)
    inside = "".join(_leaf(row, row.layer or profile.workload, profile, 0) for row in rows)
    rest = f"the {len(rows)} costliest of {len(profile)} layers"
    return _titled(profile, _tree(profile, inside), rest)


def profile_tree(profile: ProfileTree) -> str:
    """The tree alone, for a page that has its own title; it folds by mouse and keyboard."""
    return _tree(profile, _branch(profile, profile.root, 0))


def _titled(profile: ProfileTree, tree: str, *more: str) -> str:
    notes = "".join(
        f'<p class="pf-faint">{html.escape(note)}</p>'
        for note in [*more, *failure(profile), profile.accuracy]
    )
    title = f"<p><b>{html.escape(profile.title)}</b></p>"
    return f'<div class="pf-profile" data-lm-suppress-shortcuts="true">{title}{tree}{notes}</div>'


def _tree(profile: ProfileTree, inside: str) -> str:
    """The rows below their heads, with their style."""
    heads = "".join(
        f'<span class="pf-{_slug(key)}">{html.escape(key)}</span>' for key in _columns(profile)
    )
    label = f"layers of {html.escape(profile.workload)}"
    return (
        f"<style>{tree_style(_columns(profile))}</style>"
        f'<div class="pf-tree" role="list" aria-label="{label}">'
        '<div class="pf-row pf-head" aria-hidden="true">'
        '<span class="pf-left">layer</span><span class="pf-left pf-kind">kind</span>'
        f"{heads}</div>{inside}</div>"
    )


def _columns(profile: ProfileTree) -> dict[str, tuple[float, int]]:
    return (RUNS_AS if profile.engine else {}) | HTML_COLUMNS


def tree_style(shown: Mapping[str, tuple[float, int]] = HTML_COLUMNS) -> str:
    """The tree's CSS; the less important columns are hidden as the tree gets narrower."""
    columns = {"kind": KIND, **shown}
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
.pf-tree .pf-row > .pf-left, .pf-tree .pf-row > .pf-bound-by,
.pf-tree .pf-row > .pf-runs-as { text-align: left; }
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


def _leaf(row: LayerProfile, name: str, profile: ProfileTree, depth: int) -> str:
    attributes, line = _row(row, name, profile, depth)
    return f'<div class="pf-row pf-leaf" role="listitem" {attributes}>{line}</div>'


def _row(row: LayerProfile, name: str, profile: ProfileTree, depth: int) -> tuple[str, str]:
    """The attributes of a layer's row, and its cells."""
    called = name + (f" ({row.calls} ×)" if row.calls > 1 else "")
    line = _line(called, row.kind, _html_cells(row, profile), _columns(profile))
    style = f"--pf-depth:{depth};--pf-share:{min(1.0, row.share):.1%}"
    return f'style="{style}" title="{_tooltip(row, profile)}"', line


def _branch(profile: ProfileTree, row: LayerProfile, depth: int) -> str:
    below, name = profile.children(row.layer), name_of(row, profile)
    if not below:
        return _leaf(row, name, profile, depth)
    attributes, line = _row(row, name, profile, depth)
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
        line = _line(f"+ {operator.name}", texts["kind"], escaped, _columns(profile))
        lines.append(
            f'<div class="pf-row pf-leaf pf-operator" role="listitem" style="{style}">{line}</div>'
        )
    return "".join(lines)


def _tooltip(row: LayerProfile, profile: ProfileTree) -> str:
    """A row as one line of text, for the tooltip and for screen readers."""
    texts = cells(row, profile)
    output = f" gives {texts['output']}" if texts["output"] else ""
    if "self_ms" in row.unknown_why:
        return html.escape(f"{row.layer}, {row.kind} {row.detail}: {row.unknown_why['self_ms']}")
    facts = [
        f"{texts['total ms']} ms with all layers inside it, {texts['share']} of the time",
        f"{texts['self ms']} ms itself",
    ]
    facts += [f"{texts[key]} {key}" for key in ("FLOPs", "weights", "moved", "peak") if texts[key]]
    facts += [f"runs as {texts['runs as']}"] if texts["runs as"] else []
    facts += [f"no figure: {why}" for why in row.unknown_why.values()]
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


def _line(name: str, kind: str, texts: dict[str, str], columns: Mapping[str, object]) -> str:
    """A row's cells; `texts` are escaped already. Spaces separate them where styles are
    stripped.
    """
    first = (
        f'<span class="pf-left pf-name">{html.escape(name)}</span> '
        f'<span class="pf-left pf-kind">{html.escape(kind)}</span>'
    )
    return first + "".join(
        f' <span class="pf-{_slug(key)}">{texts.get(key, "")}</span>' for key in columns
    )


class Point(Record):
    """A layer on a roofline plot."""

    layer: str
    kind: str
    intensity: float
    gflops: float
    ms: float
    bound: Bound | None = None


class Roofline(Record):
    """Layers by FLOPs per byte and FLOP/s, under the machine's ceilings."""

    workload: AboutWorkload
    machine: str
    ceiling: Ceiling
    points: tuple[Point, ...]

    def __repr__(self) -> str:
        return f"Roofline({self.workload}: {len(self.points)} layers)"


class Profile(ProfileTree):
    """A model's layers in the order of their first call; the model itself ('') is first."""

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per layer, as plain numbers."""
        import pandas

        skipped = {"operators", "kernels", "alternatives"}
        derived = ("depth", "intensity", "gflops", "gbs", "roof_share")
        rows = [
            row.model_dump(exclude=skipped) | {name: getattr(row, name) for name in derived}
            for row in self.layers
        ]
        return pandas.DataFrame(rows).set_index("layer")

    @property
    def operators(self) -> pandas.DataFrame:
        """A row per operator that a layer ran itself, including containers' operators between their
        layers.
        """
        import pandas

        rows = [
            {"layer": row.layer, **operator.model_dump()}
            for row in self.layers
            for operator in row.operators
        ]
        return pandas.DataFrame(rows, columns=["layer", *OperatorProfile.model_fields]).set_index(
            ["layer", "name"]
        )

    @property
    def roofline(self) -> Roofline:
        """The roofline plot's data: each layer under this machine's ceilings."""
        points = tuple(
            Point(
                layer=row.layer,
                kind=row.kind,
                intensity=row.intensity,
                gflops=row.gflops,
                ms=row.self_ms,
                bound=row.verdict,
            )
            for row in self.layers
            if row.intensity and row.gflops
        )
        return Roofline(
            workload=self.workload, machine=self.machine, ceiling=self.ceiling, points=points
        )

    def table(self, depth: int | None = None) -> list[dict[str, str]]:
        """The tree as text, down to a depth."""
        return profile_table(self, depth)

    def __str__(self) -> str:
        return profile_text(self)

    def __repr__(self) -> str:
        return f"Profile({self.workload}: {len(self.layers)} layers)"

    def _repr_html_(self) -> str:
        return profile_html(self)

    def brief_html(self) -> str:
        """The tree, or of a large model its costliest layers: to be sent along with a widget."""
        return profile_brief(self)

"""A profile: time, memory and bytes by layer, as text and as an HTML tree without JavaScript."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from .hardware import Ceiling
from .overlay import save_overlay
from .profile_tree import Bound, LayerProfile, OperatorProfile, ProfileTree
from .record import AboutWorkload, Frame, Record, frame_of
from .text import readable_bytes, readable_count, readable_rate, text_table, view

# operators between layers with a smaller share are only in `profile.operators`
SHOWN_SHARE = 0.002
MAX_LINES = 25
WORDS = ("layer", "kind", "runs as", "bound by")


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
    times = {
        "self ms": _ms(row.self_ms, profile),
        "total ms": _ms(row.total_ms, profile),
        "share": f"{row.share:.1%}",
    }
    if row.backward_total_ms is not None:
        times["backward ms"] = _ms(row.backward_total_ms, profile)
    return times


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


def _ms(value: float, profile: ProfileTree) -> str:
    """Milliseconds with the same number of decimals in every row."""
    decimals = next(
        (count for limit, count in ((1, 4), (100, 3), (1000, 2)) if profile.total_ms < limit), 1
    )
    return f"{value:.{decimals}f}"


def _reached(row: LayerProfile) -> str:
    """The rate that the layer reached, in the unit of its roof."""
    if row.verdict == "memory" and row.gbs:
        return f"{readable_rate(row.gbs)} GB/s"
    return f"{readable_rate(row.gflops)} GFLOP/s" if row.gflops else ""


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
    "backward ms": (6.5, 790),  # only where gradients were timed
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


def profile_tree(profile: ProfileTree) -> str:
    """The tree alone, costly branches unfolded, for a page that has its own title."""
    return _tree(profile, [_branch(profile, profile.root)])


def _tree(profile: ProfileTree, nodes: list[dict[str, Any]]) -> str:
    columns = (RUNS_AS if profile.engine else {}) | HTML_COLUMNS
    if profile.root.backward_total_ms is None:
        del columns["backward ms"]
    return view("profile_tree", profile.workload, nodes, list(columns), _rules(columns))


def _rules(columns: Mapping[str, tuple[float, int]]) -> str:
    """The CSS of the columns; the less important ones are hidden as the tree gets narrower."""
    columns = {"kind": KIND, **columns}
    limits = sorted({limit for _, limit in columns.values()}, reverse=True)
    rules = [f".pf-tree .pf-row {{ grid-template-columns: {_grid(columns, limits[0])}; }}"]
    for limit, below in pairwise(limits):
        hidden = ", ".join(
            f".pf-tree .pf-{key.replace(' ', '-').lower()}"
            for key, (_, wide) in columns.items()
            if wide == limit
        )
        grid = f".pf-tree .pf-row {{ grid-template-columns: {_grid(columns, below)}; }}"
        rules.append(
            f"@container pf-tree (max-width: {limit}px) {{ {hidden} {{ display: none; }} {grid} }}"
        )
    return "\n".join(rules)


def _grid(columns: Mapping[str, tuple[float, int]], limit: int) -> str:
    return "minmax(12em, 1fr) " + " ".join(
        f"{width}em" for width, wide in columns.values() if wide <= limit
    )


def _node(row: LayerProfile, name: str, profile: ProfileTree) -> dict[str, Any]:
    """A layer's row of the tree; its bound is shown by a sign, with the share of the roof."""
    texts, bound = cells(row, profile), row.verdict
    tooltip = _tooltip(row, texts, profile)
    if texts["bound by"] and bound:
        is_known = bound != "overhead" and row.roof_share is not None
        texts["bound by"] = f"{bound} {row.roof_share:.0%}" if is_known else bound
    return {
        "name": name + (f" ({row.calls} ×)" if row.calls > 1 else ""),
        "kind": row.kind,
        "texts": texts,
        "share": min(1.0, row.share),
        "bound": bound,
        "sign": SHAPES.get(bound or "") if texts["bound by"] else None,
        "tooltip": tooltip,
    }


def _branch(profile: ProfileTree, row: LayerProfile) -> dict[str, Any]:
    """A layer with those inside it, and with the operators that it ran itself between them."""
    inside = [_branch(profile, child) for child in profile.children(row.layer)]
    inside += [
        {
            "name": f"+ {operator.name}",
            "kind": texts["kind"],
            "texts": texts,
            "share": min(1.0, operator.ms / (profile.total_ms or 1.0)),
        }
        for operator, texts in container_operators(row, profile)
    ]
    is_open = row.share > OPEN_SHARE
    return _node(row, name_of(row, profile), profile) | {"inside": inside, "is_open": is_open}


def _tooltip(row: LayerProfile, texts: dict[str, str], profile: ProfileTree) -> str:
    """A row as one line of text, for the tooltip and for screen readers."""
    if "self_ms" in row.unknown_why:
        return f"{row.layer}, {row.kind} {row.detail}: {row.unknown_why['self_ms']}"
    facts = [
        f"{texts['total ms']} ms with all layers inside it, {texts['share']} of the time",
        f"{texts['self ms']} ms itself",
        *([f"{texts['backward ms']} ms backward"] if "backward ms" in texts else []),
        *(f"{texts[key]} {key}" for key in ("FLOPs", "weights", "moved", "peak") if texts[key]),
        *([f"runs as {texts['runs as']}"] if texts["runs as"] else []),
        *(f"no figure: {why}" for why in row.unknown_why.values()),
        *([texts["reached"]] if texts["reached"] else []),
        *([f"bound by {texts['bound by']}"] if texts["bound by"] else []),
    ]
    output = f" gives {texts['output']}" if texts["output"] else ""
    name = f"{row.layer or profile.workload}, {row.kind} {row.detail}".rstrip()
    return f"{name}{output}: {', '.join(facts)}"


class Point(Record):
    """A layer on a roofline plot."""

    layer: str
    kind: str
    intensity: float
    gflops: float
    ms: float
    bound: Bound | None = None
    roof_ms: float | None = None  # at the roof of its own format


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
    def frame(self) -> Frame:
        """A row per layer, as plain numbers."""
        skipped = {"operators", "kernels", "alternatives"}
        derived = ("depth", "intensity", "gflops", "gbs", "roof_share")
        rows = [
            row.model_dump(exclude=skipped) | {name: getattr(row, name) for name in derived}
            for row in self.layers
        ]
        return frame_of(rows, "layer")

    @property
    def operators(self) -> Frame:
        """A row per operator that a layer, or a container between its layers, ran itself."""
        rows = [
            {"layer": row.layer, **operator.model_dump()}
            for row in self.layers
            for operator in row.operators
        ]
        columns = ["layer", *OperatorProfile.model_fields]
        return frame_of(rows, columns=columns).set_index(["layer", "name"])

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
                roof_ms=row.roof_ms or None,
            )
            for row in self.layers
            if row.intensity and row.gflops
        )
        return Roofline(
            workload=self.workload, machine=self.machine, ceiling=self.ceiling, points=points
        )

    def save_overlay(self, path: str | Path, program: Any) -> Path:
        """Write each layer's own time for Model Explorer, which shows the exported `program`."""
        figures = {
            row.layer: row.self_ms for row in self.layers if "self_ms" not in row.unknown_why
        }
        name = f"ms of {self.workload} on {self.machine}"
        return save_overlay(path, program, name, figures, self.timeline.operator_ms)

    def table(self, depth: int | None = None) -> list[dict[str, str]]:
        """The tree as text, down to a depth: a line per layer and per operator between layers."""
        lines: list[dict[str, str]] = []
        for level, row in self.walk():
            if depth is not None and level > depth:
                continue
            name = "  " * level + name_of(row, self)
            lines.append({"layer": name, "kind": row.kind, **cells(row, self)})
            if depth is None or level < depth:
                lines += [
                    {"layer": "  " * (level + 1) + f"+ {operator.name}", **texts}
                    for operator, texts in container_operators(row, self)
                ]
        return lines

    def __str__(self) -> str:
        lines = self.table()
        shown = lines[:MAX_LINES]
        keys = [key for key in lines[0] if key != "calls" and any(line.get(key) for line in shown)]
        text = text_table([{key: row.get(key, "") for key in keys} for row in shown], WORDS)
        left = len(lines) - len(shown)
        more = f"… and {left} lines more: profile.frame has them all, profile.table(depth=2) fewer"
        return "\n".join([self.title, *text, *([more] if left else []), self.accuracy])

    def __repr__(self) -> str:
        return f"Profile({self.workload}: {len(self.layers)} layers)"

    def _repr_html_(self) -> str:
        return view("profile", self.title, profile_tree(self), [self.accuracy])

    def brief_html(self) -> str:
        """The tree, or of a large model its costliest layers, made in a few ms for a widget."""
        if len(self) <= BRIEF_ROWS:
            return self._repr_html_()
        rows = self.costliest(BRIEF_ROWS)
        tree = _tree(self, [_node(row, row.layer or self.workload, self) for row in rows])
        rest = f"the {len(rows)} costliest of {len(self)} layers"
        return view("profile", self.title, tree, [rest, self.accuracy])

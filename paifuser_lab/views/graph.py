"""A model's graph: boxes of layers and operators, lines of tensors, ranked by fast-sugiyama."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fast_sugiyama import from_edges

from ..records.model_graph import GraphEdge, GraphNode, ModelGraph
from ..records.text import counted, readable_bytes
from .picture import Axis, Boxes, Dots, Labels, Line, Panel, Picture, Tips, Values

WIDTH, HEIGHT = 168, 36  # of a box
ACROSS, DOWN = 22, 30  # between boxes
STRIPE = 9
LEAST_SPAN = 900  # as wide as a figure, so that few boxes do not fill it
MOST_HEIGHT = 2400
MOST_LETTERS = 24
SPACING = 100.0  # of the layout's own unit

Spot = tuple[float, float]


class Shade(NamedTuple):
    """What a node's stripe says: a colour of the theme, and the same in words."""

    tone: str
    text: str


@dataclass(frozen=True)
class Colours:
    """The shade of each node by its key, and what the tones mean."""

    shades: Mapping[str, Shade] = field(default_factory=dict)
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Layout:
    """Where the middle of each node is, and each edge as corners; NaN between two edges."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    spots: tuple[Spot, ...]
    corners: tuple[Spot, ...]
    size: Spot


def laid_out(graph: ModelGraph, unfolded: Collection[str]) -> Layout:
    """The nodes in ranks; a line keeps its own column past the boxes that it goes by."""
    nodes, edges = graph.nodes(unfolded), graph.edges(unfolded)
    index = {node.key: number for number, node in enumerate(nodes)}
    pairs = [(index[edge.source], index[edge.target]) for edge in edges]
    joined = {end for pair in pairs for end in pair}
    last = len(nodes) - 1
    alone = [(number, last) for number in range(last) if number not in joined]
    found = from_edges(
        [*pairs, *alone] or [(0, 0)], vertex_spacing=SPACING, dummy_vertices=True, dummy_size=0.3
    ).dot_layout()
    places = found.to_dict()
    left = min(x for x, _ in places.values())
    top = max(y for _, y in places.values())
    spots = {
        int(key): (
            (x - left) / SPACING * (WIDTH + ACROSS) + WIDTH / 2,
            (top - y) / SPACING * (HEIGHT + DOWN) + HEIGHT / 2,
        )
        for key, (x, y) in places.items()
    }
    hidden = set(alone)
    corners: list[Spot] = []
    for start, end in (pair for _, _, _, found_edges in found for pair in found_edges or ()):
        if (start, end) not in hidden:
            upper, lower = sorted((spots[int(start)], spots[int(end)]), key=lambda spot: spot[1])
            corners += [
                (upper[0], upper[1] + HEIGHT / 2),
                (lower[0], lower[1] - HEIGHT / 2),
                (math.nan, math.nan),
            ]
    for number, (x, y) in spots.items():
        if number > last:  # where a line goes by
            corners += [(x, y - HEIGHT / 2), (x, y + HEIGHT / 2), (math.nan, math.nan)]
    size = (
        max(x for x, _ in spots.values()) + WIDTH / 2,
        max(y for _, y in spots.values()) + HEIGHT / 2,
    )
    placed = tuple(spots[number] for number in range(len(nodes)))
    return Layout(nodes, edges, placed, tuple(corners), size)


def picture(graph: ModelGraph) -> Picture:
    """The graph as it is seen at first."""
    return drawn(graph, laid_out(graph, graph.unfolded_at_first()), Colours())


def drawn(graph: ModelGraph, layout: Layout, colours: Colours) -> Picture:
    """A laid-out graph with a shade for each node."""
    shades = [colours.shades.get(node.key) for node in layout.nodes]
    left, top = ([spot[axis] for spot in layout.spots] for axis in (0, 1))
    x, y = [at - WIDTH / 2 for at in left], [at - HEIGHT / 2 for at in top]
    keys = tuple(node.key for node in layout.nodes)
    below = [at + HEIGHT for at in y]
    boxes = Boxes(
        x, [at + WIDTH for at in x], y, below,
        is_hollow=True, tone="soft", key=keys, tips=_tips(layout, shades),
    )  # fmt: skip
    stripes = Boxes(
        x, [at + STRIPE for at in x], y, below,
        tone=[shade.tone if shade else "faint" for shade in shades],
    )  # fmt: skip
    corners = layout.corners or ((math.nan, math.nan),)
    lines = Line(*_columns(corners), tone="faint", width=1.1)
    names = [_end_of(f"{node.label}{' ▸' if node.can_unfold else ''}") for node in layout.nodes]
    words = [_cut(_kind(node)) for node in layout.nodes]
    kinds = [
        " · ".join(filter(None, [word[:15], shade.text])) if shade else word
        for word, shade in zip(words, shades, strict=True)
    ]
    span = max(LEAST_SPAN, layout.size[0] + 2 * ACROSS)
    panel = Panel(
        Axis((layout.size[0] - span) / 2, (layout.size[0] + span) / 2),
        Axis(layout.size[1] + DOWN, -DOWN / 2),
        (
            lines,
            *_arrows(layout),
            _shapes(layout),
            boxes,
            stripes,
            _words(layout, names, [8.0 if kind else 0.0 for kind in kinds], "ink"),
            _words(layout, kinds, [-7.0] * len(kinds), "soft"),
        ),
        height=round(min(MOST_HEIGHT, layout.size[1] + 2 * DOWN)),
    )
    return Picture(
        graph.title, "operators of one call, from its input down", ((panel,),),
        note=graph.note, legend=colours.legend,
    )  # fmt: skip


def _words(layout: Layout, texts: list[str], lifts: list[float], tone: str) -> Labels:
    """A text in each box, beside its stripe, so much higher than the middle."""
    x = [at - WIDTH / 2 + STRIPE for at, _ in layout.spots]
    y = [at - lift for (_, at), lift in zip(layout.spots, lifts, strict=True)]
    return Labels(x, y, texts, tone=tone)


def _tips(layout: Layout, shades: list[Shade | None]) -> Tips:
    takes: dict[str, list[str]] = {}
    gives: dict[str, list[str]] = {}
    for edge in layout.edges:
        size = f" ({readable_bytes(edge.bytes)})" if edge.bytes else ""
        takes.setdefault(edge.target, []).append(edge.text + size)
        gives.setdefault(edge.source, []).append(edge.text + size)
    keys = [node.key for node in layout.nodes]
    return Tips(
        [node.layer or node.label for node in layout.nodes],
        [_about(node) for node in layout.nodes],
        (
            Values("", [shade.text if shade else "" for shade in shades]),
            Values("in", [_few(takes.get(key, ())) for key in keys]),
            Values("out", [_few(gives.get(key, ())) for key in keys]),
        ),
    )


def _kind(node: GraphNode) -> str:
    return "" if node.kind == "operator" else node.kind


def _about(node: GraphNode) -> str:
    """'Bottleneck, 9 operators', 'operator add'."""
    if node.kind == "operator":
        return f"operator {node.label}"
    return f"{node.kind}, {counted(len(node.operators), 'operator')}"


def _few(texts: Collection[str]) -> str:
    """The distinct texts, at most three."""
    known = list(dict.fromkeys(texts))
    return ", ".join(known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")


def _shapes(layout: Layout) -> Labels:
    """Below each node the shape of its tensor, where it gives but one."""
    shapes: dict[str, set[str]] = {}
    for edge in layout.edges:
        shapes.setdefault(edge.source, set()).add(edge.text)
    found = [
        (*spot, next(iter(shapes[node.key])))
        for node, spot in zip(layout.nodes, layout.spots, strict=True)
        if len(shapes.get(node.key, ())) == 1
    ]
    x = [at for at, _, _ in found]
    return Labels(x, [y + HEIGHT / 2 + 14 for _, y, _ in found], [text for *_, text in found],
                  tone="soft")  # fmt: skip


def _arrows(layout: Layout) -> tuple[Dots, ...]:
    """Where lines enter a box: from above, or from below if they lead back."""
    spot = {node.key: spot for node, spot in zip(layout.nodes, layout.spots, strict=True)}
    ends: dict[bool, dict[Spot, None]] = {True: {}, False: {}}
    for edge in layout.edges:
        (_, above), (x, y) = spot[edge.source], spot[edge.target]
        ends[above < y][x, y - HEIGHT / 2 - 3 if above < y else y + HEIGHT / 2 + 3] = None
    down, up = (_columns(tuple(ends[is_down])) for is_down in (True, False))
    look: dict[str, Any] = {"tone": "faint", "size": 5.0}
    return Dots(*down, shape="down", **look), Dots(*up, shape="up", **look)


def _columns(rows: tuple[Spot, ...]) -> tuple[list[float], list[float]]:
    return [x for x, _ in rows], [y for _, y in rows]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


def _end_of(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"…{text[1 - MOST_LETTERS :]}"

"""Where a model's time goes: its parts in execution order, its costliest layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..records import LayerProfile, Profile
from ..records.text import in_figures, readable_rate, three_figures
from .picture import Axis, Boxes, Key, Labels, Panel, Picture, Tips, text_width

MAX_LAYERS = 12
MAX_PARTS = 32
LARGE = 0.34  # a part above this share of the time is split into its layers
BOUNDS = ("compute", "memory", "overhead")
ROW, STRIP = 22, 300  # pixels: of a row, and in which the names of all parts have room


class Part(NamedTuple):
    """A layer with its children, or a container's own operators; `ms` by what binds them."""

    layer: str
    is_whole: bool
    ms: dict[str | None, float]

    @property
    def total_ms(self) -> float:
        return sum(self.ms.values())


def picture(profile: Profile) -> Picture:
    """A strip of all parts on top, the costliest layers below, the others summed in a sentence."""
    rows = [row for row in profile.costliest(MAX_LAYERS) if row.self_ms > 0]
    left = [row.self_ms for row in profile if row not in rows and row.self_ms > 0]
    by_bound, total = _by_bound(profile), profile.total_ms or 1.0
    took = three_figures(sum(left))
    rest = f"Not shown: {len(left)} more layers, together {took} ms." if left else ""
    return Picture(
        title=profile.title,
        label="the whole model front to back, then its costliest layers",
        sentence=rest,
        rows=((_strip(profile),), (_costliest(profile, rows),)) if rows else (),
        note="" if rows else "No layer's time is known.",
        legend=tuple(
            Key(bound, f"bound by {bound}: {by_bound[bound] / total:.0%}")
            for bound in BOUNDS
            if bound in by_bound
        ),
    )


def parts(profile: Profile) -> list[Part]:
    """The model's parts in execution order: its children, large ones split into theirs."""

    def split(name: str) -> list[tuple[str, bool]]:
        return [(name, False), *((child.layer, True) for child in profile.children(name))]

    names = split("")
    while True:
        large = [
            name
            for name, whole in names
            if whole and profile.children(name) and profile[name].share > LARGE
        ]
        fitting = [name for name in large if len(names) + len(profile.children(name)) <= MAX_PARTS]
        if not fitting:
            break
        name = max(fitting, key=lambda layer: profile[layer].share)
        index = names.index((name, True))
        names[index : index + 1] = split(name)
    rows = [
        [row for _, row in profile.walk(name)] if whole else [profile[name]]
        for name, whole in names
    ]
    pieces = [Part(*name, _by_bound(of)) for name, of in zip(names, rows, strict=True)]
    return [part for part in pieces if part.total_ms > 0]


def _by_bound(rows: Iterable[LayerProfile]) -> dict[str | None, float]:
    sums: dict[str | None, float] = {}
    for row in rows:
        sums[row.verdict] = sums.get(row.verdict, 0.0) + row.self_ms
    return sums


def _strip(profile: Profile) -> Panel:
    """The whole model as one bar of its parts, coloured by what binds them."""
    pieces = parts(profile)
    whole = sum(part.total_ms for part in pieces)
    starts, ends, tones, names, about = list[float](), list[float](), [], [], []
    labels, at, begin = [], [], 0.0
    for part in pieces:
        name = f"{part.layer or profile.workload}{'' if part.is_whole else ' itself'}"
        share = part.total_ms / (profile.total_ms or 1.0)
        if label := _label(part, STRIP * part.total_ms / whole):
            labels.append(label)
            at.append(begin + part.total_ms / 2)
        for bound in (*BOUNDS, None):
            if ms := part.ms.get(bound, 0.0):
                starts.append(begin)
                begin += ms
                ends.append(begin)
                tones.append(bound or "faint")
                names.append(f"{name}: {in_figures(part.total_ms, 4)} ms, {share:.1%} of the time")
                about.append(f"{in_figures(ms, 4)} ms bound by {bound or 'nothing known'}")
    count = len(starts)
    marks = (
        Boxes(starts, ends, [-0.4] * count, [0.0] * count, tone=tones, tips=Tips(names, about)),
        Labels(at, [0.28] * len(at), labels, "middle", tone="ink"),
    )
    return Panel(Axis.linear(0, whole, "ms, front to back"), Axis.band([""]), marks, 92)


def _label(part: Part, width: float) -> str:
    """A part's path, or the end of the path, or nothing if there is no room."""
    ends = (part.layer, part.layer.rpartition(".")[2]) if part.is_whole else ()
    return next((name for name in ends if text_width(name) < width), "")


def _costliest(profile: Profile, rows: Sequence[LayerProfile]) -> Panel:
    """A bar for each layer, with a line from quartile to quartile and its figures behind it."""
    names = [row.layer or f"{profile.workload} (itself)" for row in rows]
    texts = [_text(row, profile) for row in rows]
    spreads = [row.self_spread_ms for row in rows]
    ends = [max(row.self_ms, high) for row, (_, high) in zip(rows, spreads, strict=True)]
    headings = [f"{name} ({row.kind})" for name, row in zip(names, rows, strict=True)]
    return Panel.bars(
        names,
        [row.self_ms for row in rows],
        texts,
        Axis.beside(ends, texts, names, "self time, ms; line: middle half"),
        46 + ROW * len(rows),
        spreads,
        tone=[row.verdict or "faint" for row in rows],
        key=[row.layer for row in rows],
        tips=Tips(headings, [_about(row) for row in rows]),
    )


def _text(row: LayerProfile, profile: Profile) -> str:
    share = row.roof_share if row.verdict != "overhead" else None
    parts = (
        f"{three_figures(row.self_ms)} ms",
        f"{row.self_ms / (profile.total_ms or 1.0):.1%}",
        f"{share:.0%} of its roof" if share is not None else "",
    )
    return " · ".join(filter(None, parts))


def _about(row: LayerProfile) -> str:
    rates = ((row.gflops, "GFLOP/s"), (row.gbs, "GB/s"), (row.intensity, "FLOP/byte"))
    known = [f"{readable_rate(value)} {unit}" for value, unit in rates if value]
    return " · ".join(known + ([f"bound by {row.verdict}"] if row.verdict else []))

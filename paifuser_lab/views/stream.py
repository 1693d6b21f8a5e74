"""A stream: frames a second over its time with what went wrong, and latency by stage."""

from __future__ import annotations

import math

from ..records import Latency, StreamReport
from ..records.table import Table
from ..records.text import three_figures
from .picture import (
    Axis,
    Boxes,
    Dots,
    Fact,
    Labels,
    Line,
    Mark,
    Panel,
    Picture,
    Shape,
    Spoken,
    Tips,
    Values,
)

# what is drawn above the rate; the shapes differ without colours
SHAPES: dict[str, Shape] = {
    "hedged": "up", "sent again": "down", "lost": "cross", "hung": "cross", "corrupt": "plus",
    "set aside": "square",
}  # fmt: skip
MOST_EVENTS = 60
MOST_FAILURES = 8
SPARE = 1.28  # the room right of the longest bar, for its figures


def picture(report: StreamReport, photo: bytes = b"") -> Picture:
    """The rate above, a bar for each stage's latency below, then the workers."""
    stages = [*report.stage_latency, *([report.latency] if report.latency else [])]
    rows = ((_rate(report),), *([(_latencies(stages),)] if stages else []))
    workers = Table(("workers",), report.table(), ("worker", "host", "state"))
    return Picture(
        title=report.title,
        label="frames a second over time, milliseconds a frame by stage",
        rows=rows,
        facts=_facts(report),
        spoken=_spoken(report),
        photo=photo,
        items=tuple(
            (f"frame {one.index}", f"{one.stage}: {one.message}")
            for one in report.failures[-MOST_FAILURES:]
        ),
        items_name="frames set aside",
        tables=(workers,) if report.nodes else (),
    )


def _spoken(report: StreamReport) -> Spoken:
    line = f"{report.state}: {report.message}"
    if not report.message:
        rate = three_figures(report.frames_per_s)
        line = f"{report.state}: {_done(report)} frames, {rate} a second"
    return Spoken(line, f"{report.state} {report.message}")


def _done(report: StreamReport) -> str:
    of = "" if report.expected_frames is None else f" of {report.expected_frames}"
    return f"{report.frames}{of}"


def _facts(report: StreamReport) -> tuple[Fact, ...]:
    """Speed, latency and queues; then what went wrong, each with the shape of its marks."""
    rate = three_figures(report.frames_per_s)
    facts = [Fact(rate, "frames a second"), Fact(_done(report), "frames")]
    if report.latency:
        facts.append(Fact(f"{_percentiles(report.latency)} ms", "latency p50 · p95 · p99"))
    queues = {
        "read, not sent": report.waiting_groups,
        "at workers": report.in_flight_groups,
        "wait for an earlier one": report.held_groups,
        "window": report.window,
    }
    facts += [Fact(str(count), name) for name, count in queues.items()]
    wrong = [
        ("hedged", report.hedged, "hedged"),
        ("sent again", report.sent_again, "sent again"),
        ("set aside", report.set_aside, "set aside"),
        ("corrupt on arrival", report.corrupt, "corrupt"),
        ("workers lost", report.lost_nodes, "lost"),
        ("workers hung", report.hung, "hung"),
    ]
    facts += [Fact(str(count), name, SHAPES[kind]) for name, count, kind in wrong if count]
    return tuple(facts)


def _rate(report: StreamReport) -> Panel:
    at, rates = [list(column) for column in zip(*report.rates, strict=True)] or [[], []]
    top = max([*rates, report.frames_per_s, 1e-9])
    marks: list[Mark] = [Line(at, rates)]
    shown = report.events[-MOST_EVENTS:]
    for kind, shape in SHAPES.items():
        events = [event for event in shown if event.kind == kind]
        if not events:
            continue
        groups = ["" if one.group is None else f"group {one.group}" for one in events]
        about = [
            " · ".join(filter(None, (one.node, group, one.text)))
            for one, group in zip(events, groups, strict=True)
        ]
        tips = Tips([f"{three_figures(one.at_s)} s · {kind}" for one in events], about)
        times = [one.at_s for one in events]
        marks.append(Dots(times, [1.07 * top] * len(times), shape, 5, tone="bad", tips=tips))
    end = max([report.elapsed_s, *at, 1e-9])
    across = Axis.linear(0, end, "seconds")
    return Panel(across, Axis.linear(0, 1.15 * top, "frames a second"), tuple(marks), 190)


def _latencies(rows: list[Latency]) -> Panel:
    """p50 as a bar, from there to p99 a line with a tick at p95."""
    places = range(len(rows))
    tips = Tips(
        [row.name for row in rows],
        ["milliseconds a frame"] * len(rows),
        tuple(
            Values(name, [getattr(row, f"{name}_ms") for row in rows], "digits")
            for name in ("p50", "p95", "p99")
        ),
    )
    marks: tuple[Mark, ...] = (
        Boxes.in_rows([0] * len(rows), [row.p50_ms for row in rows], half=0.25, tips=tips),
        Line([end for row in rows for end in (row.p50_ms, row.p99_ms, row.p99_ms)],
             [end for at in places for end in (at, at, math.nan)], tone="ink", width=1.2),
        Dots([row.p95_ms for row in rows], list(places), "tick", 7, tone="ink"),
        Labels([row.p99_ms for row in rows], list(places), list(map(_percentiles, rows)),
               tone="ink"),
    )  # fmt: skip
    most = SPARE * max(row.p99_ms for row in rows) or 1.0
    label = "ms a frame: p50 · p95 · p99"
    names = Axis.band([row.name for row in rows])
    return Panel(Axis.linear(0, most, label), names, marks, 50 + 22 * len(rows))


def _percentiles(latency: Latency) -> str:
    return " · ".join(map(three_figures, (latency.p50_ms, latency.p95_ms, latency.p99_ms)))

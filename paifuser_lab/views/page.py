"""Offline HTML pages without scripts, light or dark as the reader's: a profile's, a snapshot's."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import (
    Explanation,
    MemorySnapshot,
    Profile,
    counted,
    readable_bytes,
    readable_count,
)
from ..records.profile import profile_tree
from ..records.text import readable_ms, readable_range, readable_rate, view
from . import canvas
from . import memory_snapshot as snapshot_view
from . import profile as profile_figure
from . import roofline as roofline_figure
from .style import DARK, LIGHT

Fact = tuple[str, str, str]  # name, number, and text beside it


def offline_page(title: str, body: str) -> str:
    """A body as a whole page that loads and runs nothing."""
    return view("page", title, body, LIGHT.css, DARK.css)


def html_report(
    profile: Profile, explanations: Sequence[Explanation] = (), *, title: str | None = None
) -> str:
    """A profile as an offline HTML page: figures, the tree of layers and the explanations."""
    heading = title or profile.workload
    figures = [canvas.draw(profile_figure.picture(profile)).svg()]
    if profile.roofline.points:
        figures.append(canvas.draw(roofline_figure.picture(profile.roofline)).svg())
    body = view(
        "profile_body",
        profile,
        heading,
        _subtitle(profile, heading),
        f"{profile.machine} · {profile.threads_text}",
        _facts(profile),
        figures,
        explanations,
        profile_tree(profile),
        _measured(profile),
    )
    return offline_page(f"{heading} · profile", body)


def _subtitle(profile: Profile, heading: str) -> str:
    root = profile.root
    outputs = ", ".join("×".join(map(str, shape)) or "1" for shape in root.output_shapes)
    parts = (
        profile.workload if heading != profile.workload else "",
        root.kind,
        f"gives {outputs}" if outputs else "",
        f"{len(profile)} layers",
        "stopped early" if profile.is_interrupted else "",
    )
    return " · ".join(part for part in parts if part)


def _facts(profile: Profile) -> list[Fact]:
    root = profile.root
    flops, rate = root.total_flops, ""
    if profile.latency_ms:
        rate = f"{readable_rate(flops / profile.latency_ms / 1e6)} GFLOP/s"
    backward = f"{readable_ms(root.backward_total_ms)} ms" if root.backward_total_ms else ""
    latency = f"{readable_ms(profile.latency_ms)} ms"
    facts = [
        ("latency", latency, readable_range(profile.latency_spread_ms)),
        ("backward", backward, ""),
        ("parameters", readable_count(root.total_parameters or None), ""),
        ("FLOPs", readable_count(flops or None), rate),
        ("moved", readable_bytes(root.total_bytes or None), ""),
        ("peak memory", readable_bytes(root.peak_bytes or None), ""),
    ]
    return [fact for fact in facts if fact[1] not in ("", "–")]


def _measured(profile: Profile) -> list[str]:
    """How it was measured, in sentences without their stops."""
    span = readable_range(profile.latency_spread_ms)
    rounds = f"{len(profile.rounds_ms)} rounds, the middle half within {span} ms"
    sentences = [profile.accuracy, rounds if profile.rounds_ms else "", _ceilings(profile)]
    return [sentence for sentence in sentences if sentence]


def _ceilings(profile: Profile) -> str:
    ceiling = profile.ceiling
    listed = ", ".join(
        f"{readable_rate(rate)} G{'' if name == 'int8' else 'FL'}OP/s in {name}"
        for name, rate in ceiling.rates.items()
    )
    of_threads = f" of {counted(ceiling.threads, 'thread')}" if profile.device == "cpu" else ""
    width = readable_rate(ceiling.bandwidth_gbs)
    return f"the roofs{of_threads}: {listed}, and {width} GB/s from memory"


def snapshot_report(snapshot: MemorySnapshot) -> str:
    """The page: figure, who held the peak, the segments, out of memory, replay."""
    is_cpu = snapshot.device_type == "cpu"
    line = f"device {snapshot.device} · allocator settings: {snapshot.settings}"
    facts = [
        ("allocated at the peak", readable_bytes(snapshot.peak_bytes), ""),
        ("reserved at the peak", readable_bytes(snapshot.peak_reserved_bytes), ""),
        ("events", f"{snapshot.events:,}", ""),
    ]
    if is_cpu:
        line, facts = "one run on a CPU", [facts[0], facts[2]]
    peak = snapshot.model_copy(update={"out_of_memory": None, "replay": None})._repr_html_()
    figure = canvas.draw(snapshot_view.picture(snapshot)).svg()
    body = view("snapshot_body", snapshot, line, facts, figure, peak)
    return offline_page(f"{snapshot.name} · memory", body)

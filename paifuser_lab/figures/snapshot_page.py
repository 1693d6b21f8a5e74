"""A memory snapshot as one offline HTML page without scripts, in the reader's theme."""

from __future__ import annotations

import html

from ..records import MemorySnapshot, readable_bytes
from . import memory_snapshot as snapshot_figure
from .page import POLICY, STYLE

TABLES = """
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; color: var(--pf-soft); padding-bottom: 4px; overflow-wrap: anywhere; }
th, td { padding: 2px 8px; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
"""


def snapshot_report(snapshot: MemorySnapshot) -> str:
    """The page: figure, who held the peak, the segments, out of memory, replay."""
    ended, replayed = snapshot.out_of_memory, snapshot.replay
    alone = snapshot.model_copy(update={"out_of_memory": None, "replay": None})
    sections = [
        _header(snapshot),
        *([f'<p class="alarm" role="alert">{html.escape(ended.sentence)}</p>'] if ended else []),
        _section("Memory over time", f"<figure>{snapshot_figure.draw(snapshot).svg()}</figure>"),
        _section("Who held the peak", alone._repr_html_()),
        *([_section("What would have made it fit", ended._repr_html_())] if ended else []),
        *([_section("Under other allocator settings", replayed._repr_html_())] if replayed else []),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(snapshot.name)} · memory</title>"
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<style>{STYLE}{TABLES}</style></head><body>{''.join(sections)}</body></html>\n"
    )


def _header(snapshot: MemorySnapshot) -> str:
    is_cpu = snapshot.device_type == "cpu"
    facts = {
        "allocated at the peak": readable_bytes(snapshot.peak_bytes),
        **(
            {} if is_cpu else {"reserved at the peak": readable_bytes(snapshot.peak_reserved_bytes)}
        ),
        "events": f"{snapshot.events:,}",
    }
    listed = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd><b>{html.escape(number)}</b></dd></div>"
        for name, number in facts.items()
    )
    line = (
        "one run on a CPU"
        if is_cpu
        else f"device {snapshot.device} · allocator settings: {snapshot.settings}"
    )
    return (
        f"<header><h1>{html.escape(snapshot.name)}</h1><p>{html.escape(line)}</p>"
        f"<dl>{listed}</dl></header>"
    )


def _section(name: str, content: str) -> str:
    return f'<section aria-label="{name}"><h2>{name}</h2>{content}</section>'

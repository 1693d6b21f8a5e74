"""Offline HTML pages without scripts, light or dark as the reader's: a profile's, a snapshot's."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ..records import (
    Ceiling,
    Explanation,
    MemorySnapshot,
    Profile,
    Reason,
    readable_bytes,
    readable_count,
)
from ..records.profile import profile_tree
from . import memory_snapshot as snapshot_figure
from . import profile as profile_figure
from . import roofline as roofline_figure
from .style import DARK, LIGHT

Fact = tuple[str, str, str]  # name, number, and text beside it

# so that the browser loads and runs nothing, whatever the text of a model contains
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def offline_page(title: str, body: str) -> str:
    """A body as a whole page that loads and runs nothing."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title>"
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def html_report(
    profile: Profile, explanations: Sequence[Explanation] = (), *, title: str | None = None
) -> str:
    """A profile as an offline HTML page: figures, the tree of layers and the explanations."""
    heading = title or profile.workload
    figures = [profile_figure.draw(profile).svg()] + (
        [roofline_figure.draw(profile.roofline).svg()] if profile.roofline.points else []
    )
    sections = [
        _header(profile, heading),
        *(
            [f'<p class="alarm" role="alert">stopped: {html.escape(profile.failure)}</p>']
            if profile.failure
            else []
        ),
        _section(
            "Where the time goes",
            f'<div class="pair">{"".join(f"<figure>{svg}</figure>" for svg in figures)}</div>',
        ),
        *([_section("Why, and what would help", _explained(explanations))] if explanations else []),
        _section("Layers", profile_tree(profile)),
        _section("How it was measured", _measured(profile)),
    ]
    return offline_page(f"{heading} · profile", "".join(sections))


def _header(profile: Profile, heading: str) -> str:
    facts = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd><b>{html.escape(number)}</b> "
        f"<small>{html.escape(beside)}</small></dd></div>"
        for name, number, beside in _facts(profile)
    )
    root = profile.root
    outputs = ", ".join("×".join(map(str, shape)) or "1" for shape in root.output_shapes)
    named = profile.workload if heading != profile.workload else ""
    subtitle = " · ".join(
        part
        for part in (
            named,
            root.kind,
            f"gives {outputs}" if outputs else "",
            f"{len(profile)} layers",
        )
        if part
    )
    threads = (
        f"{profile.threads} thread{'' if profile.threads == 1 else 's'}"
        if profile.device == "cpu"
        else profile.device
    )
    machine = f'<span class="chip">{html.escape(f"{profile.machine} · {threads}")}</span>'
    stopped = " · stopped early" if profile.is_interrupted else ""
    return (
        f"<header><h1>{html.escape(heading)}</h1><p>{html.escape(subtitle + stopped)} "
        f"{machine}</p><dl>{facts}</dl></header>"
    )


def _facts(profile: Profile) -> list[Fact]:
    root, (low, high) = profile.root, profile.latency_spread_ms
    facts = [("latency", f"{profile.latency_ms:.3g} ms", f"{low:.3g}–{high:.3g}")]
    if root.backward_total_ms:
        facts.append(("backward", f"{root.backward_total_ms:.3g} ms", ""))
    if root.total_parameters:
        facts.append(("parameters", readable_count(root.total_parameters), ""))
    if root.total_flops:
        facts.append(("FLOPs", readable_count(root.total_flops), _rate(root.total_flops, profile)))
    if root.total_bytes:
        facts.append(("moved", readable_bytes(root.total_bytes), ""))
    if root.peak_bytes:
        facts.append(("peak memory", readable_bytes(root.peak_bytes), ""))
    return facts


def _rate(flops: int, profile: Profile) -> str:
    return f"{flops / profile.latency_ms / 1e6:.3g} GFLOP/s" if profile.latency_ms else ""


def _section(name: str, content: str) -> str:
    return f'<section aria-label="{name}"><h2>{name}</h2>{content}</section>'


def _explained(explanations: Iterable[Explanation]) -> str:
    return f'<div class="cards">{"".join(map(_card, explanations))}</div>'


def _card(explanation: Explanation) -> str:
    name = explanation.layer or explanation.workload
    reasons = "".join(map(_reason, explanation.reasons)) or "<li>Nothing more is known of it.</li>"
    return (
        f"<article{'' if explanation.layer else ' class=whole'}><h3>{html.escape(name)} "
        f"<small>{html.escape(explanation.kind)}</small>"
        f"<span>{explanation.ms:.3g} ms "
        f"<small>{explanation.share:.1%}</small></span></h3><ul>{reasons}</ul></article>"
    )


def _reason(reason: Reason) -> str:
    advice = f' <b class="advice">→ {html.escape(reason.advice)}</b>' if reason.step else ""
    return f"<li>{html.escape(reason.sentence)}{advice}</li>"


def _measured(profile: Profile) -> str:
    rounds = (
        f"{len(profile.rounds_ms)} rounds, the middle half within {_span(profile)}"
        if profile.rounds_ms
        else ""
    )
    lines = [profile.accuracy, rounds, _ceilings(profile.ceiling)]
    return "".join(
        f'<p class="dim">{html.escape(line[:1].upper() + line[1:])}.</p>' for line in lines if line
    )


def _span(profile: Profile) -> str:
    low, high = profile.latency_spread_ms
    return f"{low:.3g}–{high:.3g} ms"


def _ceilings(ceiling: Ceiling) -> str:
    rates = [
        ("fp32", ceiling.fp32_gflops),
        ("bf16", ceiling.bf16_gflops),
        ("fp16", ceiling.fp16_gflops),
        ("int8", ceiling.int8_gops),
    ]
    listed = ", ".join(
        f"{rate:.3g} G{'' if name == 'int8' else 'FL'}OP/s in {name}"
        for name, rate in rates
        if rate
    )
    return f"the roofs: {listed}, and {ceiling.bandwidth_gbs:.3g} GB/s from memory"


STYLE = (
    f"""
:root {{ color-scheme: light dark; {LIGHT.css}
  --line: #e3e5e8; --good: #00704f; --raised: #f7f8f9; }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK.css}
  --line: #2b3036; --good: #2bc196; --raised: #191c1f; }} }}
"""
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 14px 20px 28px; max-width: 1360px; background: var(--pf-paper);
  color: var(--pf-ink); font: 13px/1.45 system-ui, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
header { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 2px 28px;
  padding-bottom: 10px; border-bottom: 1px solid var(--line); align-items: end; }
h1 { font-size: 19px; margin: 0; overflow-wrap: anywhere; }
header p { margin: 0; grid-column: 1; color: var(--pf-soft); overflow-wrap: anywhere; }
dl { grid-column: 2; grid-row: 1 / span 2; display: flex; flex-wrap: wrap; gap: 4px 22px;
  margin: 0; }
dt { color: var(--pf-soft); font-size: 11px; }
dd { margin: 0; white-space: nowrap; } dd b { font-size: 16px; }
small { color: var(--pf-soft); font-size: 11px; font-weight: 400; }
.chip { display: inline-block; border: 1px solid var(--line); border-radius: 10px; padding: 0 8px; }
h2 { font-size: 13px; margin: 18px 0 6px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr));
  gap: 12px 24px; align-items: start; }
figure { margin: 0; } figure svg { display: block; } svg [id*="mark-"]:hover { opacity: 0.75; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr));
  gap: 10px; }
article { border: 1px solid var(--line); border-radius: 6px; padding: 8px 12px;
  background: var(--raised); min-width: 0; }
article.whole { grid-column: 1 / -1; }
h3 { display: flex; gap: 8px; align-items: baseline; font-size: 13px; margin: 0 0 4px;
  overflow-wrap: anywhere; }
h3 span { margin-left: auto; white-space: nowrap; }
ul { margin: 0; padding-left: 1.1em; } li { margin: 2px 0; overflow-wrap: anywhere; }
.advice { color: var(--good); }
.dim { color: var(--pf-soft); margin: 2px 0; }
.table { overflow-x: auto; } .table table { width: 100%; border-collapse: collapse; }
.table :is(th, td) { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } .table th { color: var(--pf-soft); font-size: 11px; font-weight: 400; }
pre { margin: 0; padding: 8px 12px; overflow-x: auto; border: 1px solid var(--line);
  border-radius: 6px; background: var(--raised); }
.alarm { border-left: 3px solid var(--pf-bad); padding: 2px 10px; overflow-wrap: anywhere; }
@media (max-width: 900px) { header { grid-template-columns: minmax(0, 1fr); }
  dl { grid-column: 1; grid-row: auto; margin-top: 6px; } }
"""
)


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
        _snapshot_header(snapshot),
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


def _snapshot_header(snapshot: MemorySnapshot) -> str:
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

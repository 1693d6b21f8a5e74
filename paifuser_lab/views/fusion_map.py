"""Fusion sites in the model's order: the latency unfused above fused, or the reason for none."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Fusion, FusionMap
from ..records.text import three_figures
from .picture import Axis, Boxes, Labels, Panel, Picture, Tips
from .style import wrapped

MAX_SITES = 40
ROW = 26  # pixels
LONGEST_REASON = 56  # characters
SLOWER = 0.995  # a speed-up below it


def picture(fusion_map: FusionMap) -> Picture:
    """Two bars per site: grey unfused, coloured fused; or the reason why it is unfused."""
    sites = fusion_map.fusions[:MAX_SITES]
    left_out = len(fusion_map.fusions) - len(sites)
    more = [f"{left_out} more places are left out."] if left_out else []
    return Picture(
        title=f"{fusion_map.workload} on {fusion_map.machine}: {fusion_map.summary}",
        label="places that can be fused, in the order of the model",
        sentence=" ".join([*more, *fusion_map.notes]),
        rows=((_panel(sites),),) if sites else (),
    )


def _panel(sites: Sequence[Fusion]) -> Panel:
    names, texts = [_names(site) for site in sites], [_text(site) for site in sites]
    timed = [index for index, site in enumerate(sites) if site.apart_ms and site.fused_ms]
    ends = [max(site.apart_ms or 0.0, site.fused_ms or 0.0) if index in timed else 0.0
            for index, site in enumerate(sites)]  # fmt: skip
    fused = [index for index in timed if sites[index].standing == "fused"]
    # a fusion that is not in effect is only outlined
    idle = [index for index in timed if index not in fused]
    marks = (
        _bars(sites, timed, "apart_ms", -0.2),
        _bars(sites, fused, "fused_ms", 0.14),
        _bars(sites, idle, "fused_ms", 0.14, is_hollow=True),
        Labels(ends, range(len(sites)), texts, tone="ink"),
    )
    across = Axis.beside(
        ends, texts, names, "ms a call: apart above, as one below; outlined: not in effect"
    )
    return Panel(across, Axis.band(names), marks, 46 + ROW * len(sites))


def _bars(
    sites: Sequence[Fusion], rows: list[int], ms: str, below: float, *, is_hollow: bool = False
) -> Boxes:
    chosen = [sites[row] for row in rows]
    return Boxes.in_rows(
        [0.0] * len(rows),
        [getattr(site, ms) for site in chosen],
        [row + below for row in rows],
        half=0.15,
        tone=["faint" if ms == "apart_ms" else _tone(site) for site in chosen],
        key=[site.place for site in chosen],
        tips=Tips([" + ".join(site.layers) for site in chosen], [_about(site) for site in chosen]),
        is_hollow=is_hollow,
    )


def _about(site: Fusion) -> str:
    return " · ".join(filter(None, (site.pattern, site.runs, site.reason)))


def _text(site: Fusion) -> str:
    """What stands behind a site's bars: its times, or why it has none."""
    if not site.apart_ms or not site.fused_ms:
        return wrapped(site.reason or "not timed", LONGEST_REASON, most=1)[0]
    speed = site.apart_ms / site.fused_ms
    slower = " slower" if speed < SLOWER else ""
    before, after = map(three_figures, (site.apart_ms, site.fused_ms))
    return f"{before} → {after} ms · {speed:.2f} ×{slower}"


def _tone(site: Fusion) -> str:
    if site.standing == "slower" or (site.speedup or 1.0) < SLOWER:
        return "bad"
    return "good" if site.standing == "fused" else "soft"


def _names(site: Fusion) -> str:
    """The layers without the prefix of the first: 'layer1.0.conv1 + bn1 + relu'."""
    under, _, _ = site.place.rpartition(".")
    shared = f"{under}." if under else ""
    return " + ".join([site.place, *(layer.removeprefix(shared) for layer in site.layers[1:])])

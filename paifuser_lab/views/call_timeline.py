"""One call along time: in each lane the calls of layers above, the operators that ran below."""

from __future__ import annotations

from collections import defaultdict

from ..records import CallTimeline, counted
from ..records.memory import OTHERS, layer_groups
from ..records.text import three_figures
from .picture import Axis, Boxes, Labels, Panel, Picture, Tips, Values, text_width

ROW, FRAME = 17, 44  # pixels of a row, and of what is around the rows
WIDE = 440  # pixels of the panel, in a narrow page
THINNEST = 1 / 900  # of the time that is shown: rows with nothing longer are left to a zoom
MOST_ZOOMS = 100  # layers, those that take longest
LEAST_SHARE = 0.01  # of the time in operators: branches with less share a tone
MOST_GROUPS, OTHERS_TONE = 6, "group-6"
MODEL, WHOLE_CALL = "the model itself", "the whole call of the layer"


def picture(timeline: CallTimeline) -> Picture:
    """The whole call, and below it the selected layer's part of it, or the longest group's."""
    groups, tones = _tones(timeline)
    kinds = f"{counted(len(timeline), 'event')} of {counted(len(timeline.layers), 'layer')}"
    return Picture(
        title=timeline.title,
        label=f"{kinds} along time; arrow keys go through them, Enter or + zooms on a layer, "
        "− on the one around it",
        rows=((_panel(timeline, tones),),) if len(timeline) else (),
        sentence=timeline.sentence,
        note="".join(timeline.remarks),
        legend=tuple((tone, name or MODEL) for name, tone in groups.items()),
        by_layer=tuple(_zooms(timeline, tones, groups)),
        choice="zoom on",
    )


def _tones(timeline: CallTimeline) -> tuple[dict[str, str], list[str]]:
    """The tone of each group of layers, and that of each layer; small branches share one."""
    own, spent = _own_ms(timeline), defaultdict[str, float](float)
    branches = [layer.partition(".")[0] for layer in timeline.layers]
    for branch, ms in zip(branches, own, strict=True):
        spent[branch] += ms
    least = LEAST_SHARE * sum(own)
    large = [index for index, branch in enumerate(branches) if spent[branch] >= least]
    layers, sizes = [timeline.layers[index] for index in large], [own[index] for index in large]
    names, group_of = layer_groups(layers, sizes, MOST_GROUPS)
    tones = {name: f"group-{group}" for group, name in enumerate(names)} | {OTHERS: OTHERS_TONE}
    tone_of = [tones[OTHERS]] * len(branches)
    for index, group in zip(large, group_of, strict=True):
        tone_of[index] = tones[names[group]]
    return {name: tone for name, tone in tones.items() if tone in tone_of}, tone_of


def _own_ms(timeline: CallTimeline) -> list[float]:
    """The time of each layer in its own operators, without those inside others."""
    own, reached = [0.0] * len(timeline.layers), defaultdict[int, float](float)
    for event, operator in enumerate(timeline.operator_index):
        lane = timeline.lane_index[event]
        if timeline.operators[operator] and timeline.start_ms[event] >= reached[lane]:
            reached[lane] = timeline.end_ms[event]
            own[timeline.layer_index[event]] += reached[lane] - timeline.start_ms[event]
    return own


def _zooms(
    timeline: CallTimeline, tones: list[str], groups: dict[str, str]
) -> list[tuple[str, Picture]]:
    """A picture for each of the longest layers in their order; the longest group is the first."""
    spent, calls = defaultdict[str, float](float), defaultdict[str, int](int)
    for event, operator in enumerate(timeline.operator_index):
        if not timeline.operators[operator]:
            layer = timeline.layers[timeline.layer_index[event]]
            spent[layer] += timeline.end_ms[event] - timeline.start_ms[event]
            calls[layer] += 1
    longest = set(sorted(spent, key=lambda layer: -spent[layer])[:MOST_ZOOMS])
    heads = [name for name in groups if not any(one.startswith(f"{name}.") for one in groups)]
    first = max(longest.intersection(heads), key=lambda layer: spent[layer], default="")
    zooms = [
        (
            layer,
            Picture(
                layer,
                f"{layer} along time",
                ((_panel(timeline.within(layer), tones, layer),),),
                f"{three_figures(spent[layer])} ms in {counted(calls[layer], 'call')}",
            ),
        )
        for layer in spent
        if layer in longest
    ]
    return sorted(zooms, key=lambda zoom: zoom[0] != first)


def _panel(timeline: CallTimeline, tones: list[str], layer: str = "") -> Panel:
    begin = min(timeline.start_ms) if layer else 0.0
    end = max(timeline.end_ms) if layer else timeline.duration_ms
    span = (end - begin) or 1.0
    events, rows, names = _rows(timeline, THINNEST * span)
    layers = [timeline.layers[timeline.layer_index[event]] for event in events]
    operators = [timeline.operators[timeline.operator_index[event]] for event in events]
    starts = [timeline.start_ms[event] for event in events]
    lengths = [timeline.end_ms[event] - timeline.start_ms[event] for event in events]
    figures = (
        Values("ms", lengths, "digits"),
        Values("ms into the call", starts, "digits"),
        Values("", [timeline.lanes[timeline.lane_index[event]] for event in events]),
    )
    boxes = Boxes.in_rows(
        [start - begin for start in starts],
        [start - begin + ms for start, ms in zip(starts, lengths, strict=True)],
        rows,
        half=0.45,
        tone=[tones[timeline.layer_index[event]] for event in events],
        key=layers,
        tips=Tips(
            [name or MODEL for name in layers], [name or WHOLE_CALL for name in operators], figures
        ),
    )
    texts = [
        _fitted(operator.removeprefix("aten::") or name, WIDE * ms / span)
        for operator, name, ms in zip(operators, layers, lengths, strict=True)
    ]
    named = [index for index, text in enumerate(texts) if text]
    labels = Labels(
        [boxes.x[index] for index in named],
        [rows[index] for index in named],
        [texts[index] for index in named],
        tone="ink",
    )
    across = Axis.linear(0, span, f"ms into {layer or 'the call'}", most=8)
    return Panel(across, Axis.band(names), (boxes, labels), FRAME + ROW * len(names))


def _fitted(name: str, width: float) -> str:
    """The name, or its last part, below that of the layer around it; '' where neither fits."""
    shorter = (name, name.rpartition(".")[2])
    return next((text for text in shorter if text_width(text) <= width - 12), "")


def _rows(timeline: CallTimeline, thinnest: float) -> tuple[list[int], list[int], list[str]]:
    """The drawn events, the row of each, and the rows' names: by lane, layers before operators."""
    open_until = defaultdict[tuple[int, bool], list[float]](list)
    places = list[tuple[int, bool, int]]()
    longest = defaultdict[tuple[int, bool, int], float](float)
    for event, (start, end) in enumerate(zip(timeline.start_ms, timeline.end_ms, strict=True)):
        is_operator = bool(timeline.operators[timeline.operator_index[event]])
        part = (timeline.lane_index[event], is_operator)
        around = open_until[part]
        while around and around[-1] <= start:
            around.pop()
        places.append((*part, len(around)))
        longest[places[-1]] = max(longest[places[-1]], end - start)
        around.append(end)
    shown = sorted(place for place in longest if not place[2] or longest[place] >= thinnest)
    lanes = {lane for lane, _, _ in shown}
    names = [
        ""
        if depth
        else (f"{timeline.lanes[lane]}: " if len(lanes) > 1 else "")
        + ("operators" if is_operator else "layers")
        for lane, is_operator, depth in shown
    ]
    row_of = {place: row for row, place in enumerate(shown)}
    events = [event for event, place in enumerate(places) if place in row_of]
    return events, [row_of[places[event]] for event in events], names

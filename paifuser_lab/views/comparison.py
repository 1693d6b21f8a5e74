"""A baseline and its variants, everything tried in a session, metric against latency and size."""

from __future__ import annotations

from ..records import Comparison, Measurement, ResultRow, Results, TradeOff, readable_bytes
from ..records.quality import readable_interval, sign
from .style import Drawing, Plot, Theme, blank, visible

MAX_NAME = 90  # characters that fit over a bar


def draw(comparison: Comparison, *, dark: bool = False) -> Drawing:
    """A bar per timed row, the baseline first; shorter is faster."""
    rows = [row for row in comparison.rows if row.latency_ms is not None]
    axes = blank(comparison.title, height=1.0 + 0.5 * len(rows), dark=dark)
    for index, row in enumerate(rows):
        colour = _colour(row, comparison, axes.theme)
        latency = row.latency_ms or 0.0
        low, high = row.spread_ms or (latency, latency)
        axes.barh(index, latency, height=0.34, color=colour, alpha=0.35, linewidth=0)
        axes.plot([low, high], [index, index], color=colour, linewidth=2.5, solid_capstyle="round")
        axes.plot([latency], [index], marker="o", color=colour, markersize=5)
        axes.note(_short(row.name), (0, index), (1, 9))
        axes.end_label(_label(row, comparison), (max(latency, high), index))
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.5, -0.8)
    axes.set_xlim(
        0, 1.5 * max(max(row.latency_ms or 0.0, (row.spread_ms or (0.0, 0.0))[1]) for row in rows)
    )
    axes.label(x="latency, ms (dot: median, line: middle half of the rounds)")
    return axes.drawing


def _short(name: str) -> str:
    """The name, shortened to fit; the end of a long recipe is kept, since it distinguishes it."""
    name = visible(name)
    return name if len(name) <= MAX_NAME else f"… {name[1 - MAX_NAME :]}"


def _colour(row: Measurement, comparison: Comparison, theme: Theme) -> str:
    verdict = comparison.verdict(row)
    if not verdict.word or verdict.tone == "untold" or row.name.startswith("baseline"):
        return theme.faint
    colours = {"good": theme.good, "bad": theme.bad, "even": theme.main}
    return colours[verdict.tone]


def _label(row: Measurement, comparison: Comparison) -> str:
    if row.name == comparison.baseline or row.speedup is None or row.speedup_interval is None:
        return f"{row.latency_ms:.3g} ms"
    rough = sign(comparison.verdict(row).word, comparison.quality)
    likely = readable_interval(row.speedup_interval)
    return f"{row.latency_ms:.3g} ms · {rough}{row.speedup:.2f} × ({likely})"


SIDES = (("latency_ms", "latency, ms"), ("size_bytes", "size of the weights"))


def draw_trade_off(trade_off: TradeOff, *, dark: bool = False) -> Drawing:
    """Two plots of numbered variants, with their names below; up and left is better."""
    axes = blank(trade_off.title, height=3.4 + 0.17 * len(trade_off.bargains), dark=dark)
    axes.set_axis_off()
    grid = axes.drawing.add_gridspec(2, 2, height_ratios=[3.0, 0.17 * len(trade_off.bargains)])
    axes.set_subplotspec(grid[1, :])
    for index, (axis, label) in enumerate(SIDES):
        side = axes.drawing.add_plot(grid[0, index])
        _draw_side(side, trade_off, axis)
        side.label(x=label, y="" if index else trade_off.unit)
    names = "\n".join(_numbered(number, row.name) for number, row in enumerate(trade_off.bargains))
    axes.note(names, (0, 1), xycoords="axes fraction", va="top", size=8, linespacing=1.35)
    return axes.drawing


def _draw_side(axes: Plot, trade_off: TradeOff, axis: str) -> None:
    theme = axes.theme
    best = trade_off.unbeaten(axis)
    axes.plot(
        [getattr(row, axis) for row in best],
        [row.worth for row in best],
        color=theme.main,
        linewidth=1.4,
        drawstyle="steps-post",
    )
    for number, row in enumerate(trade_off.bargains):
        position = getattr(row, axis), row.worth
        tooltip = (
            f"{row.name}: {row.latency_ms:.3g} ms, {readable_bytes(row.size_bytes)}, "
            f"{trade_off.unit} {row.worth:.4f}"
        )
        axes.mark(position, theme.main if row in best else theme.faint, tooltip=tooltip)
        axes.note(str(number), position, (5, 4))
    axes.set_xlim(0, 1.15 * max(getattr(row, axis) for row in trade_off.bargains))
    axes.margins(y=0.15)
    if axis == "size_bytes":
        axes.in_bytes(axes.xaxis)
        axes.locator_params(axis="x", nbins=4)
    axes.show_grid()


def _numbered(number: int, name: str, most: int = 110) -> str:
    """A name with its number, unless it has one; the end of a long recipe distinguishes it."""
    short = name if len(name) <= most else f"… {name[-most:]}"
    return short if name.startswith(f"{number}. ") else f"{number}. {short}"


MAX_RESULT = 64  # characters over a bar
ROW = 0.42  # inches


def draw_results(results: Results, *, dark: bool = False) -> Drawing:
    """A bar per row above; below, the metric against the latency with the line of the best."""
    bars = ROW * (len(results.rows) + 1)
    axes = blank(results.title, height=bars + 3.2, dark=dark)
    grid = axes.drawing.add_gridspec(2, 1, height_ratios=[bars, 3.0])
    axes.set_subplotspec(grid[0, 0])
    _draw_bars(axes, results)
    if any(row.is_within_limit for row in results.measured):
        _draw_scatter(axes.drawing.add_plot(grid[1, 0]), results)
    return axes.drawing


def _draw_bars(axes: Plot, results: Results) -> None:
    for index, row in enumerate(results.rows):
        latency, colour = row.latency_ms or 0.0, _result_colour(row, axes.theme)
        is_untold = row.verdict.tone in ("even", "untold") and row.number > 0
        axes.barh(
            index,
            latency,
            height=0.32,
            color="none" if is_untold else colour,
            edgecolor=colour,
            hatch="////" if is_untold else None,
            alpha=0.55,
            linewidth=0,
        )
        if row.likely_ms is not None:
            axes.plot(row.likely_ms, [index, index], color=axes.theme.ink, linewidth=1.6)
        name = visible(f"{row.number}. {results.short_label(row)}")
        axes.note(
            name if len(name) <= MAX_RESULT else f"{name[: MAX_RESULT - 1]}…", (0, index), (1, 8)
        )
        end = max(latency, *(row.likely_ms or (0.0,)))
        axes.end_label(_words(row), (end, index))
    axes.set_yticks([])
    axes.set_ylim(len(results.rows) - 0.5, -0.8)
    ends = [max(row.latency_ms or 0.0, *(row.likely_ms or (0.0,))) for row in results.rows]
    axes.set_xlim(0, 2.0 * max([*ends, 1e-6]))
    axes.label(x="latency, ms (line: likely range)")


def _draw_scatter(axes: Plot, results: Results) -> None:
    known = {row.number: results.worth(row) for row in results.measured}
    worth = {number: value for number, value in known.items() if value is not None}
    best = [results[number] for number in results.frontier]
    axes.plot(
        [row.latency_ms or 0.0 for row in best],
        [worth[row.number] for row in best],
        color=axes.theme.faint,
        linewidth=1.2,
        drawstyle="steps-post",
    )
    for row in results.measured:
        if not row.is_within_limit or row.number not in worth:  # refused, or without a metric
            continue
        place = row.latency_ms or 0.0, worth[row.number]
        axes.mark(
            place,
            _result_colour(row, axes.theme),
            tooltip=f"{row.number}. {row.label}: {row.verdict.sentence}",
            is_hollow=row.verdict.tone not in ("good", "bad"),
            markersize=8 if row.number == results.current else 6,
        )
        axes.note(str(row.number), place, (5, 4))
    axes.set_xscale("log")
    axes.powers(axes.xaxis)
    axes.margins(x=0.1, y=0.2)
    axes.label(
        x="latency, ms (line: nothing tried is both faster and more accurate)",
        y=results.trade_off.unit,
    )
    axes.show_grid()


def _result_colour(row: ResultRow, theme: Theme) -> str:
    colours = {"good": theme.good, "bad": theme.bad}
    return theme.faint if row.refused else colours.get(row.verdict.tone, theme.faint)


def _words(row: ResultRow) -> str:
    if row.failure or row.refused:
        return _first_clause(visible(row.failure or f"refused: {row.refused}"))
    return (
        f"{row.latency_ms:.3g} ms" if row.number == 0 and row.latency_ms else row.verdict.sentence
    )


def _first_clause(text: str) -> str:
    """The beginning of a reason that can stand alone; the table has all of it."""
    clause = text.partition("; ")[0].partition(", ")[0]
    if len(clause) <= MAX_RESULT:
        return clause
    return f"{clause[:MAX_RESULT].rpartition(' ')[0]} …"

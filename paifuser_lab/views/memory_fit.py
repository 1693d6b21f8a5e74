"""The predicted peak and that of each change under a memory limit; page faults with a pool."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from ..records import Fit, PoolCalls, readable_bytes
from .picture import Axis, Boxes, Key, Labels, Mark, Panel, Picture, Rules, Tips
from .style import CATEGORIES

ROW = 26  # pixels of a bar with the gap to the next
NEAR = 1.6  # a limit within this ratio of the largest peak is drawn, a farther one is named


def picture(
    fit: Fit, measured: Mapping[str, int] | None = None, *, has_limit: bool = True
) -> Picture:
    """Bars for the measured and the predicted peak, by category, and for each change; the limit."""
    stacks = {"measured": measured or {}, "predicted": fit.predicted.held.by_category}
    stacks = {name: {key: n for key, n in held.items() if n} for name, held in stacks.items()}
    stacks = {name: held for name, held in stacks.items() if held}
    peaks = [*(sum(held.values()) for held in stacks.values())]
    peaks += [remedy.peak_bytes for remedy in fit.remedies]
    names = [*stacks, *(row.change for row in fit.remedies)]
    hints = [f"{readable_bytes(row.peak_bytes)} · {row.how}" for row in fit.remedies]
    texts = [_verdict(fit, count) if has_limit else readable_bytes(count) for count in peaks]
    marks: list[Mark] = [
        *(_stack(held, row) for row, held in enumerate(stacks.values())),
        Boxes.in_rows(
            [0.0] * len(hints),
            peaks[len(stacks) :],
            range(len(stacks), len(peaks)),
            tone="faint",
            tips=Tips(names[len(stacks) :], hints),
        ),
        Labels(peaks, range(len(peaks)), texts, tone="ink"),
    ]
    limit = f"limit {readable_bytes(fit.limit_bytes)}"
    is_near = fit.limit_bytes <= NEAR * max(*peaks, 1)
    if is_near and has_limit:
        marks.append(Rules("x", [fit.limit_bytes], tone="bad"))
    label = f"bytes at the peak; {limit if is_near else f'the {limit} is beyond'}"
    reach = max(*peaks, fit.limit_bytes if is_near else 1)
    across = Axis.linear(0, 1.32 * reach, label if has_limit else "bytes at the peak", "bytes")
    panel = Panel(across, Axis.band(names), tuple(marks), 50 + ROW * len(names))
    legend = tuple(Key(CATEGORIES[name], name) for name in stacks["predicted"])
    return Picture(fit.title, "peaks under the limit", ((panel,),), legend=legend)


def _stack(held: Mapping[str, int], row: int) -> Boxes:
    ends = list(accumulate(held.values()))
    return Boxes.in_rows(
        [0, *ends][: len(ends)],
        ends,
        [row] * len(ends),
        tone=[CATEGORIES[name] for name in held],
        tips=Tips(list(held), [readable_bytes(count) for count in held.values()]),
    )


def _verdict(fit: Fit, count: int) -> str:
    return f"{readable_bytes(count)}, {'fits' if count <= fit.limit_bytes else 'too much'}"


def picture_of_pool(calls: PoolCalls) -> Picture:
    """A bar for the calls without the pool, and one for those with it."""
    counts = {"without the pool": calls.faults_without, "with the pool": calls.faults_with}
    known = {name: count for name, count in counts.items() if count is not None}
    names, lengths = list(known), list(known.values())
    texts = [f"{count:,.0f}" for count in lengths]
    across = Axis.linear(0, 1.2 * max([1.0, *lengths]), "page faults a call", "rate")
    panel = Panel.bars(names, lengths, texts, across, 50 + ROW * len(known), tone="memory")
    return Picture(
        calls.title,
        "page faults a call",
        ((panel,),) if known else (),
        sentence=calls.sentence,
        tables=(calls.as_table(calls.title),),
    )

"""The buffers of a call in one arena: when each lives, where it lies, and what torch held."""

from __future__ import annotations

from ..records import MemoryPlan, readable_bytes
from .picture import Axis, Boxes, Line, Mark, Panel, Picture, Rules, Style, Tips, Values


def picture(plan: MemoryPlan) -> Picture:
    """A box for each buffer, as wide as it lives and as high as it is large."""
    names, group_of = plan.groups
    most = 1.12 * max(plan.held_bytes, plan.packed_bytes, 1)
    panel = Panel(
        Axis.linear(0, max(plan.operators, 1), "operators of the call, in order", "count"),
        Axis.linear(0, most, "address in the arena", "bytes"),
        (_boxes(plan), _alive(plan), *_levels(plan)) if plan.buffers else (),
        height=300,
    )
    legend = [(f"group-{group}", names[group] or "the model itself") for group in set(group_of)]
    return Picture(
        title=plan.title,
        label="buffers by operator and address",
        sentence=plan.sentence,
        note=plan.note,
        rows=((panel,),),
        legend=tuple(sorted(legend)),
    )


def _boxes(plan: MemoryPlan) -> Boxes:
    """The buffers by time, then by address, as keys move through them."""
    rows = sorted(
        zip(plan.buffers, plan.groups[1], strict=True),
        key=lambda row: (row[0].begin, row[0].offset_bytes),
    )
    buffers = [buffer for buffer, _ in rows]
    sizes = [buffer.size_bytes for buffer in buffers]
    begins = [buffer.begin for buffer in buffers]
    ends = [buffer.end + 1 for buffer in buffers]
    bottoms = [buffer.offset_bytes for buffer in buffers]
    figures = (
        Values("size", sizes, "bytes"),
        Values("address", bottoms, "bytes"),
        Values("first operator", [begin + 1 for begin in begins], "count"),
        Values("last operator", ends, "count"),
    )
    layers = [buffer.layer for buffer in buffers]
    headings = [layer or plan.workload for layer in layers]
    return Boxes(
        begins,
        ends,
        bottoms,
        [buffer.top_bytes for buffer in buffers],
        tone=[f"group-{group}" for _, group in rows],
        key=layers,
        tips=Tips(headings, [buffer.operator for buffer in buffers], figures),
    )


def _alive(plan: MemoryPlan) -> Line:
    """What is alive at each operator."""
    sums = [*plan.alive_bytes, *plan.alive_bytes[-1:]]
    return Line(range(plan.operators + 1), sums, is_stepped=True, tone="ink", width=1.2)


def _levels(plan: MemoryPlan) -> list[Mark]:
    """The three sizes as lines; equal ones are named as one."""
    styles: dict[str, tuple[int, Style]] = {
        "held by torch": (plan.held_bytes, "dotted"),
        "arena": (plan.packed_bytes, "solid"),
        "least": (plan.bound_bytes, "dashed"),
    }
    names: dict[int, list[str]] = {}
    for name, (size, _) in styles.items():
        names.setdefault(size, []).append(name)
    levels: list[Mark] = []
    for size, same in names.items():
        text = f"{' = '.join(same)} {readable_bytes(size)}"
        is_below = size == plan.bound_bytes != plan.packed_bytes
        style = styles[same[0]][1]
        levels.append(Rules("y", [size], [text], "right", is_below, tone="ink", style=style))
    return levels

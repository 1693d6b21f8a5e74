"""The section of one call along time: the traced call of a profile."""

from ...records import CallTimeline
from ..section import chart_section

SECTION = chart_section(
    "call_timeline",
    CallTimeline,
    "one call along time",
    before="What runs when in one call? The profile tells, in seconds.",
    title="One call along time",
    hint="operators of one call as torch's profiler traced them",
    tab="machine",
    sources=lambda state: (getattr(state.profile or state.baseline, "timeline", None),),
)

"""The section of a memory plan: the buffers of one call packed into one arena."""

from __future__ import annotations

from ...records import MemoryPlan
from ..section import Question, chart_section, of_recipe

SECTION = chart_section(
    "memory_plan",
    MemoryPlan,
    "memory packing",
    Question(
        query="memory_plan",
        request="memory_plan",
        question="How little memory could a call do with, if its buffers were packed?",
        use="Shows when each buffer is needed and where it could lie, beside what torch's "
        "allocator held.",
    ),
    sources=lambda state: (of_recipe(state, "memory_plan"),),
    title="Memory packing",
    tab="options",
    place="memory",
    is_always_shown=True,
    requests={"memory_plan": lambda bench, request: bench.session.query("memory_plan")},
    layers=lambda plan: {buffer.layer for buffer in plan.buffers},
)

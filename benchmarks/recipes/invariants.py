"""The invariants of the loop that every recipe must keep, on tiny models of the zoo and on
architectures of unusual structure: checked on one recipe at a time within this process, and on
saved folders in a fresh one (`python -m benchmarks.recipes.invariants MODEL FOLDER …`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from paifuser_lab.errors import MeasureError, PaifuserError, message_of
from paifuser_lab.model.weights import answer_hash, weights_hash
from paifuser_lab.records import Record
from paifuser_lab.variant import Variant, apply
from paifuser_lab.variant.load import load
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import Workload, running
from tests.support.prune_zoo import architectures

from ..child import environment

ZOO = (
    "resnet18-digits-tiny",
    "mobilenetv2-tiny",
    "vit-s-tiny",
    "swin-t-tiny",
    "bert-base-tiny",
    "unet-tiny",
    "convnext-t-tiny",
    "yolo-tiny",
)
BATCHES = 4  # of training data: how well training goes does not matter here
LIMIT_S = 300.0  # of a fresh process
Verdict = Literal["holds", "refused", "violated"]


class RecipeRow(Record):
    """The outcome of a recipe: every invariant holds, it was refused with a message, or an
    invariant was violated.
    """

    model: str
    seed: int
    recipe: str  # of the steps that this model accepts
    verdict: Verdict
    refused: tuple[str, ...] = ()  # the messages of the steps that it refuses
    note: str = ""


@dataclass(frozen=True)
class Saved:
    """A folder that a fresh process must load to the same model, and that model's output hash."""

    row: RecipeRow
    folder: Path
    weights: str
    output: str


def output_hash(work: Workload, model: nn.Module) -> str:
    """A bitwise hash of the model's output on the example inputs."""
    with running(model), torch.no_grad():
        return answer_hash(work.inputs.clone()(model))


def check(work: Workload, drawn: Recipe, seed: int, folder: Path) -> RecipeRow | Saved:
    """Apply a recipe and check the invariants within this process; a variant that keeps them is
    saved into `folder`.
    """
    before, recipe = _fingerprint(work), drawn[:0]
    refused: list[str] = []

    def row(verdict: Verdict, note: str = "") -> RecipeRow:
        text = recipe.to_text()
        return RecipeRow(
            model=work.name,
            seed=seed,
            recipe=text,
            verdict=verdict,
            refused=tuple(refused),
            note=note,
        )

    work.variants.clear()
    variant = apply(work, recipe)
    for step in drawn:
        longer = recipe + step
        try:
            variant = apply(work, longer)
        except PaifuserError as problem:
            refused.append(str(problem))
            continue
        except Exception as problem:  # any other exception would reach the user
            recipe = longer
            return row(
                "violated", f"{type(problem).__name__} instead of a message: {problem}"[:300]
            )
        recipe = longer
    if violation := _violation(work, recipe, variant, before):
        return row("violated", violation)
    if not recipe:
        return row("refused")
    try:
        variant.save(folder)
    except PaifuserError as problem:
        return row("violated", f"it cannot be saved: {problem}")
    output = output_hash(work, variant.model)
    return Saved(row("holds"), folder, weights_hash(variant.module), output)


def _violation(work: Workload, recipe: Recipe, variant: Variant, before: tuple[Any, ...]) -> str:
    """The first invariant that does not hold; empty if all hold."""
    if _fingerprint(work) != before:
        return "the user's own model was changed"
    undone = apply(work, recipe[:0])
    if output_hash(work, undone.model) != output_hash(work, work.model):
        return "undone, its output is not that of the original, bit for bit"
    if len(recipe) > 1:
        shorter = apply(work, recipe[:-1])
        hashes = weights_hash(shorter.module), output_hash(work, shorter.model)
        work.variants.clear()
        fresh = apply(work, recipe[:-1])
        fresh_hashes = weights_hash(fresh.module), output_hash(work, fresh.model)
        if fresh_hashes != hashes and not timed(recipe[:-1]):
            return "a step undone is not the model as it was before the step"
    work.variants.clear()
    if weights_hash(apply(work, recipe).module) != weights_hash(variant.module):
        return "applied twice, it gives two hashes"
    if _fingerprint(work) != before:
        return "the user's own model was changed by undoing or applying again"
    return ""


def timed(recipe: Recipe) -> bool:
    """Whether timings decide a part of what runs, so that two runs may differ in the last bits of
    an output.
    """
    return any(step.kind in ("fuse", "attention") for step in recipe)


def _fingerprint(work: Workload) -> tuple[Any, ...]:
    """Everything that a recipe must not change: weights, structure, modes, hooks, output."""
    modes = tuple(module.training for module in work.model.modules())
    hooks = tuple(
        len(module._forward_hooks) + len(module._forward_pre_hooks)
        for module in work.model.modules()
    )
    identities = tuple(id(weight) for weight in work.model.parameters())
    own = tuple("forward" in vars(module) for module in work.model.modules())
    return (
        weights_hash(work.model),
        str(work.model),
        modes,
        hooks,
        identities,
        own,
        output_hash(work, work.model),
    )


def subjects() -> tuple[str, ...]:
    """The names of all subjects."""
    return (*ZOO, *(architecture.name for architecture in architectures()))


def subject(name: str) -> Workload:
    """A subject by its name: the same weights, inputs and few batches of data in every process."""
    if name in ZOO:
        work = load(name)
        work.train = work.train and work.train[:BATCHES]
        return work
    for architecture in architectures():
        if architecture.name == name:
            return architecture.workload()
    raise MeasureError(f"There is no subject '{name}'; there are {', '.join(subjects())}.")


def loaded(saved: Sequence[Saved]) -> Iterator[RecipeRow]:
    """Each saved variant's row, after a fresh process loaded its folder and ran the same inputs;
    one process per model.
    """
    for model, group in groupby(saved, key=lambda variant: variant.row.model):
        members = list(group)
        command = [sys.executable, "-m", __name__, model, *(str(item.folder) for item in members)]
        process = subprocess.run(
            command,
            env=environment(OMP_NUM_THREADS="1"),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
        failure = {"error": process.stderr.strip()[-300:] or "the process ended"}
        for index, member in enumerate(members):
            result = lines[index] if index < len(lines) else failure
            yield member.row.model_copy(update=_compared(member, result))


def _compared(saved: Saved, result: dict[str, str]) -> dict[str, str]:
    """Compare with the fresh process's result; the changes of the row."""
    if "error" in result:
        return {"verdict": "violated", "note": f"a fresh process cannot load it: {result['error']}"}
    if result["weights"] != saved.weights:
        return {"verdict": "violated", "note": "a fresh process loads other weights"}
    if result["output"] != saved.output:
        return {"verdict": "violated", "note": "loaded in a fresh process its output differs"}
    return {}


def main(model: str, folders: Sequence[str]) -> None:
    """Load each folder as a variant of the named model, and print a line of JSON for each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    work = subject(model)
    for folder in folders:
        try:
            variant = Variant.load(folder, work)
            line = {
                "weights": weights_hash(variant.module),
                "output": output_hash(work, variant.model),
            }
        except Exception as problem:  # the other folders are still loaded
            line = {"error": message_of(problem)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
